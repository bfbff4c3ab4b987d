"""What a CONNECT asks for and what it is told: client ids, sessions' expiry, keep-alive and the CONNACK, by version."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.codec.packets import Connect, Properties, Version, Will
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import NEVER_EXPIRES_S, FrontConfig
from ringmq.mqtt_front.connection.keep_alive import keep_alive_s
from ringmq.mqtt_front.connection.opening import check_connect, connack, session_expiry_s
from ringmq.mqtt_front.errors import PacketError

CONFIG = FrontConfig()


def connect(version: Version = Version.V5, client_id: str = "c", clean: bool = True, **properties: object) -> Connect:
    return Connect(version, client_id, clean, 0, properties=Properties(**properties))  # type: ignore[arg-type]


def refusal(packet: Connect, config: FrontConfig = CONFIG) -> Reason:
    with pytest.raises(PacketError) as caught:
        check_connect(packet, config)
    return caught.value.reason


# 3.1.1 [MQTT-3.1.3-5] · 5.0 [MQTT-3.1.3-5]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    "client_id", ["0", "abcdefghijklmnopqrstuvw", "ABCDEFGHIJKLMNOPQRSTUVW", "01234567890123456789012"]
)
def test_short_ids_of_letters_and_digits_will_do(version: Version, client_id: str) -> None:
    check_connect(connect(version, client_id), CONFIG)


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("client_id", ["x" * 24, "x" * 65535, "with space/and:signs", "grüße-Ωψ", "$SYS/#+"])
def test_other_ids_will_do_since_3_1_1(version: Version, client_id: str) -> None:
    check_connect(connect(version, client_id), CONFIG)


@pytest.mark.parametrize("client_id", ["", "x" * 24])
def test_ids_of_3_1_have_1_to_23_characters(client_id: str) -> None:
    assert refusal(connect(Version.V31, client_id)) is Reason.CLIENT_IDENTIFIER_NOT_VALID


# 3.1.1 [MQTT-3.1.3-8]
def test_an_empty_id_with_a_session_to_keep_is_refused_in_3_1_1() -> None:
    assert refusal(connect(Version.V311, "", clean=False)) is Reason.CLIENT_IDENTIFIER_NOT_VALID
    check_connect(connect(Version.V311, "", clean=True), CONFIG)
    check_connect(connect(Version.V5, "", clean=False), CONFIG)


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_empty_ids_can_be_forbidden(version: Version) -> None:
    strict = FrontConfig(allow_zero_length_client_id=False)
    assert refusal(connect(version, ""), strict) is Reason.CLIENT_IDENTIFIER_NOT_VALID
    check_connect(connect(version, "c"), strict)


# 5.0 [MQTT-4.12.0-1]
def test_there_is_no_extended_authentication() -> None:
    assert refusal(connect(authentication_method="SCRAM-SHA-1")) is Reason.BAD_AUTHENTICATION_METHOD


def test_a_will_needs_a_topic_name() -> None:
    assert refusal(Connect(Version.V5, "c", True, 0, Will("a/#", b"", 0, False))) is Reason.TOPIC_NAME_INVALID


@pytest.mark.parametrize(
    ("packet", "expiry_s"),
    [
        (connect(), 0),
        (connect(session_expiry_s=7), 7),
        (connect(session_expiry_s=500), 100),
        (connect(session_expiry_s=NEVER_EXPIRES_S), 100),
        (connect(Version.V311, clean=True), 0),
        (connect(Version.V311, clean=False), 50),
        (connect(Version.V31, clean=False), 50),
    ],
)
def test_how_long_a_session_is_kept(packet: Connect, expiry_s: int) -> None:
    assert session_expiry_s(packet, FrontConfig(max_session_expiry_s=100, session_expiry_3_s=50)) == expiry_s


# 5.0 [MQTT-3.2.2-22]
@pytest.mark.parametrize(
    ("version", "asked_s", "most_s", "used_s"),
    [
        (Version.V5, 60, 65535, 60),
        (Version.V5, 0, 65535, 0),
        (Version.V5, 60, 30, 30),
        (Version.V5, 20, 30, 20),
        (Version.V5, 0, 30, 30),
        (Version.V311, 60, 30, 60),
        (Version.V311, 0, 30, 0),
        (Version.V31, 60, 30, 60),
    ],
)
def test_the_keep_alive_in_force(version: Version, asked_s: int, most_s: int, used_s: int) -> None:
    config = FrontConfig(max_keep_alive_s=most_s)
    packet = Connect(version, "c", True, asked_s)
    assert keep_alive_s(packet, config) == used_s
    told_s = connack(packet, config, False, "c").properties.server_keep_alive_s
    assert told_s == (used_s if used_s != asked_s else None)


def test_the_connack_of_5_0_tells_the_limits() -> None:
    config = FrontConfig(
        receive_maximum=7, max_packet_bytes=9999, topic_alias_maximum=3, max_session_expiry_s=100, max_keep_alive_s=9
    )
    answer = connack(connect(client_id="", session_expiry_s=500), config, True, "given")
    assert answer.session_present
    assert answer.reason is Reason.SUCCESS
    assert answer.properties == Properties(
        receive_maximum=7,
        maximum_packet_size=9999,
        topic_alias_maximum=3,
        session_expiry_s=100,
        assigned_client_id="given",
        server_keep_alive_s=9,
    )


# 5.0 [MQTT-3.1.2-28] [MQTT-4.12.0-6]
def test_the_connack_has_nothing_that_need_not_be_said() -> None:
    config = FrontConfig(topic_alias_maximum=0)
    packet = connect(session_expiry_s=500, request_response_information=1, request_problem_information=0)
    limits = Properties(receive_maximum=config.receive_maximum, maximum_packet_size=config.max_packet_bytes)
    assert connack(packet, config, False, "c").properties == limits


@pytest.mark.parametrize(("version", "says_present"), [(Version.V31, False), (Version.V311, True)])
def test_the_connack_of_mqtt_3(version: Version, says_present: bool) -> None:
    answer = connack(connect(version), CONFIG, True, "c")
    assert answer.session_present is says_present
    assert answer.properties == Properties()
