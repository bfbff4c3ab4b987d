"""The properties of 5.0 (§2.2.2): which there are, where each may stand, and their bytes.

A *section* is the run of properties in a packet without the length that stands before it. Knows nothing of the packets
around: they say which section it is by their kind, or WILL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ringmq.mqtt_front.codec.fields import (
    ends_early,
    read_binary,
    read_string,
    read_string_pair,
    read_u8,
    read_u16,
    read_u32,
    read_varint,
    write_binary,
    write_string,
    write_string_pair,
    write_u8,
    write_u16,
    write_u32,
    write_varint,
)
from ringmq.mqtt_front.codec.packets import NO_PROPERTIES, Buffer, Kind, Properties
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import MalformedPacketError, PacketError, ProtocolBreachError

WILL: Final = 0
"""The section of the will in a CONNECT, which has a list of its own. All others go by the Kind of their packet."""

Value = int | str | bytes | tuple[str, str]


class Property(NamedTuple):
    """One row of the table in §2.2.2.2."""

    name: str
    read: Callable[[Buffer, int], tuple[Value, int]]
    write: Callable[..., bytes]
    sections: tuple[int, ...]


def _read_flag(body: Buffer, at: int) -> tuple[int, int]:
    value, at = read_u8(body, at)
    if value > 1:
        raise ProtocolBreachError(f"a property that is 0 or 1 is {value}")
    return value, at


def _positive(read: Callable[[Buffer, int], tuple[int, int]], name: str) -> Callable[[Buffer, int], tuple[int, int]]:
    def read_positive(body: Buffer, at: int) -> tuple[int, int]:
        value, at = read(body, at)
        if value == 0:
            raise ProtocolBreachError(f"the {name} is 0")
        return value, at

    return read_positive


def _read_topic_alias(body: Buffer, at: int) -> tuple[int, int]:
    alias, at = read_u16(body, at)
    if alias == 0:  # [MQTT-3.3.2-8]
        raise PacketError(Reason.TOPIC_ALIAS_INVALID, "the topic alias is 0")
    return alias, at


def _read_response_topic(body: Buffer, at: int) -> tuple[str, int]:
    topic, at = read_string(body, at)
    if not topic or "+" in topic or "#" in topic:  # [MQTT-3.3.2-14], [MQTT-4.7.3-1]
        raise ProtocolBreachError("the response topic is no topic name")
    return topic, at


_CONNECT, _CONNACK, _PUBLISH, _AUTH = Kind.CONNECT, Kind.CONNACK, Kind.PUBLISH, Kind.AUTH
_MESSAGE = (Kind.PUBLISH, WILL)
_ANSWERS = (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP, Kind.SUBACK, Kind.UNSUBACK)
_WITH_REASON = (_CONNACK, *_ANSWERS, Kind.DISCONNECT, _AUTH)
_ALL = (_CONNECT, _PUBLISH, WILL, Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, *_WITH_REASON)

USER_PROPERTY: Final = 0x26
SUBSCRIPTION_ID: Final = 0x0B

TABLE: Final[dict[int, Property]] = {
    0x01: Property("payload_format", _read_flag, write_u8, _MESSAGE),
    0x02: Property("message_expiry_s", read_u32, write_u32, _MESSAGE),
    0x03: Property("content_type", read_string, write_string, _MESSAGE),
    0x08: Property("response_topic", _read_response_topic, write_string, _MESSAGE),
    0x09: Property("correlation_data", read_binary, write_binary, _MESSAGE),
    SUBSCRIPTION_ID: Property(
        "subscription_ids", _positive(read_varint, "subscription id"), write_varint, (_PUBLISH, Kind.SUBSCRIBE)
    ),
    0x11: Property("session_expiry_s", read_u32, write_u32, (_CONNECT, _CONNACK, Kind.DISCONNECT)),
    0x12: Property("assigned_client_id", read_string, write_string, (_CONNACK,)),
    0x13: Property("server_keep_alive_s", read_u16, write_u16, (_CONNACK,)),
    0x15: Property("authentication_method", read_string, write_string, (_CONNECT, _CONNACK, _AUTH)),
    0x16: Property("authentication_data", read_binary, write_binary, (_CONNECT, _CONNACK, _AUTH)),
    0x17: Property("request_problem_information", _read_flag, write_u8, (_CONNECT,)),
    0x18: Property("will_delay_s", read_u32, write_u32, (WILL,)),
    0x19: Property("request_response_information", _read_flag, write_u8, (_CONNECT,)),
    0x1A: Property("response_information", read_string, write_string, (_CONNACK,)),
    0x1C: Property("server_reference", read_string, write_string, (_CONNACK, Kind.DISCONNECT)),
    0x1F: Property("reason_string", read_string, write_string, _WITH_REASON),
    0x21: Property("receive_maximum", _positive(read_u16, "receive maximum"), write_u16, (_CONNECT, _CONNACK)),
    0x22: Property("topic_alias_maximum", read_u16, write_u16, (_CONNECT, _CONNACK)),
    0x23: Property("topic_alias", _read_topic_alias, write_u16, (_PUBLISH,)),
    0x24: Property("maximum_qos", _read_flag, write_u8, (_CONNACK,)),
    0x25: Property("retain_available", _read_flag, write_u8, (_CONNACK,)),
    USER_PROPERTY: Property("user_properties", read_string_pair, write_string_pair, _ALL),
    0x27: Property("maximum_packet_size", _positive(read_u32, "maximum packet size"), write_u32, (_CONNECT, _CONNACK)),
    0x28: Property("wildcard_available", _read_flag, write_u8, (_CONNACK,)),
    0x29: Property("subscription_ids_available", _read_flag, write_u8, (_CONNACK,)),
    0x2A: Property("shared_available", _read_flag, write_u8, (_CONNACK,)),
}

_IN_SECTION: Final[dict[int, dict[int, Property]]] = {
    section: {identifier: row for identifier, row in TABLE.items() if section in row.sections} for section in _ALL
}

FORWARDED: Final = frozenset({0x01, 0x03, 0x08, 0x09, USER_PROPERTY})
"""What a server passes on unaltered: [MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18], [MQTT-3.3.2-20]. The others of
a PUBLISH are made anew for each receiver."""


def _gather(section: int, raw: Buffer, kept: list[Buffer] | None = None) -> Properties:
    """The properties of a section; the bytes of those that are FORWARDED are added to `kept`."""
    rows = _IN_SECTION[section]
    values: dict[str, Value] = {}
    pairs: list[tuple[str, str]] = []
    ids: list[int] = []
    at, size = 0, len(raw)
    while at < size:
        start, identifier = at, raw[at]
        row = rows.get(identifier)
        if row is None:  # Unknown, or not in this packet: both are malformed (§2.2.2.2).
            raise MalformedPacketError(f"property 0x{identifier:02x} has no place in this packet")
        value, at = row.read(raw, at + 1)
        if identifier == USER_PROPERTY:
            pairs.append(value)  # type: ignore[arg-type]  # TABLE has its type
        elif identifier == SUBSCRIPTION_ID:
            ids.append(value)  # type: ignore[arg-type]
        elif row.name in values:
            raise ProtocolBreachError(f"property 0x{identifier:02x} stands there twice")
        else:
            values[row.name] = value
        if kept is not None and identifier in FORWARDED:
            kept.append(raw[start:at])
    if len(ids) > 1 and section != Kind.PUBLISH:
        raise ProtocolBreachError("more than one subscription id")
    if "authentication_data" in values and "authentication_method" not in values:  # §3.1.2.11.10
        raise ProtocolBreachError("authentication data without a method")
    return Properties(
        user_properties=tuple(pairs),
        subscription_ids=tuple(ids),
        **values,  # type: ignore[arg-type]
    )


def section_at(body: Buffer, at: int) -> tuple[int, int]:
    """Where the section whose length stands at `at` begins and ends."""
    length, start = read_varint(body, at)
    end = start + length
    if end > len(body):
        raise ends_early()
    return start, end


def decode_properties(section: int, raw: Buffer) -> Properties:
    """The properties in the bytes of a section; `section` is the Kind of the packet, or WILL. Raises PacketError."""
    return _gather(section, raw) if raw else NO_PROPERTIES


def read_properties(section: int, body: Buffer, at: int) -> tuple[Properties, int]:
    """As `decode_properties`, for a section in a packet, with its length before it."""
    start, end = section_at(body, at)
    return decode_properties(section, body[start:end]), end


def split_publish_properties(raw: Buffer) -> tuple[Properties, bytes]:
    """What a server needs of the section of a PUBLISH from a client: the properties, and the bytes that are passed on.

    Payload format, content type, response topic, correlation data and user properties are passed on as they came; see
    `delivery_properties` for what is added. Raises PacketError.
    """
    if not raw:
        return NO_PROPERTIES, b""
    kept: list[Buffer] = []
    properties = _gather(Kind.PUBLISH, raw, kept)
    if properties.subscription_ids:  # [MQTT-3.3.4-6]
        raise ProtocolBreachError("a client sends a subscription id with a message")
    return properties, b"".join(kept)


def encode_properties(properties: Properties) -> bytes:
    """The section, without its length. Raises EncodeError."""
    if properties is NO_PROPERTIES:
        return b""
    parts: list[bytes] = []
    for identifier, row in TABLE.items():
        value = getattr(properties, row.name)
        if value is None:
            continue
        for one in value if isinstance(value, tuple) else (value,):
            parts += (write_u8(identifier), row.write(one))
    return b"".join(parts)


def with_length(section: bytes) -> bytes:
    """The section as it stands in a packet."""
    return write_varint(len(section)) + section


def delivery_properties(
    forwarded: bytes,
    message_expiry_s: int | None = None,
    subscription_ids: tuple[int, ...] = (),
    topic_alias: int | None = None,
) -> bytes:
    """The section of a PUBLISH to a client: what `split_publish_properties` kept, and what is this receiver's own."""
    parts = [forwarded]
    if message_expiry_s is not None:
        parts += (b"\x02", write_u32(message_expiry_s))
    for one in subscription_ids:
        parts += (b"\x0b", write_varint(one))
    if topic_alias is not None:
        parts += (b"\x23", write_u16(topic_alias))
    return b"".join(parts)
