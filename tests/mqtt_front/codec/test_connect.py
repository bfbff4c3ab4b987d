"""CONNECT and CONNACK, by the tables of §3.1 and §3.2 of each version."""

import pytest

from ringmq.mqtt_front.codec.connect import connack_body, connect_body, decode_connack, decode_connect
from ringmq.mqtt_front.codec.packets import Connack, Connect, Properties, Version, Will
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import EncodeError, PacketError, UnsupportedVersionError

V31, V311, V5 = Version
MALFORMED, BREACH = Reason.MALFORMED_PACKET, Reason.PROTOCOL_ERROR
HEADS = {V31: "0006 4d5149736470 03", V311: "0004 4d515454 04", V5: "0004 4d515454 05"}


def body(version: Version, flags: str, payload: str) -> bytes:
    """With a keep alive of 10 s, and the properties left out where 5.0 wants them first."""
    return bytes.fromhex(f"{HEADS[version]} {flags} 000a {'00' if version is V5 else ''} {payload}")


def reason_of(raw: bytes, first: int = 0x10) -> Reason:
    with pytest.raises(PacketError) as caught:
        decode_connect(first, raw)
    return caught.value.reason


@pytest.mark.parametrize("version", Version)
def test_a_connect_with_everything(version: Version) -> None:
    """The payload in its order, [MQTT-3.1.3-1]; flags and fields agree, [MQTT-3.1.2-9] [MQTT-3.1.2-17] [-19]."""
    will_properties = "05 18 00000007" if version is V5 else ""
    raw = body(version, "ee", f"0001 63 {will_properties} 0003 612f62 0002 00ff 0001 75 0002 00fe")
    properties = Properties(will_delay_s=7) if version is V5 else Properties()
    connect = Connect(version, "c", True, 10, Will("a/b", b"\0\xff", 1, True, properties), "u", b"\0\xfe")
    assert decode_connect(0x10, raw) == decode_connect(0x10, memoryview(raw)) == connect
    assert connect_body(connect) == raw


@pytest.mark.parametrize("version", Version)
def test_a_connect_with_as_little_as_possible(version: Version) -> None:
    """No user name, password or will where their flags are 0, [MQTT-3.1.2-16] [MQTT-3.1.2-18]; an empty client id."""
    connect = Connect(version, "", False, 10)
    assert decode_connect(0x10, body(version, "00", "0000")) == connect
    assert connect_body(connect) == body(version, "00", "0000")


def test_the_properties_of_a_connect() -> None:
    """The example of figure 3-6 of 5.0: a session expiry of 10 s."""
    raw = bytes.fromhex("0004 4d515454 05 ce 000a 05 11 0000000a 0000 00 000161 0000 0000 0000")
    connect = decode_connect(0x10, raw)
    assert connect.properties == Properties(session_expiry_s=10)
    assert connect.will == Will("a", b"", 1, False)
    assert connect_body(connect) == raw


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param("0004 4d515455 04 00 000a 0000", id="MQTU"),
        pytest.param("0004 6d717474 05 00 000a 00 0000", id="mqtt in small letters"),
        pytest.param("0006 4d5149736470 ", id="nothing after the name"),
        pytest.param("0000 04", id="an empty name"),
        pytest.param("0004 4d5154ff 04", id="a name that is no UTF-8"),
        pytest.param("0004 4d5154", id="half a name"),
    ],
)
def test_another_protocol_is_malformed(raw: str) -> None:
    """[MQTT-3.1.2-1]."""
    assert reason_of(bytes.fromhex(raw)) is MALFORMED


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("0004 4d515454", 0),
        ("0004 4d515454", 3),
        ("0004 4d515454", 6),
        ("0006 4d5149736470", 4),
        ("0004 4d515454", 0x84),
    ],
)
def test_a_level_we_do_not_speak_can_be_answered(name: str, level: int) -> None:
    """[MQTT-3.1.2-2]; whatever comes after the level, as it is not ours to read."""
    for rest in (b"", b"\xff\xff", bytes(20)):
        with pytest.raises(UnsupportedVersionError) as caught:
            decode_connect(0x10, bytes.fromhex(name) + bytes((level,)) + rest)
        assert caught.value.level == level
        assert caught.value.reason is Reason.UNSUPPORTED_PROTOCOL_VERSION


FLAGS = [
    pytest.param("01", "0000", "V311 V5", id="MQTT-3.1.2-3 the reserved flag"),
    pytest.param("08", "0000", "V311 V5", id="MQTT-3.1.2-11 a will QoS without a will"),
    pytest.param("10", "0000", "V311 V5", id="MQTT-3.1.2-11 a will QoS of 2 without a will"),
    pytest.param("20", "0000", "V311 V5", id="MQTT-3.1.2-13 will retain without a will"),
    pytest.param("1c", "0000 0001 61 0000", "V31 V311", id="MQTT-3.1.2-14 of 3.1.1, a will QoS of 3"),
    pytest.param("1c", "0000 00 0001 61 0000", "V5", id="MQTT-3.1.2-12 a will QoS of 3"),
    pytest.param("40", "0000 0000", "V31 V311", id="MQTT-3.1.2-22 of 3.1.1, a password without a user name"),
    pytest.param("04", "0000", "V31 V311 V5", id="MQTT-3.1.2-9 no will where the flag says one"),
    pytest.param("04", "0000 00 0001 61", "V5", id="MQTT-3.1.2-9 no will payload"),
    pytest.param("04", "0000 0001 61", "V31 V311", id="MQTT-3.1.2-9 of 3.1.1, no will message"),
    pytest.param("80", "0000", "V311 V5", id="MQTT-3.1.2-17 no user name where the flag says one"),
    pytest.param("c0", "0000 0000", "V311 V5", id="MQTT-3.1.2-19 no password where the flag says one"),
    pytest.param("00", "0000 0000", "V31 V311 V5", id="MQTT-3.1.2-16 a user name where the flag says none"),
    pytest.param("80", "0000 0000 0000", "V31 V311 V5", id="MQTT-3.1.2-18 a password where the flag says none"),
    pytest.param("00", "", "V31 V311 V5", id="MQTT-3.1.3-3 no client id"),
    pytest.param("00", "0001 ff", "V31 V311 V5", id="MQTT-3.1.3-4 a client id that is no UTF-8"),
    pytest.param("00", "0001 00", "V31 V311 V5", id="MQTT-1.5.4-2 a null character in the client id"),
    pytest.param("04", "0000 0001 ff 0000", "V31 V311", id="MQTT-3.1.3-10 of 3.1.1, a will topic that is no UTF-8"),
    pytest.param("04", "0000 00 0001 ff 0000", "V5", id="MQTT-3.1.3-11 a will topic that is no UTF-8"),
    pytest.param("80", "0000 0001 ff", "V31 V311 V5", id="MQTT-3.1.3-12 a user name that is no UTF-8"),
]


@pytest.mark.parametrize(("flags", "payload", "versions"), FLAGS)
def test_flags_and_payload_that_do_not_agree_are_malformed(flags: str, payload: str, versions: str) -> None:
    """[MQTT-3.1.4-1]: such a CONNECT closes the connection."""
    for version in versions.split():
        assert reason_of(body(Version[version], flags, payload)) is MALFORMED


@pytest.mark.parametrize("flags", range(1, 16))
def test_the_fixed_header_of_a_connect_has_no_flags(flags: int) -> None:
    """[MQTT-2.1.3-1], 3.1.1 [MQTT-2.2.2-2]; 3.1 does not use them."""
    assert reason_of(body(V311, "00", "0000"), 0x10 | flags) is MALFORMED
    assert reason_of(body(V5, "00", "0000"), 0x10 | flags) is MALFORMED
    assert decode_connect(0x10 | flags, body(V31, "00", "0000")) == Connect(V31, "", False, 10)


def test_5_0_allows_a_password_alone() -> None:
    """§3.1.2.9: unlike 3.1.1, where [MQTT-3.1.2-22] forbids it."""
    connect = decode_connect(0x10, body(V5, "40", "0000 0001 70"))
    assert (connect.user_name, connect.password) == (None, b"p")


@pytest.mark.parametrize("flags", ["01", "08", "18", "20"])
def test_3_1_ignores_unused_flags(flags: str) -> None:
    assert decode_connect(0x10, body(V31, flags, "0000")) == Connect(V31, "", False, 10)


def test_in_3_1_the_remaining_length_takes_precedence_over_the_flags() -> None:
    """3.1 §3.1: a user name or password may be missing although its flag is set."""
    for flags, payload, user_name in (("80", "0000", None), ("c0", "0000", None), ("c0", "0000 0001 75", "u")):
        connect = decode_connect(0x10, body(V31, flags, payload))
        assert (connect.user_name, connect.password) == (user_name, None)
    assert reason_of(body(V31, "80", "0000 00")) is MALFORMED


@pytest.mark.parametrize("topic", ["0000", "0001 2b", "0003 612f23"])
def test_a_will_goes_to_a_topic_name(topic: str) -> None:
    """[MQTT-4.7.3-1] [MQTT-4.7.0-1]."""
    for version in Version:
        properties = "00" if version is V5 else ""
        assert reason_of(body(version, "04", f"0000 {properties} {topic} 0000")) is Reason.TOPIC_NAME_INVALID


@pytest.mark.parametrize("version", Version)
def test_a_connect_that_ends_early_or_late_is_malformed(version: Version) -> None:
    properties = Properties(session_expiry_s=1, user_properties=(("a", "b"),)) if version is V5 else Properties()
    raw = connect_body(Connect(version, "cid", True, 1, Will("t", b"p", 2, False), "user", b"pass", properties))
    assert decode_connect(0x10, raw).user_name == "user"
    lenient = {len(raw) - 6, len(raw) - 12} if version is V31 else set[int]()
    for size in set(range(len(raw))) - lenient:
        assert reason_of(raw[:size]) is MALFORMED, size
    assert reason_of(raw + b"\0") is MALFORMED


def test_a_fault_in_the_properties_has_its_reason() -> None:
    assert reason_of(bytes.fromhex(f"{HEADS[V5]} 00 000a 03 210000 0000")) is BREACH
    assert reason_of(bytes.fromhex(f"{HEADS[V5]} 00 000a 02 2401 0000")) is MALFORMED
    assert reason_of(bytes.fromhex(f"{HEADS[V5]} 04 000a 00 0000 02 2401 0001 61 0000")) is MALFORMED


@pytest.mark.parametrize("code", range(6))
def test_return_codes_of_3(code: int) -> None:
    """3.1.1 table 3.1."""
    for version in (V31, V311):
        connack = decode_connack(version, bytes((0, code)))
        assert connack_body(version, connack) == bytes((0, code))
    with pytest.raises(PacketError):
        decode_connack(V311, b"\0\x06")


def test_a_session_present() -> None:
    """3.1 does not have it: its byte is reserved, and written as 0."""
    present = Connack(True, Reason.SUCCESS)
    assert connack_body(V311, present) == b"\1\0"
    assert connack_body(V5, present) == b"\1\0\0"
    assert connack_body(V31, present) == b"\0\0"
    assert decode_connack(V311, b"\1\0") == decode_connack(V5, b"\1\0\0") == present
    assert decode_connack(V31, b"\xff\0") == Connack(False, Reason.SUCCESS)


@pytest.mark.parametrize(
    ("version", "raw", "reason"),
    [
        pytest.param(V311, "0200", MALFORMED, id="MQTT-3.2.2-1 reserved flags"),
        pytest.param(V5, "800000", MALFORMED, id="MQTT-3.2.2-1 reserved flags in 5.0"),
        pytest.param(V311, "0105", BREACH, id="MQTT-3.2.2-4 of 3.1.1, a refusal with a session"),
        pytest.param(V5, "018700", BREACH, id="MQTT-3.2.2-6 a refusal with a session"),
        pytest.param(V5, "000100", BREACH, id="MQTT-3.2.2-8 return code 1"),
        pytest.param(V5, "008b00", BREACH, id="MQTT-3.2.2-8 a reason of DISCONNECT"),
        pytest.param(V5, "0000", MALFORMED, id="no properties"),
        pytest.param(V311, "00", MALFORMED, id="no code"),
        pytest.param(V311, "000000", MALFORMED, id="bytes left"),
        pytest.param(V5, "00000000", MALFORMED, id="bytes left in 5.0"),
    ],
)
def test_a_wrong_connack(version: Version, raw: str, reason: Reason) -> None:
    with pytest.raises(PacketError) as caught:
        decode_connack(version, bytes.fromhex(raw))
    assert caught.value.reason is reason


def test_a_reason_a_connack_has_not_is_our_own_mistake() -> None:
    """[MQTT-3.2.2-8]; in MQTT 3 the connection just closes, 3.1.1 [MQTT-3.2.2-6]."""
    with pytest.raises(EncodeError):
        connack_body(V5, Connack(False, Reason.SERVER_SHUTTING_DOWN))
    with pytest.raises(EncodeError, match="close"):
        connack_body(V311, Connack(False, Reason.QUOTA_EXCEEDED))
    assert connack_body(V311, Connack(False, Reason.SERVER_SHUTTING_DOWN)) == b"\0\3"
