"""Reading packets, by the tables of chapter 3 of each version. In hex, without the remaining length."""

import pytest

from ringmq.mqtt_front.codec.decode import decode, decode_publish, read_publish
from ringmq.mqtt_front.codec.packets import (
    Auth,
    Connect,
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
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import PacketError

V31, V311, V5 = Version
MALFORMED, BREACH, NAME = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR, Reason.TOPIC_NAME_INVALID
WHY = Properties(reason_string="y")


def read(version: Version, raw: str) -> Packet:
    first, *body = bytes.fromhex(raw)
    return decode(version, first, bytes(body))


def fault(version: Version, raw: str) -> Reason:
    with pytest.raises(PacketError) as caught:
        read(version, raw)
    return caught.value.reason


@pytest.mark.parametrize(
    ("versions", "raw", "packet"),
    [
        ("V31 V311", "30 0003612f62 68", Publish("a/b", b"h")),
        ("V31 V311", "3d 0001 61 000a", Publish("a", b"", 2, True, True, 10)),
        ("V5", "33 0003612f62 000a 00 6869", Publish("a/b", b"hi", 1, True, False, 10)),
        ("V5", "30 0000 03 230001 68", Publish("", b"h", properties=Properties(topic_alias=1))),
        ("V5", "30 0001 61 02 0101", Publish("a", b"", properties=Properties(payload_format=1))),
        ("V31 V311 V5", "40 0102", Puback(258)),
        ("V5", "40 0001 10", Puback(1, Reason.NO_MATCHING_SUBSCRIBERS)),
        ("V5", "40 0001 97 00", Puback(1, Reason.QUOTA_EXCEEDED)),
        ("V5", "50 0001 87 04 1f000179", Pubrec(1, Reason.NOT_AUTHORIZED, WHY)),
        ("V31 V311 V5", "50 0001", Pubrec(1)),
        ("V31 V311 V5", "62 ffff", Pubrel(65_535)),
        ("V5", "62 0001 92", Pubrel(1, Reason.PACKET_IDENTIFIER_NOT_FOUND)),
        ("V31 V311 V5", "70 0001", Pubcomp(1)),
        ("V5", "70 0001 00 04 1f000179", Pubcomp(1, Reason.SUCCESS, WHY)),
        ("V31 V311", "82 0001 000161 02 0001 23 00", Subscribe(1, (Subscription("a", 2), Subscription("#", 0)))),
        (
            "V5",
            "82 0001 02 0b07 0001 61 2d",
            Subscribe(1, (Subscription("a", 1, True, True, RetainHandling.NEVER),), Properties(subscription_ids=(7,))),
        ),
        ("V31 V311", "90 0001 00010280", Suback(1, tuple(map(Reason, (0, 1, 2, 0x80))))),
        ("V5", "90 0001 00 02 8f a2", Suback(1, tuple(map(Reason, (2, 0x8F, 0xA2))))),
        ("V31 V311", "a2 0001 000161 000162", Unsubscribe(1, ("a", "b"))),
        ("V5", "a2 0001 00 000161", Unsubscribe(1, ("a",))),
        ("V31 V311", "b0 0001", Unsuback(1)),
        ("V5", "b0 0001 00 00 11", Unsuback(1, (Reason.SUCCESS, Reason.NO_SUBSCRIPTION_EXISTED))),
        ("V31 V311 V5", "c0", Pingreq()),
        ("V31 V311 V5", "d0", Pingresp()),
        ("V31 V311 V5", "e0", Disconnect()),
        ("V5", "e0 04", Disconnect(Reason.DISCONNECT_WITH_WILL)),
        ("V5", "e0 00 05 1100000005", Disconnect(Reason.SUCCESS, Properties(session_expiry_s=5))),
        ("V5", "f0", Auth()),
        ("V5", "f0 18 04 15000178", Auth(Reason.CONTINUE_AUTHENTICATION, Properties(authentication_method="x"))),
    ],
)
def test_packets_as_they_should_be(versions: str, raw: str, packet: Packet) -> None:
    for version in versions.split():
        assert read(Version[version], raw) == packet


RIGHT_FLAGS = {Kind.PUBREL: 2, Kind.SUBSCRIBE: 2, Kind.UNSUBSCRIBE: 2}
BODIES = {
    "V311": ["", "0001", "0001 0001 61 00", "0001 0001 61", "0001 00", "00 00"],
    "V5": ["", "0001", "0001 00 0001 61 00", "0001 00 0001 61", "0001 00 00", "00 00 00"],
}


@pytest.mark.parametrize("flags", range(16))
@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in (Kind.CONNECT, Kind.PUBLISH)])
def test_flags_of_the_fixed_header(kind: Kind, flags: int) -> None:
    """[MQTT-2.1.3-1], 3.1.1 [MQTT-2.2.2-1] [MQTT-2.2.2-2], [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1]
    [MQTT-3.14.1-1] [MQTT-3.15.1-1]. In 3.1 they have no use: its clients set DUP when they send a SUBSCRIBE again.
    """
    for version in (V311, V5) if kind != Kind.AUTH else (V5,):
        right = flags == RIGHT_FLAGS.get(kind, 0)
        assert any(_can_be_read(version, f"{kind:x}{flags:x} {body}") for body in BODIES[version.name]) is right
    if kind != Kind.AUTH:
        assert any(_can_be_read(V31, f"{kind:x}{flags:x} {body}") for body in BODIES["V311"])


def _can_be_read(version: Version, raw: str) -> bool:
    try:
        read(version, raw)
    except PacketError:
        return False
    return True


@pytest.mark.parametrize(
    ("versions", "raw", "reason"),
    [
        pytest.param("V31 V311 V5", "36 000161 0001 00", MALFORMED, id="MQTT-3.3.1-4 QoS 3"),
        pytest.param("V31 V311 V5", "3e 000161 0001 00", MALFORMED, id="MQTT-3.3.1-4 QoS 3 with DUP"),
        pytest.param("V31 V311 V5", "38 000161 00", MALFORMED, id="MQTT-3.3.1-2 DUP with QoS 0"),
        pytest.param("V31 V311 V5", "32 000161 0000 00", BREACH, id="MQTT-2.2.1-3 packet id 0, 3.1.1 MQTT-2.3.1-1"),
        pytest.param("V31 V311 V5", "34 000161 00", MALFORMED, id="MQTT-2.2.1-3 no packet id"),
        pytest.param("V31 V311 V5", "30 0002c328 00", MALFORMED, id="MQTT-3.3.2-1 topic that is no UTF-8"),
        pytest.param("V31 V311 V5", "30 000361006200", MALFORMED, id="MQTT-4.7.3-2 null character in a topic"),
        pytest.param("V31 V311 V5", "30 0003612f2b 00", NAME, id="MQTT-3.3.2-2 + in a topic"),
        pytest.param("V31 V311 V5", "30 0002 6123 00", NAME, id="MQTT-3.3.2-2 # in a topic, even inside a level"),
        pytest.param("V31 V311", "30 0000 68", NAME, id="MQTT-4.7.3-1 empty topic"),
        pytest.param("V5", "30 0000 00 68", BREACH, id="5.0 3.3.2.1 neither topic nor alias"),
        pytest.param("V5", "30 0000 02 0101 68", BREACH, id="5.0 3.3.2.1 neither topic nor alias, but a property"),
        pytest.param("V5", "30 0000 03 230000", Reason.TOPIC_ALIAS_INVALID, id="MQTT-3.3.2-8 alias 0"),
        pytest.param("V5", "30 0001 61", MALFORMED, id="no property length"),
        pytest.param("V5", "30 0001 61 03 0101", MALFORMED, id="properties beyond the packet"),
        pytest.param("V5", "30 0001 61 8000", MALFORMED, id="MQTT-1.5.5-1 property length too long"),
        pytest.param("V5", "30 0001 61 01 01 01", MALFORMED, id="a property beyond its section"),
        pytest.param("V31 V311 V5", "30 0002 61", MALFORMED, id="topic beyond the packet"),
        pytest.param("V31 V311 V5", "30 00", MALFORMED, id="half a length"),
        pytest.param("V31 V311 V5", "30", MALFORMED, id="an empty PUBLISH"),
    ],
)
def test_a_wrong_publish(versions: str, raw: str, reason: Reason) -> None:
    for version in versions.split():
        assert fault(Version[version], raw.replace(" ", "")) is reason


@pytest.mark.parametrize("kind", ["40", "50", "62", "70"])
def test_wrong_acknowledgements(kind: str) -> None:
    """[MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1] [MQTT-3.7.2-1]: reasons are those of the packet."""
    for version in Version:
        assert fault(version, f"{kind} 0000") is BREACH
        assert fault(version, f"{kind} 00") is MALFORMED
        assert fault(version, kind) is MALFORMED
    assert fault(V311, f"{kind} 0001 00") is MALFORMED
    assert fault(V31, f"{kind} 0001 00") is MALFORMED
    for code in ("01", "81", "92" if kind in ("40", "50") else "80", "ff"):
        assert fault(V5, f"{kind} 0001 {code}") is BREACH
    assert fault(V5, f"{kind} 0001 00 00 00") is MALFORMED
    assert fault(V5, f"{kind} 0001 00 02 0101") is MALFORMED
    assert fault(V5, f"{kind} 0001 00 04 1f0001") is MALFORMED


@pytest.mark.parametrize(
    ("version", "raw", "reason"),
    [
        pytest.param(V311, "82 0001", BREACH, id="MQTT-3.8.3-3 of 3.1.1, no filter"),
        pytest.param(V5, "82 0001 00", BREACH, id="MQTT-3.8.3-2 no filter"),
        pytest.param(V311, "82 0000 0001 61 00", BREACH, id="MQTT-2.3.1-1 of 3.1.1, packet id 0"),
        pytest.param(V5, "82 0000 00 0001 61 00", BREACH, id="MQTT-2.2.1-3 packet id 0"),
        pytest.param(V311, "82 0001 0001 61 03", BREACH, id="MQTT-3-8.3-4 of 3.1.1, QoS 3"),
        pytest.param(V31, "82 0001 0001 61 03", BREACH, id="3.1, QoS 3"),
        pytest.param(V311, "82 0001 0001 61 04", MALFORMED, id="MQTT-3-8.3-4 of 3.1.1, a reserved bit"),
        pytest.param(V311, "82 0001 0001 61 81", MALFORMED, id="MQTT-3-8.3-4 of 3.1.1, the highest bit"),
        pytest.param(V5, "82 0001 00 0001 61 03", BREACH, id="5.0 3.8.3.1 QoS 3"),
        pytest.param(V5, "82 0001 00 0001 61 30", BREACH, id="5.0 3.8.3.1 retain handling 3"),
        pytest.param(V5, "82 0001 00 0001 61 40", MALFORMED, id="MQTT-3.8.3-5 reserved bit 6"),
        pytest.param(V5, "82 0001 00 0001 61 80", MALFORMED, id="MQTT-3.8.3-5 reserved bit 7"),
        pytest.param(V5, "82 0001 00 000a 2473686172652f672f61 04", BREACH, id="MQTT-3.8.3-4 no local, shared"),
        pytest.param(V5, "82 0001 02 0b00 0001 61 00", BREACH, id="subscription id 0"),
        pytest.param(V311, "82 0001 0001 ff 00", MALFORMED, id="MQTT-3.8.3-1 a filter that is no UTF-8"),
        pytest.param(V311, "82 0001 0001 61", MALFORMED, id="a filter without its QoS"),
        pytest.param(V5, "82 0001 00 0001 61 00 00", MALFORMED, id="a byte left"),
        pytest.param(V311, "a2 0001", BREACH, id="MQTT-3.10.3-2 no filter"),
        pytest.param(V5, "a2 0001 00", BREACH, id="MQTT-3.10.3-2 no filter in 5.0"),
        pytest.param(V5, "a2 0000 00 000161", BREACH, id="MQTT-2.2.1-3 packet id 0 in an UNSUBSCRIBE"),
        pytest.param(V311, "a2 0001 0001ff", MALFORMED, id="MQTT-3.10.3-1 a filter that is no UTF-8"),
        pytest.param(V5, "a2 0001 02 0b01 000161", MALFORMED, id="a subscription id in an UNSUBSCRIBE"),
        pytest.param(V5, "a2 0001 00 000161 00", MALFORMED, id="half a length left"),
        pytest.param(V311, "90 0001", BREACH, id="a SUBACK without codes"),
        pytest.param(V311, "90 0001 03", BREACH, id="MQTT-3.9.3-2 of 3.1.1, code 3"),
        pytest.param(V311, "90 0001 87", BREACH, id="MQTT-3.9.3-2 of 3.1.1, a reason of 5.0"),
        pytest.param(V5, "90 0001 00", BREACH, id="a SUBACK without reasons"),
        pytest.param(V5, "90 0001 00 11", BREACH, id="MQTT-3.9.3-2 a reason of UNSUBACK"),
        pytest.param(V5, "b0 0001", MALFORMED, id="an UNSUBACK without properties"),
        pytest.param(V5, "b0 0001 00", BREACH, id="an UNSUBACK without reasons"),
        pytest.param(V5, "b0 0001 00 01", BREACH, id="MQTT-3.11.3-2 a reason of SUBACK"),
        pytest.param(V311, "b0 0001 00", MALFORMED, id="an UNSUBACK of 3.1.1 with a reason"),
        pytest.param(V311, "c0 00", MALFORMED, id="a PINGREQ with a body"),
        pytest.param(V5, "d0 00", MALFORMED, id="a PINGRESP with a body"),
        pytest.param(V311, "e0 00", MALFORMED, id="a DISCONNECT of 3.1.1 with a reason"),
        pytest.param(V5, "e0 01", BREACH, id="MQTT-3.14.2-1 a reason DISCONNECT has not"),
        pytest.param(V5, "e0 88", BREACH, id="MQTT-3.14.2-1 a reason of CONNACK"),
        pytest.param(V5, "e0 00 00 00", MALFORMED, id="bytes left after a DISCONNECT"),
        pytest.param(V5, "e0 00 03 210001", MALFORMED, id="a receive maximum in a DISCONNECT"),
        pytest.param(V5, "f0 01", BREACH, id="MQTT-3.15.2-1 a reason AUTH has not"),
        pytest.param(V311, "f0", MALFORMED, id="type 15 in 3.1.1"),
        pytest.param(V31, "f0", MALFORMED, id="type 15 in 3.1"),
        pytest.param(V31, "00", MALFORMED, id="type 0 in 3.1"),
        pytest.param(V311, "00", MALFORMED, id="type 0 in 3.1.1"),
        pytest.param(V5, "00", MALFORMED, id="type 0 in 5.0"),
    ],
)
def test_wrong_packets(version: Version, raw: str, reason: Reason) -> None:
    assert fault(version, raw) is reason


def test_3_1_does_not_look_at_the_unused_bits_of_a_requested_qos() -> None:
    assert read(V31, "8a 0001 0001 61 fd") == Subscribe(1, (Subscription("a", 1),))


def test_a_shared_subscription_without_no_local() -> None:
    packet = read(V5, "82 0001 00 000a 2473686172652f672f61 01")
    assert packet == Subscribe(1, (Subscription("$share/g/a", 1),))


def test_no_local_on_a_filter_that_is_not_shared() -> None:
    """[MQTT-3.8.3-4] is about shared subscriptions alone; `$share` without a slash is none."""
    for name in ("61", "247368617265"):
        packet = read(V5, f"82 0001 00 {len(name) // 2:04x} {name} 04")
        assert isinstance(packet, Subscribe)
        assert packet.subscriptions[0].no_local


def test_a_connect_is_read_by_its_own_version() -> None:
    connect = read(V5, "10 0004 4d515454 04 02 003c 0000")
    assert connect == Connect(V311, "", True, 60)


def test_the_payload_is_a_view_of_the_body() -> None:
    body = bytearray.fromhex("0001 61 0001 68 69")
    packet = decode_publish(V311, 0x32, memoryview(body))
    body[5] = ord("H")
    assert packet.payload == b"Hi"
    assert type(decode_publish(V311, 0x32, bytes(body)).payload) is memoryview


@pytest.mark.parametrize("size", [3, 253, 254, 255, 300, 65_535])
def test_topics_of_any_length(size: int) -> None:
    topic = "a" * size
    body = size.to_bytes(2, "big") + topic.encode()
    for _ in range(2):
        assert read_publish(V311, 0x30, body) == (topic, 0, b"", b"")
    for _ in range(2):
        with pytest.raises(PacketError) as caught:
            read_publish(V311, 0x30, body[:-1] + b"#")
        assert caught.value.reason is NAME


def test_the_parts_of_a_publish() -> None:
    body = bytes.fromhex("0001 61 0007 02 0101 68")
    assert read_publish(V5, 0x34, body) == ("a", 7, b"\1\1", b"h")
    assert read_publish(V5, 0x30, bytes.fromhex("0000 03 230001 68")) == ("", 0, b"\x23\0\1", b"h")
