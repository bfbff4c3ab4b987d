"""The primitive fields of MQTT (5.0 §1.5, §2.4): integers, strings, binary data and reasons, read and written.

Readers take a buffer and where the field begins, and give its value and where the next one begins; they raise
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
            if byte == 0 and shift:
                raise MalformedPacketError("a variable byte integer is longer than it needs to be")
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
    """The text of a UTF-8 string, with what the specification forbids refused (§1.5.4).

    Ill-formed UTF-8, surrogates among it, and U+0000 close the connection [MQTT-1.5.4-1] [MQTT-1.5.4-2]; a byte order
    mark is a character like any other [MQTT-1.5.4-3]. Control characters and non-characters only SHOULD NOT be sent,
    and pass.
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
    """The reason with this code, which is to be one of those its packet may have (such as PUBACK_REASONS)."""
    reason = known.get(code)
    if reason is None:
        raise ProtocolBreachError(f"reason 0x{code:02x} has no meaning in this packet")
    return reason


def write_reason(reason: Reason, known: dict[int, Reason]) -> bytes:
    if reason not in known:
        raise EncodeError(f"{reason.name} has no meaning in this packet")
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
        raise EncodeError(f"a field of {len(value)} bytes: at most {MAX_FIELD_BYTES} fit")
    return b"".join((_U16.pack(len(value)), value))


def write_string(value: str) -> bytes:
    return write_binary(utf8(value))


def utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodeError("a string with surrogates has no UTF-8") from None


def write_string_pair(value: tuple[str, str]) -> bytes:
    return write_string(value[0]) + write_string(value[1])
