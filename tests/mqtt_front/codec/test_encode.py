"""Writing packets: the short forms, fields that older versions lack, and values that cannot be encoded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.codec.encode import PINGRESP, encode, encode_ack, encode_publish, encode_publish_parts
from ringmq.mqtt_front.codec.fields import MAX_FIELD_BYTES, MAX_VARINT
from ringmq.mqtt_front.codec.packets import (
    Auth,
    Disconnect,
    Kind,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    RetainHandling,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.properties import encode_properties
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import EncodeError

V31, V311, V5 = Version
WHY = Properties(reason_string="y")


@pytest.mark.parametrize(
    ("packet", "in_3", "in_5"),
    [
        (Puback(1), "40020001", "40020001"),
        (Puback(1, Reason.NOT_AUTHORIZED), "40020001", "4003000187"),
        (Pubrec(1, Reason.SUCCESS, WHY), "50020001", "50080001 00 04 1f000179"),
        (Pubrel(1), "62020001", "62020001"),
        (Pubcomp(1, Reason.PACKET_IDENTIFIER_NOT_FOUND), "70020001", "7003000192"),
        (
            Subscribe(1, (Subscription("a", 1, True, True, RetainHandling.IF_NEW),), Properties(subscription_ids=(5,))),
            "82060001 0001 61 01",
            "82090001 020b05 0001 61 1d",
        ),
        (Suback(1, (Reason.GRANTED_QOS_2,)), "90030001 02", "90040001 00 02"),
        (Suback(1, (Reason.NOT_AUTHORIZED, Reason.QUOTA_EXCEEDED)), "90040001 80 80", "90050001 00 87 97"),
        (Unsubscribe(1, ("a", "b")), "a2080001 000161 000162", "a2090001 00 000161 000162"),
        (Unsuback(1, (Reason.NO_SUBSCRIPTION_EXISTED,)), "b0020001", "b0040001 00 11"),
        (Pingreq(), "c000", "c000"),
        (Pingresp(), "d000", "d000"),
        (Disconnect(), "e000", "e000"),
        (Disconnect(Reason.SESSION_TAKEN_OVER), "e000", "e0018e"),
        (Disconnect(Reason.SUCCESS, WHY), "e000", "e006 00 04 1f000179"),
        (Publish("a", b"p", properties=Properties(payload_format=1)), "3004 0001 61 70", "3007 0001 61 02 0101 70"),
        (Publish("a", b"p", 1, True, True, 2), "3b06 0001 61 0002 70", "3b07 0001 61 0002 00 70"),
        (Publish("ä", memoryview(b"")), "3004 0002 c3a4", "3005 0002 c3a4 00"),
    ],
)
def test_fields_that_a_version_lacks_are_left_out(packet: Packet, in_3: str, in_5: str) -> None:
    """And flags are those of table 2-2 [MQTT-2.1.3-1]."""
    assert encode(V31, packet) == encode(V311, packet) == bytes.fromhex(in_3)
    assert encode(V5, packet) == bytes.fromhex(in_5)


def test_the_short_forms_of_auth() -> None:
    assert encode(V5, Auth()) == bytes.fromhex("f000")
    assert encode(V5, Auth(Reason.RE_AUTHENTICATE)) == bytes.fromhex("f00119")
    assert encode(V311, Pingresp()) == PINGRESP


@given(
    st.sampled_from(list(Version)),
    st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=40),
    st.binary(max_size=200),
    st.sampled_from([1, 2]),
    st.booleans(),
    st.booleans(),
    st.integers(1, 65_535),
    st.sampled_from([Properties(), Properties(content_type="x" * 200), Properties(topic_alias=1)]),
)
def test_encoded_parts_serve_many_receivers(
    version: Version, topic: str, payload: bytes, qos: int, retain: bool, dup: bool, packet_id: int, own: Properties
) -> None:
    name, section = topic.encode(), encode_properties(own)
    head, tail = encode_publish_parts(version, name, memoryview(payload), qos, retain, dup, section)
    whole = encode_publish(version, name, payload, qos, retain, dup, packet_id, section)
    assert head + packet_id.to_bytes(2, "big") + tail == whole
    assert whole == encode(version, Publish(topic, payload, qos, retain, dup, packet_id, own))
    assert (type(head), type(tail)) == (bytes, bytes)


@pytest.mark.parametrize("size", [0, 121, 122, 123, 124, 16_376, 16_377, 16_378, 16_379, 70_000])
def test_the_remaining_length_is_right_at_its_edges(size: int) -> None:
    for version, own in ((V311, 0), (V5, 1)):
        for qos in range(3):
            raw = encode_publish(version, b"a", bytes(size), qos, packet_id=1)
            length = 3 + (2 if qos else 0) + own + size
            places = 1 if length < 128 else 2 if length < 16_384 else 3
            assert len(raw) == 1 + places + length
            assert sum((raw[1 + place] & 127) << 7 * place for place in range(places)) == length
            assert raw[places] < 128


@pytest.mark.parametrize("kind", [Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP])
def test_acknowledgements_without_a_packet_value(kind: Kind) -> None:
    make = {Kind.PUBACK: Puback, Kind.PUBREC: Pubrec, Kind.PUBREL: Pubrel, Kind.PUBCOMP: Pubcomp}[kind]
    bad = Reason.PACKET_IDENTIFIER_NOT_FOUND if kind in (Kind.PUBREL, Kind.PUBCOMP) else Reason.QUOTA_EXCEEDED
    for version in Version:
        for reason in (Reason.SUCCESS, bad):
            assert encode_ack(kind, version, 515, reason) == encode(version, make(515, reason))


def test_packet_that_cannot_be_encoded_raises_encode_error() -> None:
    """[MQTT-4.7.3-3] and reasons of another packet: [MQTT-3.4.2-1] [MQTT-3.9.3-2] [MQTT-3.11.3-2] [MQTT-3.14.2-1]."""
    too_long = "a" * (MAX_FIELD_BYTES + 1)
    wrong: list[tuple[Version, Packet]] = [
        (V311, Auth()),
        (V311, Publish(too_long, b"")),
        (V5, Publish("\ud800", b"")),
        (V311, Publish("a", b"", 1, packet_id=65_536)),
        (V311, Unsubscribe(1, (too_long,))),
        (V5, Puback(-1)),
        (V5, Puback(1, Reason.PACKET_IDENTIFIER_NOT_FOUND)),
        (V5, Pubrel(1, Reason.QUOTA_EXCEEDED)),
        (V5, Suback(1, (Reason.NO_SUBSCRIPTION_EXISTED,))),
        (V5, Unsuback(1, (Reason.GRANTED_QOS_1,))),
        (V5, Disconnect(Reason.SERVER_UNAVAILABLE)),
        (V5, Auth(Reason.NOT_AUTHORIZED)),
    ]
    for version, packet in wrong:
        with pytest.raises(EncodeError):
            encode(version, packet)
    with pytest.raises(EncodeError):
        encode_ack(Kind.PUBACK, V311, 65_536)
    with pytest.raises(EncodeError):
        encode_ack(Kind.PUBACK, V5, 1, Reason.SERVER_BUSY)
    with pytest.raises(EncodeError):
        encode_publish(V311, b"a", _Huge())  # type: ignore[arg-type]


class _Huge(bytes):
    """A payload that only says how long it is: one byte more than a packet has room for."""

    def __len__(self) -> int:
        return MAX_VARINT - 2
