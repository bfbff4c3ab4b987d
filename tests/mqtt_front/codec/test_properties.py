"""Properties by the table of §2.2.2.2, which is written out here once more, from the specification."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.codec.packets import NO_PROPERTIES, Kind, Properties
from ringmq.mqtt_front.codec.properties import (
    TABLE,
    WILL,
    decode_properties,
    delivery_properties,
    encode_properties,
    read_properties,
    section_at,
    split_publish_properties,
    with_length,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import EncodeError, MalformedPacketError, PacketError, ProtocolBreachError

SECTIONS = [WILL, *(kind for kind in Kind if kind not in (Kind.PINGREQ, Kind.PINGRESP))]
HAVE_REASONS = "CONNACK PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK DISCONNECT AUTH"

# Identifier, an example as bytes, its value, and where it may stand: table 2-4 of the specification.
ROWS: list[tuple[str, str, object, str]] = [
    ("01", "01", {"payload_format": 1}, "PUBLISH WILL"),
    ("02", "00000e10", {"message_expiry_s": 3600}, "PUBLISH WILL"),
    ("03", "000161", {"content_type": "a"}, "PUBLISH WILL"),
    ("08", "000161", {"response_topic": "a"}, "PUBLISH WILL"),
    ("09", "000200ff", {"correlation_data": b"\0\xff"}, "PUBLISH WILL"),
    ("0b", "8001", {"subscription_ids": (128,)}, "PUBLISH SUBSCRIBE"),
    ("11", "ffffffff", {"session_expiry_s": 4_294_967_295}, "CONNECT CONNACK DISCONNECT"),
    ("12", "000161", {"assigned_client_id": "a"}, "CONNACK"),
    ("13", "003c", {"server_keep_alive_s": 60}, "CONNACK"),
    ("15", "000161", {"authentication_method": "a"}, "CONNECT CONNACK AUTH"),
    ("17", "00", {"request_problem_information": 0}, "CONNECT"),
    ("18", "0000000a", {"will_delay_s": 10}, "WILL"),
    ("19", "01", {"request_response_information": 1}, "CONNECT"),
    ("1a", "000161", {"response_information": "a"}, "CONNACK"),
    ("1c", "000161", {"server_reference": "a"}, "CONNACK DISCONNECT"),
    ("1f", "000161", {"reason_string": "a"}, HAVE_REASONS),
    ("21", "0014", {"receive_maximum": 20}, "CONNECT CONNACK"),
    ("22", "000a", {"topic_alias_maximum": 10}, "CONNECT CONNACK"),
    ("23", "0001", {"topic_alias": 1}, "PUBLISH"),
    ("24", "01", {"maximum_qos": 1}, "CONNACK"),
    ("25", "00", {"retain_available": 0}, "CONNACK"),
    ("26", "000161000162", None, ""),  # has a test of its own
    ("27", "00010000", {"maximum_packet_size": 65_536}, "CONNECT CONNACK"),
    ("28", "01", {"wildcard_available": 1}, "CONNACK"),
    ("29", "01", {"subscription_ids_available": 1}, "CONNACK"),
    ("2a", "01", {"shared_available": 1}, "CONNACK"),
]
EXAMPLES = [row for row in ROWS if row[2] is not None]


def sections(names: str) -> set[int]:
    return {WILL if name == "WILL" else Kind[name] for name in names.split()}


def test_the_table_is_the_whole_of_the_specification() -> None:
    assert set(TABLE) == {int(row[0], 16) for row in ROWS} | {0x16}
    assert {row.name for row in TABLE.values()} == set(Properties.__struct_fields__)


@pytest.mark.parametrize(("identifier", "raw", "fields", "where"), EXAMPLES)
def test_each_property_in_its_packets_and_in_no_other(identifier: str, raw: str, fields: object, where: str) -> None:
    """§2.2.2.2: an identifier that is not valid for its packet makes it malformed."""
    section = bytes.fromhex(identifier + raw)
    for kind in SECTIONS:
        if kind in sections(where):
            properties = decode_properties(kind, section)
            assert properties == msgspec.convert(fields, Properties)
            assert encode_properties(properties) == section
        else:
            with pytest.raises(MalformedPacketError):
                decode_properties(kind, section)


@pytest.mark.parametrize("kind", SECTIONS)
def test_user_properties_may_stand_anywhere_and_more_than_once(kind: int) -> None:
    """In their order [MQTT-3.3.2-18], and the same name again (§3.1.2.11.8)."""
    pairs = (("b", "1"), ("a", "2"), ("b", "1"), ("", ""))
    section = encode_properties(Properties(user_properties=pairs))
    assert section.startswith(bytes.fromhex("26 0001 62 0001 31 26"))
    assert decode_properties(kind, section).user_properties == pairs


@pytest.mark.parametrize(("identifier", "raw", "fields", "where"), EXAMPLES)
def test_a_property_stands_there_once(identifier: str, raw: str, fields: object, where: str) -> None:
    """§3.1.2.11 and the like: including it more than once is a protocol error."""
    for kind in sections(where) - ({Kind.PUBLISH} if identifier == "0b" else set()):
        with pytest.raises(ProtocolBreachError):
            decode_properties(kind, bytes.fromhex(identifier + raw) * 2)


def test_a_server_sends_several_subscription_ids() -> None:
    """[MQTT-3.3.4-4], read by a client; one in a SUBSCRIBE (§3.8.2.1.2), none from a client [MQTT-3.3.4-6]."""
    section = encode_properties(Properties(subscription_ids=(1, 268_435_455, 1)))
    assert section == bytes.fromhex("0b01 0bffffff7f 0b01")
    assert decode_properties(Kind.PUBLISH, section).subscription_ids == (1, 268_435_455, 1)
    with pytest.raises(ProtocolBreachError):
        decode_properties(Kind.SUBSCRIBE, section)
    with pytest.raises(ProtocolBreachError, match="subscription id"):
        split_publish_properties(section)


@pytest.mark.parametrize(
    ("kind", "raw", "reason"),
    [
        pytest.param(Kind.PUBLISH, "0102", Reason.PROTOCOL_ERROR, id="payload format 2"),
        pytest.param(Kind.CONNECT, "1702", Reason.PROTOCOL_ERROR, id="request problem information 2"),
        pytest.param(Kind.CONNECT, "19ff", Reason.PROTOCOL_ERROR, id="request response information 255"),
        pytest.param(Kind.CONNACK, "2402", Reason.PROTOCOL_ERROR, id="maximum QoS 2"),
        pytest.param(Kind.CONNACK, "2502", Reason.PROTOCOL_ERROR, id="retain available 2"),
        pytest.param(Kind.CONNACK, "2802", Reason.PROTOCOL_ERROR, id="wildcard available 2"),
        pytest.param(Kind.CONNACK, "2902", Reason.PROTOCOL_ERROR, id="subscription ids available 2"),
        pytest.param(Kind.CONNACK, "2a02", Reason.PROTOCOL_ERROR, id="shared available 2"),
        pytest.param(Kind.CONNECT, "210000", Reason.PROTOCOL_ERROR, id="receive maximum 0"),
        pytest.param(Kind.CONNECT, "2700000000", Reason.PROTOCOL_ERROR, id="maximum packet size 0"),
        pytest.param(Kind.SUBSCRIBE, "0b00", Reason.PROTOCOL_ERROR, id="subscription id 0"),
        pytest.param(Kind.CONNECT, "16000161", Reason.PROTOCOL_ERROR, id="authentication data without a method"),
        pytest.param(Kind.PUBLISH, "230000", Reason.TOPIC_ALIAS_INVALID, id="MQTT-3.3.2-8 topic alias 0"),
        pytest.param(Kind.PUBLISH, "080003612f2b", Reason.PROTOCOL_ERROR, id="MQTT-3.3.2-14 response topic with +"),
        pytest.param(Kind.PUBLISH, "08000123", Reason.PROTOCOL_ERROR, id="MQTT-3.3.2-14 response topic with #"),
        pytest.param(Kind.PUBLISH, "080000", Reason.PROTOCOL_ERROR, id="MQTT-4.7.3-1 empty response topic"),
        pytest.param(Kind.PUBLISH, "080001ff", Reason.MALFORMED_PACKET, id="MQTT-3.3.2-13 response topic not UTF-8"),
        pytest.param(Kind.PUBLISH, "030001ff", Reason.MALFORMED_PACKET, id="MQTT-3.3.2-19 content type not UTF-8"),
        pytest.param(Kind.PUBLISH, "260001610001ff", Reason.MALFORMED_PACKET, id="MQTT-1.5.7-1 user property value"),
        pytest.param(Kind.SUBSCRIBE, "0b8100", Reason.MALFORMED_PACKET, id="MQTT-1.5.5-1 subscription id too long"),
        pytest.param(Kind.PUBLISH, "00", Reason.MALFORMED_PACKET, id="unknown property 0"),
        pytest.param(Kind.PUBLISH, "810001", Reason.MALFORMED_PACKET, id="unknown property 129"),
        pytest.param(Kind.PUBLISH, "02000000", Reason.MALFORMED_PACKET, id="ends within a value"),
        pytest.param(Kind.PUBLISH, "01", Reason.MALFORMED_PACKET, id="ends after an identifier"),
    ],
)
def test_wrong_values(kind: Kind, raw: str, reason: Reason) -> None:
    with pytest.raises(PacketError) as caught:
        decode_properties(kind, bytes.fromhex(raw))
    assert caught.value.reason is reason


def test_authentication_data_with_its_method() -> None:
    properties = Properties(authentication_method="SCRAM", authentication_data=b"\0")
    for kind in (Kind.CONNECT, Kind.CONNACK, Kind.AUTH):
        assert decode_properties(kind, encode_properties(properties)) == properties


def test_a_section_with_its_length() -> None:
    """No properties are a length of 0 [MQTT-2.2.2-1]."""
    assert with_length(b"") == b"\0"
    assert read_properties(Kind.PUBLISH, b"\0", 0) == (NO_PROPERTIES, 1)
    body = b"xx" + with_length(b"\x26" + b"\0\x7d" + b"n" * 125 + b"\0\0") + b"yy"
    assert section_at(body, 2) == (4, len(body) - 2)
    assert read_properties(Kind.PUBLISH, memoryview(body), 2) == (
        Properties(user_properties=(("n" * 125, ""),)),
        len(body) - 2,
    )
    for wrong in ("", "01", "80", "8000", "ffffffff7f"):
        with pytest.raises(MalformedPacketError):
            section_at(bytes.fromhex(wrong), 0)


FORWARDED = ["0101", "0300022f6a", "0800016f", "09000101", "26000161000131", "26000161000130"]
"""[MQTT-3.3.2-4], [MQTT-3.3.2-20], [MQTT-3.3.2-15], [MQTT-3.3.2-16], [MQTT-3.3.2-17] twice."""
OUR_OWN = ["020000000a", "230007"]


@given(st.permutations(FORWARDED + OUR_OWN))
def test_forwarded_properties_keep_their_bytes(order: list[str]) -> None:
    """Unaltered and in its order [MQTT-3.3.2-18]; expiry and alias are made anew for each receiver."""
    properties, forwarded = split_publish_properties(memoryview(bytes.fromhex("".join(order))))
    assert forwarded == bytes.fromhex("".join(identifier for identifier in order if identifier in FORWARDED))
    assert properties.message_expiry_s == 10
    assert properties.topic_alias == 7
    assert properties == decode_properties(Kind.PUBLISH, bytes.fromhex("".join(order)))


def test_forwarded_properties_do_not_keep_their_chunk_alive() -> None:
    assert split_publish_properties(b"") == (NO_PROPERTIES, b"")
    assert type(split_publish_properties(memoryview(b"\x01\x01"))[1]) is bytes


def test_delivery_has_forwarded_properties_and_those_of_its_receiver() -> None:
    assert delivery_properties(b"") == b""
    section = delivery_properties(bytes.fromhex("".join(FORWARDED)), 5, (1, 300), 9)
    properties = decode_properties(Kind.PUBLISH, section)
    assert properties == Properties(
        payload_format=1,
        content_type="/j",
        response_topic="o",
        correlation_data=b"\1",
        user_properties=(("a", "1"), ("a", "0")),
        message_expiry_s=5,
        subscription_ids=(1, 300),
        topic_alias=9,
    )
    assert delivery_properties(b"\x01\x01", 0) == bytes.fromhex("0101 0200000000")


def test_value_that_does_not_fit_raises_encode_error() -> None:
    for wrong in (
        Properties(receive_maximum=65_536),
        Properties(message_expiry_s=-1),
        Properties(subscription_ids=(1 << 28,)),
    ):
        with pytest.raises(EncodeError):
            encode_properties(wrong)
