"""The properties of 5.0 (§2.2.2): their names, the packets that may have them, and their bytes.

A *section* is the sequence of properties in a packet, without the length before it. Knows nothing of the packet around
it, whose kind (or WILL) the caller passes.
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
"""The section of the will in a CONNECT, with its own properties. Other sections have the Kind of their packet."""

Value = int | str | bytes | tuple[str, str]


class Property(NamedTuple):
    """A row of the table in §2.2.2.2."""

    name: str
    read: Callable[[Buffer, int], tuple[Value, int]]
    write: Callable[..., bytes]
    sections: tuple[int, ...]


def _read_flag(body: Buffer, at: int) -> tuple[int, int]:
    value, at = read_u8(body, at)
    if value > 1:
        raise ProtocolBreachError(f"a property must be 0 or 1, got {value}")
    return value, at


def _positive(read: Callable[[Buffer, int], tuple[int, int]], name: str) -> Callable[[Buffer, int], tuple[int, int]]:
    def read_positive(body: Buffer, at: int) -> tuple[int, int]:
        value, at = read(body, at)
        if value == 0:
            raise ProtocolBreachError(f"the {name} must not be 0")
        return value, at

    return read_positive


def _read_topic_alias(body: Buffer, at: int) -> tuple[int, int]:
    alias, at = read_u16(body, at)
    if alias == 0:  # [MQTT-3.3.2-8]
        raise PacketError(Reason.TOPIC_ALIAS_INVALID, "the topic alias must not be 0")
    return alias, at


def _read_response_topic(body: Buffer, at: int) -> tuple[str, int]:
    topic, at = read_string(body, at)
    if not topic or "+" in topic or "#" in topic:  # [MQTT-3.3.2-14], [MQTT-4.7.3-1]
        raise ProtocolBreachError("the response topic is not a valid topic name")
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
"""Properties that a server must pass on unaltered: [MQTT-3.3.2-4], [MQTT-3.3.2-15] to [MQTT-3.3.2-18],
[MQTT-3.3.2-20]. The other properties of a PUBLISH are made for each receiver."""


def _gather(section: int, raw: Buffer, kept: list[Buffer] | None = None) -> Properties:
    """The properties of a section; the bytes of FORWARDED properties are added to `kept`."""
    rows = _IN_SECTION[section]
    values: dict[str, Value] = {}
    pairs: list[tuple[str, str]] = []
    ids: list[int] = []
    at, size = 0, len(raw)
    while at < size:
        start, identifier = at, raw[at]
        row = rows.get(identifier)
        if row is None:  # Unknown, or not in this packet: both are malformed (§2.2.2.2).
            raise MalformedPacketError(f"property 0x{identifier:02x} is not defined for this packet")
        value, at = row.read(raw, at + 1)
        if identifier == USER_PROPERTY:
            pairs.append(value)  # type: ignore[arg-type]  # TABLE gives its type
        elif identifier == SUBSCRIPTION_ID:
            ids.append(value)  # type: ignore[arg-type]
        elif row.name in values:
            raise ProtocolBreachError(f"property 0x{identifier:02x} is included twice")
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
    """Start and end of the section whose length is at `at`."""
    length, start = read_varint(body, at)
    end = start + length
    if end > len(body):
        raise ends_early()
    return start, end


def decode_properties(section: int, raw: Buffer) -> Properties:
    """Decode a section without its length; `section` is the Kind of the packet, or WILL. Raises PacketError."""
    return _gather(section, raw) if raw else NO_PROPERTIES


def read_properties(section: int, body: Buffer, at: int) -> tuple[Properties, int]:
    """Does the same as `decode_properties`, for a section with its length at `at` of a packet."""
    start, end = section_at(body, at)
    return decode_properties(section, body[start:end]), end


def split_publish_properties(raw: Buffer) -> tuple[Properties, bytes]:
    """The properties in the section of a client's PUBLISH, and the bytes of the section that are passed on.

    Payload format, content type, response topic, correlation data and user properties are passed on as they came;
    `delivery_properties` adds the properties of a receiver. Raises PacketError.
    """
    if not raw:
        return NO_PROPERTIES, b""
    kept: list[Buffer] = []
    properties = _gather(Kind.PUBLISH, raw, kept)
    if properties.subscription_ids:  # [MQTT-3.3.4-6]
        raise ProtocolBreachError("a PUBLISH of a client must not have a subscription id")
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
        # Only user properties and subscription ids may be included more than once (§2.2.2.2).
        for item in value if isinstance(value, tuple) else (value,):
            parts += (write_u8(identifier), row.write(item))
    return b"".join(parts)


def with_length(section: bytes) -> bytes:
    """The section with its length, as it is in a packet."""
    return write_varint(len(section)) + section


def delivery_properties(
    forwarded: bytes,
    message_expiry_s: int | None = None,
    subscription_ids: tuple[int, ...] = (),
    topic_alias: int | None = None,
) -> bytes:
    """The section of a PUBLISH to a client: the bytes of `split_publish_properties`, and the receiver's properties."""
    parts = [forwarded]
    if message_expiry_s is not None:
        parts += (b"\x02", write_u32(message_expiry_s))
    for subscription_id in subscription_ids:
        parts += (b"\x0b", write_varint(subscription_id))
    if topic_alias is not None:
        parts += (b"\x23", write_u16(topic_alias))
    return b"".join(parts)
