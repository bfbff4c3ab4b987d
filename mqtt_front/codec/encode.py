"""Packets to bytes. Fields that a version does not have are left out: any packet can be encoded for any version.

Knows nothing of the receivers. Every decoded packet can be encoded; other values raise EncodeError if they do not fit
into their field, or the packet type does not have the reason. Otherwise the caller must make sure that the
specification allows the packet.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from ringmq.mqtt_front.codec.connect import connack_body, connect_body
from ringmq.mqtt_front.codec.fields import utf8, write_reason, write_string, write_u8, write_u16, write_varint
from ringmq.mqtt_front.codec.packets import (
    Auth,
    Buffer,
    Connack,
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
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.properties import encode_properties, with_length
from ringmq.mqtt_front.codec.reasons import (
    AUTH_REASONS,
    DISCONNECT_REASONS,
    PUBACK_REASONS,
    PUBREL_REASONS,
    SUBACK_3_FAILURE,
    SUBACK_REASONS,
    UNSUBACK_REASONS,
    Reason,
)
from ringmq.mqtt_front.errors import EncodeError

_V5: Final = Version.V5
_SHORT: Final = struct.Struct(">BBH")
_ACK_WITH_REASON: Final = struct.Struct(">BBHB")

PINGRESP: Final = bytes((Kind.PINGRESP << 4, 0))

_ACK_REASONS: Final[dict[int, dict[int, Reason]]] = {
    Kind.PUBACK: PUBACK_REASONS,
    Kind.PUBREC: PUBACK_REASONS,
    Kind.PUBREL: PUBREL_REASONS,
    Kind.PUBCOMP: PUBREL_REASONS,
}

_FIRST: Final = {
    kind: kind << 4 | (2 if kind in (Kind.PUBREL, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE) else 0) for kind in Kind
}


def encode(version: Version, packet: Packet) -> bytes:
    """The whole packet; a CONNECT is encoded by its own version, not by `version`. Raises EncodeError."""
    if isinstance(packet, Publish):
        topic = utf8(packet.topic)
        section = encode_properties(packet.properties) if version is _V5 else b""
        return encode_publish(
            version, topic, packet.payload, packet.qos, packet.retain, packet.dup, packet.packet_id, section
        )
    kind, body = _BODIES[type(packet)]
    written = body(version, packet)
    return b"".join((write_u8(_FIRST[kind]), write_varint(len(written)), written))


def encode_publish(
    version: Version,
    topic: bytes,
    payload: Buffer,
    qos: int = 0,
    retain: bool = False,
    dup: bool = False,
    packet_id: int = 0,
    properties: bytes = b"",
) -> bytes:
    """A whole PUBLISH. `topic` is UTF-8; `properties` is a section without its length, which MQTT 3 ignores.

    Raises EncodeError.
    """
    if qos:
        head, tail = encode_publish_parts(version, topic, payload, qos, retain, dup, properties)
        return b"".join((head, write_u16(packet_id), tail))
    section = b"" if version is not _V5 else with_length(properties) if properties else b"\0"
    size = len(topic)
    length = size + 2 + len(section) + len(payload)
    first = 0x31 if retain else 0x30
    return b"".join((_publish_head(first, length, size), topic, section, payload))


def encode_publish_parts(
    version: Version,
    topic: bytes,
    payload: Buffer,
    qos: int,
    retain: bool = False,
    dup: bool = False,
    properties: bytes = b"",
) -> tuple[bytes, bytes]:
    """A PUBLISH with QoS 1 or 2 without its packet id: the bytes before and after those two bytes.

    One encoding serves all receivers: append head, `packet_id.to_bytes(2, "big")` and tail to the outbox of each.
    Arguments and errors as for `encode_publish`.
    """
    section = b"" if version is not _V5 else with_length(properties) if properties else b"\0"
    size = len(topic)
    length = size + 4 + len(section) + len(payload)
    head = _publish_head(0x30 | dup << 3 | qos << 1 | retain, length, size) + topic
    return head, section + payload if section else bytes(payload)


def _publish_head(first: int, length: int, topic_bytes: int) -> bytes:
    # One call instead of four for the packets of most sensors, whose remaining length fits into a byte.
    if length < 0x80:
        return _SHORT.pack(first, length, topic_bytes)
    return b"".join((write_u8(first), write_varint(length), write_u16(topic_bytes)))


def encode_ack(kind: Kind, version: Version, packet_id: int, reason: Reason = Reason.SUCCESS) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP without properties; without the reason in MQTT 3. Raises EncodeError."""
    try:
        # A reason of 0 is left out (§3.4.2.1): two bytes less, and the same packet for all versions.
        if reason and version is _V5:
            write_reason(reason, _ACK_REASONS[kind])
            return _ACK_WITH_REASON.pack(_FIRST[kind], 3, packet_id, reason)
        return _SHORT.pack(_FIRST[kind], 2, packet_id)
    except struct.error:
        raise EncodeError(f"packet id must be 0 to 65535, got {packet_id}") from None


def _outcome(reason: Reason, known: dict[int, Reason], properties: Properties) -> bytes:
    """Reason and properties in their shortest form."""
    code, section = write_reason(reason, known), encode_properties(properties)
    if section:
        return code + with_length(section)
    return code if reason else b""


def _acknowledgement(kind: Kind) -> Callable[[Version, Puback | Pubrec | Pubrel | Pubcomp], bytes]:
    known = _ACK_REASONS[kind]

    def encode_acknowledgement(version: Version, packet: Puback | Pubrec | Pubrel | Pubcomp) -> bytes:
        head = write_u16(packet.packet_id)
        return head + _outcome(packet.reason, known, packet.properties) if version is _V5 else head

    return encode_acknowledgement


def _identified(version: Version, packet: Subscribe | Suback | Unsubscribe | Unsuback) -> bytes:
    """The beginning of these packets: the packet id and, in 5.0, the properties."""
    head = write_u16(packet.packet_id)
    return head + with_length(encode_properties(packet.properties)) if version is _V5 else head


def _options(version: Version, subscription: Subscription) -> int:
    if version is not _V5:
        return subscription.qos
    flags = subscription.no_local << 2 | subscription.retain_as_published << 3
    return subscription.qos | flags | subscription.retain_handling << 4


def _subscribe(version: Version, packet: Subscribe) -> bytes:
    written = [write_string(entry.filter) + write_u8(_options(version, entry)) for entry in packet.subscriptions]
    return _identified(version, packet) + b"".join(written)


def _suback(version: Version, packet: Suback) -> bytes:
    # MQTT 3.1 has no failure code. Its clients get 0x80 of 3.1.1 nevertheless, rather than a false success.
    if version is not _V5:
        return _identified(version, packet) + bytes([min(reason, SUBACK_3_FAILURE) for reason in packet.reasons])
    return _identified(version, packet) + b"".join([write_reason(reason, SUBACK_REASONS) for reason in packet.reasons])


def _unsubscribe(version: Version, packet: Unsubscribe) -> bytes:
    return _identified(version, packet) + b"".join([write_string(text) for text in packet.filters])


def _unsuback(version: Version, packet: Unsuback) -> bytes:
    reasons = packet.reasons if version is _V5 else ()
    return _identified(version, packet) + b"".join([write_reason(reason, UNSUBACK_REASONS) for reason in reasons])


def _empty(version: Version, packet: Pingreq | Pingresp) -> bytes:
    return b""


def _disconnect(version: Version, packet: Disconnect) -> bytes:
    return _outcome(packet.reason, DISCONNECT_REASONS, packet.properties) if version is _V5 else b""


def _auth(version: Version, packet: Auth) -> bytes:
    if version is not _V5:
        raise EncodeError("MQTT 3 has no AUTH")
    return _outcome(packet.reason, AUTH_REASONS, packet.properties)


def _connect(version: Version, packet: Connect) -> bytes:
    return connect_body(packet)


_BODIES: Final[dict[type[Packet], tuple[Kind, Callable[..., bytes]]]] = {
    Connect: (Kind.CONNECT, _connect),
    Connack: (Kind.CONNACK, connack_body),
    Puback: (Kind.PUBACK, _acknowledgement(Kind.PUBACK)),
    Pubrec: (Kind.PUBREC, _acknowledgement(Kind.PUBREC)),
    Pubrel: (Kind.PUBREL, _acknowledgement(Kind.PUBREL)),
    Pubcomp: (Kind.PUBCOMP, _acknowledgement(Kind.PUBCOMP)),
    Subscribe: (Kind.SUBSCRIBE, _subscribe),
    Suback: (Kind.SUBACK, _suback),
    Unsubscribe: (Kind.UNSUBSCRIBE, _unsubscribe),
    Unsuback: (Kind.UNSUBACK, _unsuback),
    Pingreq: (Kind.PINGREQ, _empty),
    Pingresp: (Kind.PINGRESP, _empty),
    Disconnect: (Kind.DISCONNECT, _disconnect),
    Auth: (Kind.AUTH, _auth),
}
