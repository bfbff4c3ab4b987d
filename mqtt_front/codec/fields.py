"""Reads and writes the primitive fields of MQTT (5.0 §1.5, §2.4): integers, strings, binary data and reasons.

A reader takes a buffer and the start of the field, and returns its value and the start of the next field. Readers raise
PacketError, writers EncodeError. Knows nothing of packets.
"""

from __future__ import annotations

import struct
from typing import Final

from ringmq.mqtt_front.codec.packets import Buffer
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import EncodeError, MalformedPacketError, ProtocolBreachError

MAX_VARINT: Final = 268_435_455
"""The largest variable byte integer, and so the largest remaining length: four times seven bits (§1.5.5)."""
MAX_FIELD_BYTES: Final = 65_535
"""Strings and binary data have a length of two bytes (§1.5.4, §1.5.6)."""

_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")


def ends_early() -> MalformedPacketError:
    return MalformedPacketError("the packet ends within a field")


def read_u8(body: Buffer, at: int) -> tuple[int, int]:
    if at >= len(body):
        raise ends_early()
    return body[at], at + 1


def read_u16(body: Buffer, at: int) -> tuple[int, int]:
    if at + 2 > len(body):
        raise ends_early()
    # Indexing takes half the time of slicing and `int.from_bytes`, for the most frequent field of all.
    return body[at] << 8 | body[at + 1], at + 2


def read_u32(body: Buffer, at: int) -> tuple[int, int]:
    end = at + 4
    if end > len(body):
        raise ends_early()
    return int.from_bytes(body[at:end], "big"), end


def read_varint(body: Buffer, at: int) -> tuple[int, int]:
    """A variable byte integer in its shortest form [MQTT-1.5.5-1]."""
    value = 0
    for shift in (0, 7, 14, 21):
        if at >= len(body):
            raise ends_early()
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            # Trailing zero bytes would give one value several encodings.
            if byte == 0 and shift:
                raise MalformedPacketError("a variable byte integer is not in its shortest form")
            return value, at
    raise MalformedPacketError("a variable byte integer has more than four bytes")


def read_binary(body: Buffer, at: int) -> tuple[bytes, int]:
    length, start = read_u16(body, at)
    end = start + length
    if end > len(body):
        raise ends_early()
    return bytes(body[start:end]), end


def read_string(body: Buffer, at: int) -> tuple[str, int]:
    length, start = read_u16(body, at)
    end = start + length
    if end > len(body):
        raise ends_early()
    return text_of(body[start:end]), end


def text_of(raw: Buffer) -> str:
    """The text of a UTF-8 string (§1.5.4). Raises PacketError for text that the specification forbids.

    Ill-formed UTF-8, surrogates among it, and U+0000 close the connection [MQTT-1.5.4-1] [MQTT-1.5.4-2]; a byte order
    mark is a normal character [MQTT-1.5.4-3]. Control characters and non-characters SHOULD NOT be sent, and are
    accepted.
    """
    try:
        text = str(raw, "utf-8")
    except UnicodeDecodeError:
        raise MalformedPacketError("a string is not well-formed UTF-8") from None
    if "\0" in text:
        raise MalformedPacketError("a string contains U+0000")
    return text


def read_string_pair(body: Buffer, at: int) -> tuple[tuple[str, str], int]:
    name, at = read_string(body, at)
    value, at = read_string(body, at)
    return (name, value), at


def reason_of(code: int, known: dict[int, Reason]) -> Reason:
    """The reason with this code. `known` has the reasons of the packet type, such as PUBACK_REASONS."""
    reason = known.get(code)
    if reason is None:
        raise ProtocolBreachError(f"reason 0x{code:02x} is not defined for this packet")
    return reason


def write_reason(reason: Reason, known: dict[int, Reason]) -> bytes:
    if reason not in known:
        raise EncodeError(f"reason {reason.name} is not defined for this packet")
    return bytes((reason,))


def write_u8(value: int) -> bytes:
    try:
        return bytes((value,))
    except ValueError:
        raise EncodeError(f"{value} does not fit into one byte") from None


def write_u16(value: int) -> bytes:
    try:
        return _U16.pack(value)
    except struct.error:
        raise EncodeError(f"{value} does not fit into two bytes") from None


def write_u32(value: int) -> bytes:
    try:
        return _U32.pack(value)
    except struct.error:
        raise EncodeError(f"{value} does not fit into four bytes") from None


def write_varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    if not 0 < value <= MAX_VARINT:
        raise EncodeError(f"{value} does not fit into a variable byte integer")
    digits = []
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def write_binary(value: Buffer) -> bytes:
    if len(value) > MAX_FIELD_BYTES:
        raise EncodeError(f"a field must have at most {MAX_FIELD_BYTES} bytes, got {len(value)}")
    return b"".join((_U16.pack(len(value)), value))


def write_string(value: str) -> bytes:
    return write_binary(utf8(value))


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodeError("a string must not contain surrogates") from None


def write_string_pair(value: tuple[str, str]) -> bytes:
    return write_string(value[0]) + write_string(value[1])
