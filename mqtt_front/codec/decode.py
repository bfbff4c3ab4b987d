"""Bytes to packets: strictly decodes the packets of clients and servers.

Takes the body of a whole packet from `framing.PacketReader`. Does not know when a packet may be sent, or by which
side: the session checks that. Nor does it know which well-formed filters are accepted, which the SUBACK tells.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from ringmq.mqtt_front.codec.connect import decode_connack, decode_connect
from ringmq.mqtt_front.codec.fields import ends_early, read_string, read_u8, read_u16, reason_of, text_of
from ringmq.mqtt_front.codec.packets import (
    NO_PROPERTIES,
    Auth,
    Buffer,
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
from ringmq.mqtt_front.codec.properties import decode_properties, read_properties, section_at
from ringmq.mqtt_front.codec.reasons import (
    AUTH_REASONS,
    DISCONNECT_REASONS,
    PUBACK_REASONS,
    PUBREL_REASONS,
    SUBACK_3,
    SUBACK_REASONS,
    UNSUBACK_REASONS,
    Reason,
)
from ringmq.mqtt_front.errors import MalformedPacketError, ProtocolBreachError
from ringmq.mqtt_front.matching.topics import check_form, check_topic_name

_V31, _V5 = Version.V31, Version.V5
_CONNECT, _PUBLISH = int(Kind.CONNECT), int(Kind.PUBLISH)
_REMEMBERED: Final = 4096
_REMEMBERED_BYTES: Final = 256
"""Clients publish to the same topics over and over: a topic that was checked is not checked again, and is the same str,
so that a dict finds it without comparing characters. Both bounds together limit this cache to a few MB."""
_RETAIN_HANDLING: Final = tuple(RetainHandling)


def decode(version: Version, first: int, body: Buffer) -> Packet:
    """The packet with this first byte and body. A CONNECT is decoded by its own version, not by `version`.

    The payload of a PUBLISH is a view of `body`: copy it to keep it. Raises PacketError.
    """
    kind = first >> 4
    if kind == _PUBLISH:
        return decode_publish(version, first, body)
    if kind == _CONNECT:
        return decode_connect(first, body)
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise MalformedPacketError(f"packet type {kind} is reserved")
    if first & 0x0F != _FLAGS.get(kind, 0) and version is not _V31:
        # [MQTT-2.1.3-1], 3.1.1 [MQTT-2.2.2-2]. In 3.1 they are unused, and its clients do set DUP in a SUBSCRIBE.
        raise MalformedPacketError(f"flags of packet type {kind} must be {_FLAGS.get(kind, 0)}, got {first & 0x0F}")
    return decoder(version, body)


def read_publish(version: Version, first: int, body: Buffer) -> tuple[str, int, Buffer, memoryview]:
    """Topic, packet id (0 for QoS 0), property section and payload of a PUBLISH, checked except for the properties.

    If the topic is empty, the caller must check that the property section has a topic alias. QoS, retain and DUP are
    `first >> 1 & 3`, `first & 1` and `first & 8`. Raises PacketError.
    """
    qos = first & 6
    if qos == 6:  # [MQTT-3.3.1-4]
        raise MalformedPacketError("the QoS of a PUBLISH must be 0 to 2, got 3")
    view = body if type(body) is memoryview else memoryview(body)
    size = len(view)
    if size < 2:
        raise ends_early()
    at = 2 + (view[0] << 8 | view[1])
    if at > size:
        raise ends_early()
    topic = ""
    if at > 2 or version is not _V5:
        name = view[2:at].tobytes()  # Takes half the time of bytes(view[2:at]).
        topic = _topic_remembered(name) if at <= _REMEMBERED_BYTES else _topic(name)
    packet_id = 0
    if qos:
        packet_id, at = _read_packet_id(view, at)
    elif first & 8:  # [MQTT-3.3.1-2]
        raise MalformedPacketError("DUP set in a PUBLISH with QoS 0")
    section: Buffer = b""
    if version is _V5:
        # Most sections are empty, and a length of 0 needs no call.
        if at < size and view[at] == 0:
            at += 1
        else:
            start, at = section_at(view, at)
            section = view[start:at]
        if not topic and not section:  # §3.3.2.1
            raise ProtocolBreachError("a PUBLISH without a topic and a topic alias")
    return topic, packet_id, section, view[at:]


def _topic(name: bytes) -> str:
    topic = text_of(name)
    check_topic_name(topic)
    return topic


_topic_remembered = lru_cache(_REMEMBERED)(_topic)


def forget_topics() -> None:
    """Clear the cache of topics."""
    _topic_remembered.cache_clear()


def decode_publish(version: Version, first: int, body: Buffer) -> Publish:
    """Does the same as `decode`, for the first byte of a PUBLISH."""
    topic, packet_id, section, payload = read_publish(version, first, body)
    properties = NO_PROPERTIES
    if section:
        properties = decode_properties(Kind.PUBLISH, section)
        if not topic and properties.topic_alias is None:
            raise ProtocolBreachError("a PUBLISH without a topic and a topic alias")
    return Publish(topic, payload, first >> 1 & 3, first & 1 != 0, first & 8 != 0, packet_id, properties)


def _read_packet_id(body: Buffer, at: int) -> tuple[int, int]:
    packet_id, at = read_u16(body, at)
    if packet_id == 0:  # [MQTT-2.2.1-3], 3.1.1 [MQTT-2.3.1-1]
        raise ProtocolBreachError("the packet id must not be 0")
    return packet_id, at


def _at_end(body: Buffer, at: int) -> None:
    if at != len(body):
        raise MalformedPacketError("extra bytes after the packet")


def _read_outcome(kind: Kind, known: dict[int, Reason], body: Buffer, at: int) -> tuple[Reason, Properties]:
    """Reason and properties at the end of a packet; both, or the properties, may be absent (§3.4.2.1, §3.14.2.1)."""
    size = len(body)
    if at == size:
        return Reason.SUCCESS, NO_PROPERTIES
    reason = reason_of(body[at], known)
    at += 1
    if at == size:
        return reason, NO_PROPERTIES
    properties, at = read_properties(kind, body, at)
    _at_end(body, at)
    return reason, properties


def _acknowledgement(
    kind: Kind, make: Callable[[int, Reason, Properties], Packet], known: dict[int, Reason]
) -> Callable[[Version, Buffer], Packet]:
    def decode_acknowledgement(version: Version, body: Buffer) -> Packet:
        packet_id, at = _read_packet_id(body, 0)
        if version is _V5 and at < len(body):
            return make(packet_id, *_read_outcome(kind, known, body, at))
        _at_end(body, at)
        return make(packet_id, Reason.SUCCESS, NO_PROPERTIES)

    return decode_acknowledgement


def _subscribe(version: Version, body: Buffer) -> Subscribe:
    packet_id, at = _read_packet_id(body, 0)
    properties = NO_PROPERTIES
    if version is _V5:
        properties, at = read_properties(Kind.SUBSCRIBE, body, at)
    if at == len(body):  # [MQTT-3.8.3-2], 3.1.1 [MQTT-3.8.3-3]
        raise ProtocolBreachError("a SUBSCRIBE without a topic filter")
    subscriptions = []
    while at < len(body):
        subscription, at = _read_subscription(version, body, at)
        subscriptions.append(subscription)
    return Subscribe(packet_id, tuple(subscriptions), properties)


def _read_filter(version: Version, body: Buffer, at: int) -> tuple[str, int]:
    text, at = read_string(body, at)
    check_form(text, version is _V5)
    return text, at


def _read_subscription(version: Version, body: Buffer, at: int) -> tuple[Subscription, int]:
    text, at = _read_filter(version, body, at)
    options, at = read_u8(body, at)
    if version is not _V5:
        if version is not _V31 and options & 0xFC:  # 3.1.1 [MQTT-3-8.3-4]; in 3.1 they are unused
            raise MalformedPacketError("reserved bits of a requested QoS are set")
        options &= 3
    if options & 0xC0:  # [MQTT-3.8.3-5]
        raise MalformedPacketError("reserved subscription options are set")
    qos, retain_handling = options & 3, options >> 4 & 3
    if qos == 3 or retain_handling == 3:  # §3.8.3.1
        raise ProtocolBreachError("QoS and retain handling of a subscription must be 0 to 2, got 3")
    no_local = bool(options & 4)
    if no_local and text.startswith("$share/"):  # [MQTT-3.8.3-4]
        raise ProtocolBreachError("no local on a shared subscription")
    return Subscription(text, qos, no_local, bool(options & 8), _RETAIN_HANDLING[retain_handling]), at


def _suback(version: Version, body: Buffer) -> Suback:
    packet_id, at = _read_packet_id(body, 0)
    properties, known = NO_PROPERTIES, SUBACK_3
    if version is _V5:
        properties, at = read_properties(Kind.SUBACK, body, at)
        known = SUBACK_REASONS
    if at == len(body):
        raise ProtocolBreachError("a SUBACK without a reason")
    return Suback(packet_id, tuple([reason_of(code, known) for code in body[at:]]), properties)


def _unsubscribe(version: Version, body: Buffer) -> Unsubscribe:
    packet_id, at = _read_packet_id(body, 0)
    properties = NO_PROPERTIES
    if version is _V5:
        properties, at = read_properties(Kind.UNSUBSCRIBE, body, at)
    if at == len(body):  # [MQTT-3.10.3-2]
        raise ProtocolBreachError("an UNSUBSCRIBE without a topic filter")
    filters = []
    while at < len(body):
        text, at = _read_filter(version, body, at)
        filters.append(text)
    return Unsubscribe(packet_id, tuple(filters), properties)


def _unsuback(version: Version, body: Buffer) -> Unsuback:
    packet_id, at = _read_packet_id(body, 0)
    if version is not _V5:
        _at_end(body, at)
        return Unsuback(packet_id)
    properties, at = read_properties(Kind.UNSUBACK, body, at)
    if at == len(body):
        raise ProtocolBreachError("an UNSUBACK without a reason")
    return Unsuback(packet_id, tuple([reason_of(code, UNSUBACK_REASONS) for code in body[at:]]), properties)


def _pingreq(version: Version, body: Buffer) -> Pingreq:
    _at_end(body, 0)
    return Pingreq()


def _pingresp(version: Version, body: Buffer) -> Pingresp:
    _at_end(body, 0)
    return Pingresp()


def _disconnect(version: Version, body: Buffer) -> Disconnect:
    if version is not _V5:
        _at_end(body, 0)
        return Disconnect()
    return Disconnect(*_read_outcome(Kind.DISCONNECT, DISCONNECT_REASONS, body, 0))


def _auth(version: Version, body: Buffer) -> Auth:
    if version is not _V5:
        raise MalformedPacketError("packet type 15 is reserved")
    return Auth(*_read_outcome(Kind.AUTH, AUTH_REASONS, body, 0))


_FLAGS: Final[dict[int, int]] = {Kind.PUBREL: 2, Kind.SUBSCRIBE: 2, Kind.UNSUBSCRIBE: 2}

_DECODERS: Final[dict[int, Callable[[Version, Buffer], Packet]]] = {
    Kind.CONNACK: decode_connack,
    Kind.PUBACK: _acknowledgement(Kind.PUBACK, Puback, PUBACK_REASONS),
    Kind.PUBREC: _acknowledgement(Kind.PUBREC, Pubrec, PUBACK_REASONS),
    Kind.PUBREL: _acknowledgement(Kind.PUBREL, Pubrel, PUBREL_REASONS),
    Kind.PUBCOMP: _acknowledgement(Kind.PUBCOMP, Pubcomp, PUBREL_REASONS),
    Kind.SUBSCRIBE: _subscribe,
    Kind.SUBACK: _suback,
    Kind.UNSUBSCRIBE: _unsubscribe,
    Kind.UNSUBACK: _unsuback,
    Kind.PINGREQ: _pingreq,
    Kind.PINGRESP: _pingresp,
    Kind.DISCONNECT: _disconnect,
    Kind.AUTH: _auth,
}
