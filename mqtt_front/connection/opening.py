"""Rules for a CONNECT: accepted client ids and limits, and the CONNACK. Pure functions."""

from __future__ import annotations

from typing import Final

from ringmq.mqtt_front.access.acl import Rights
from ringmq.mqtt_front.codec.packets import Connack, Connect, Properties, Version, Will
from ringmq.mqtt_front.codec.reasons import CONNACK_3, CONNACK_REASONS, Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.keep_alive import keep_alive_s
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import check_topic_name, is_of_the_server, is_state_of_a_bridge

LONGEST_V31_ID: Final = 23
"""Characters in a client id of MQTT 3.1, of which there must be one at least."""


_NEAREST: Final = {
    Reason.SERVER_SHUTTING_DOWN: Reason.SERVER_UNAVAILABLE,
    Reason.MAXIMUM_CONNECT_TIME: Reason.SERVER_BUSY,
    Reason.SESSION_TAKEN_OVER: Reason.SERVER_BUSY,
}
"""Reasons that only a DISCONNECT may have, and the nearest reason of a CONNACK."""


BRIDGE_BIT: Final = 0x80
"""A Mosquitto bridge sets it in the protocol level at first, and connects without it when it is refused."""


def version_of_refusal(level: int) -> Version:
    """The version in which a CONNECT of an unsupported level is refused: its client knows this version, too.

    A client of a version after 5.0 can be expected to read 5.0 (there [MQTT-3.1.2-2], reason 0x84). All others, bridges
    of Mosquitto among them, get return code 1 of 3.1.1 (there [MQTT-3.1.2-2]), as from Mosquitto.
    """
    return Version.V5 if Version.V5 < level < BRIDGE_BIT else Version.V311


def refusal(version: Version, reason: Reason) -> Connack | None:
    """The answer to a client that is not admitted; None if its version has no code for the reason."""
    if version is Version.V5:
        return Connack(False, reason if reason in CONNACK_REASONS else _NEAREST.get(reason, Reason.UNSPECIFIED_ERROR))
    return Connack(False, reason) if reason in CONNACK_3 else None


def check_connect(connect: Connect, config: FrontConfig) -> None:
    """Check the packet itself, before the access rules. Raises PacketError with the reason for the CONNACK."""
    if connect.version is Version.V31 and not 1 <= len(connect.client_id) <= LONGEST_V31_ID:
        raise PacketError(Reason.CLIENT_IDENTIFIER_NOT_VALID, f"3.1 has client ids of 1 to {LONGEST_V31_ID} characters")
    if not connect.client_id:
        if connect.version is Version.V311 and not connect.clean_start:  # [MQTT-3.1.3-8]
            raise PacketError(Reason.CLIENT_IDENTIFIER_NOT_VALID, "an empty client id asks for a session to be kept")
        if not config.allow_zero_length_client_id:
            raise PacketError(Reason.CLIENT_IDENTIFIER_NOT_VALID, "an empty client id is not allowed here")
    if connect.properties.authentication_method is not None:
        raise PacketError(Reason.BAD_AUTHENTICATION_METHOD, "there is no extended authentication here")
    if connect.will is not None:
        check_topic_name(connect.will.topic)


def allows_will(connect: Connect, rights: Rights) -> bool:
    """Whether the client may have the will of its CONNECT, if it has one."""
    will = connect.will
    if will is None or is_state_of_a_bridge(will.topic):
        return True
    return not is_of_the_server(will.topic) and rights.may_write(will.topic)


def will_of(connect: Connect) -> Will | None:
    """The will to publish. That of a bridge, about its state, is accepted and dropped: `$SYS` is the server's."""
    will = connect.will
    return None if will is None or is_state_of_a_bridge(will.topic) else will


def session_expiry_s(connect: Connect, config: FrontConfig) -> int:
    """How long the session outlives the connection."""
    if connect.version is Version.V5:
        return min(connect.properties.session_expiry_s or 0, config.max_session_expiry_s)
    return 0 if connect.clean_start else config.session_expiry_3_s


def connack(connect: Connect, config: FrontConfig, present: bool, client_id: str) -> Connack:
    """The answer to an admitted client: in 5.0 with all values that differ from the defaults."""
    if connect.version is not Version.V5:
        # The byte of the session-present flag is reserved in 3.1.
        return Connack(present and connect.version is Version.V311, Reason.SUCCESS)
    asked_s = connect.properties.session_expiry_s or 0
    expiry_s = session_expiry_s(connect, config)
    alive_s = keep_alive_s(connect, config)
    properties = Properties(
        session_expiry_s=expiry_s if expiry_s != asked_s else None,
        receive_maximum=config.receive_maximum,
        maximum_packet_size=config.max_packet_bytes,
        assigned_client_id=None if connect.client_id else client_id,
        topic_alias_maximum=config.topic_alias_maximum or None,
        server_keep_alive_s=alive_s if alive_s != connect.keep_alive_s else None,
    )
    return Connack(present, Reason.SUCCESS, properties)
