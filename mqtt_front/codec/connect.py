"""Reads and writes CONNECT and CONNACK, the packets that do not depend on the version of their connection alone.

A CONNECT contains its version, and a CONNACK of MQTT 3 has its own return codes. Knows nothing about sessions, which
decide on client ids, nor about access rules.
"""

from __future__ import annotations

from typing import Final

from ringmq.mqtt_front.codec.fields import (
    read_binary,
    read_string,
    read_u8,
    read_u16,
    reason_of,
    write_binary,
    write_reason,
    write_string,
    write_u16,
)
from ringmq.mqtt_front.codec.packets import NO_PROPERTIES, Buffer, Connack, Connect, Kind, Version, Will
from ringmq.mqtt_front.codec.properties import WILL, encode_properties, read_properties, with_length
from ringmq.mqtt_front.codec.reasons import CONNACK_3, CONNACK_REASONS, Reason
from ringmq.mqtt_front.errors import EncodeError, MalformedPacketError, ProtocolBreachError, UnsupportedVersionError
from ringmq.mqtt_front.matching.topics import check_topic_name

_NAMES: Final = {Version.V31: "MQIsdp", Version.V311: "MQTT", Version.V5: "MQTT"}
_VERSIONS: Final = {(name, int(version)): version for version, name in _NAMES.items()}

# The flags of a CONNECT (§3.1.2.3).
_RESERVED: Final = 0x01
_CLEAN_START: Final = 0x02
_WILL_FLAG: Final = 0x04
_WILL_QOS: Final = 0x18
_WILL_RETAIN: Final = 0x20
_PASSWORD: Final = 0x40
_USER_NAME: Final = 0x80

_RETURN_CODES_3: Final = {
    0: Reason.SUCCESS,
    1: Reason.UNSUPPORTED_PROTOCOL_VERSION,
    2: Reason.CLIENT_IDENTIFIER_NOT_VALID,
    3: Reason.SERVER_UNAVAILABLE,
    4: Reason.BAD_USER_NAME_OR_PASSWORD,
    5: Reason.NOT_AUTHORIZED,
}


def decode_connect(first: int, body: Buffer) -> Connect:
    """The first packet of a client, in any version.

    Raises PacketError; UnsupportedVersionError if it is MQTT with an unsupported protocol level, which may be answered
    with a CONNACK (5.0 §3.1.2.2). MQTT 3 leaves all other errors unanswered.
    """
    version, at = _read_version(body)
    if first & 0x0F and version is not Version.V31:  # [MQTT-2.1.3-1]; in 3.1 they are unused
        raise MalformedPacketError("flags in the fixed header of a CONNECT must be 0")
    flags, at = read_u8(body, at)
    _check_flags(version, flags)
    keep_alive_s, at = read_u16(body, at)
    properties = NO_PROPERTIES
    if version is Version.V5:
        properties, at = read_properties(Kind.CONNECT, body, at)
    client_id, at = read_string(body, at)
    will = None
    if flags & _WILL_FLAG:
        will, at = _read_will(version, flags, body, at)
    user_name, password, at = _read_credentials(version, flags, body, at)
    if at != len(body):
        raise MalformedPacketError("extra bytes after a CONNECT")
    clean_start = bool(flags & _CLEAN_START)
    return Connect(version, client_id, clean_start, keep_alive_s, will, user_name, password, properties)


def _read_version(body: Buffer) -> tuple[Version, int]:
    name, at = read_string(body, 0)
    if name not in _NAMES.values():  # [MQTT-3.1.2-1]: an unknown protocol gets no MQTT packet as an answer
        raise MalformedPacketError("the protocol is not MQTT")
    level, at = read_u8(body, at)
    version = _VERSIONS.get((name, level))
    if version is None:  # [MQTT-3.1.2-2]
        raise UnsupportedVersionError(level)
    return version, at


def _check_flags(version: Version, flags: int) -> None:
    if flags & _WILL_FLAG:
        if flags & _WILL_QOS == _WILL_QOS:  # [MQTT-3.1.2-12], 3.1.1 [MQTT-3.1.2-14]
            raise MalformedPacketError("the will QoS must be 0 to 2, got 3")
    elif flags & (_WILL_QOS | _WILL_RETAIN) and version is not Version.V31:  # 3.1 ignores them
        # [MQTT-3.1.2-11] [MQTT-3.1.2-13], 3.1.1 [MQTT-3.1.2-13] [MQTT-3.1.2-15]
        raise MalformedPacketError("will QoS or will retain set without a will")
    if flags & _RESERVED and version is not Version.V31:  # [MQTT-3.1.2-3]; in 3.1 it is unused
        raise MalformedPacketError("the reserved flag of a CONNECT is set")
    if flags & _PASSWORD and not flags & _USER_NAME and version is not Version.V5:  # 3.1.1 [MQTT-3.1.2-22]
        raise MalformedPacketError("a password without a user name")


def _read_will(version: Version, flags: int, body: Buffer, at: int) -> tuple[Will, int]:
    properties = NO_PROPERTIES
    if version is Version.V5:
        properties, at = read_properties(WILL, body, at)
    topic, at = read_string(body, at)
    check_topic_name(topic)
    payload, at = read_binary(body, at)
    return Will(topic, payload, (flags & _WILL_QOS) >> 3, bool(flags & _WILL_RETAIN), properties), at


def _read_credentials(version: Version, flags: int, body: Buffer, at: int) -> tuple[str | None, bytes | None, int]:
    user_name = password = None
    # MQTT 3.1 (§3.1) gives the remaining length precedence over these flags: a CONNECT may end before the fields.
    lenient = version is Version.V31
    if flags & _USER_NAME and not (lenient and at == len(body)):
        user_name, at = read_string(body, at)
    if flags & _PASSWORD and not (lenient and at == len(body)):
        password, at = read_binary(body, at)
    return user_name, password, at


def decode_connack(version: Version, body: Buffer) -> Connack:
    flags, at = read_u8(body, 0)
    if version is Version.V31:  # MQTT 3.1 reserves the byte.
        flags = 0
    if flags > 1:  # [MQTT-3.2.2-1]: bits 7 to 1 must be 0
        raise MalformedPacketError("reserved flags of a CONNACK are set")
    code, at = read_u8(body, at)
    reason = reason_of(code, CONNACK_REASONS if version is Version.V5 else _RETURN_CODES_3)
    if flags and reason is not Reason.SUCCESS:  # [MQTT-3.2.2-6], 3.1.1 [MQTT-3.2.2-4]
        raise ProtocolBreachError("session present in a CONNACK that refuses")
    properties = NO_PROPERTIES
    if version is Version.V5:
        properties, at = read_properties(Kind.CONNACK, body, at)
    if at != len(body):
        raise MalformedPacketError("extra bytes after a CONNACK")
    return Connack(bool(flags), reason, properties)


def connect_body(packet: Connect) -> bytes:
    """A CONNECT without its fixed header."""
    version, will = packet.version, packet.will
    flags = _CLEAN_START if packet.clean_start else 0
    if will is not None:
        flags |= _WILL_FLAG | will.qos << 3 | (_WILL_RETAIN if will.retain else 0)
    if packet.user_name is not None:
        flags |= _USER_NAME
    if packet.password is not None:
        flags |= _PASSWORD
    parts = [write_string(_NAMES[version]), bytes((version, flags)), write_u16(packet.keep_alive_s)]
    if version is Version.V5:
        parts.append(with_length(encode_properties(packet.properties)))
    parts.append(write_string(packet.client_id))
    if will is not None:
        if version is Version.V5:
            parts.append(with_length(encode_properties(will.properties)))
        parts += (write_string(will.topic), write_binary(will.payload))
    if packet.user_name is not None:
        parts.append(write_string(packet.user_name))
    if packet.password is not None:
        parts.append(write_binary(packet.password))
    return b"".join(parts)


def connack_body(version: Version, packet: Connack) -> bytes:
    """A CONNACK without its fixed header. Raises EncodeError for a reason that this version does not have."""
    if version is Version.V5:
        head = bytes((packet.session_present,)) + write_reason(packet.reason, CONNACK_REASONS)
        return head + with_length(encode_properties(packet.properties))
    # MQTT 3 closes without a CONNACK where it has no return code (3.1.1 §3.2.2.3, [MQTT-3.2.2-6]).
    code = CONNACK_3.get(packet.reason)
    if code is None:
        raise EncodeError(f"MQTT 3 has no return code for {packet.reason.name}: close without a CONNACK")
    return bytes((packet.session_present and version is not Version.V31, code))
