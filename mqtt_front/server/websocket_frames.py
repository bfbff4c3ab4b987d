"""The frames of WebSocket (RFC 6455 §5), as a server reads and writes them.

Owns masks, lengths, fragments and control frames. What comes in is taken as a stream of bytes, since MQTT packets need
not begin or end with frames [MQTT-6.0.0-2]: payloads are given on as they arrive, so a frame of any length takes no
memory. Knows no MQTT and no socket.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from ringmq.mqtt_front.errors import FrontError

MAX_CONTROL_BYTES: Final = 125
"""Of the payload of a control frame (RFC 6455 §5.5)."""

FRAMES_A_CALL: Final = 300
"""Less than a millisecond, so that a client that sends nothing but tiny ones does not stop all others."""
_FIN: Final = 0x80
_RESERVED: Final = 0x70
_MASKED: Final = 0x80
_MASK_BYTES: Final = 4
_LENGTH_16: Final = 126
_LENGTH_64: Final = 127


class Opcode(IntEnum):
    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class CloseCode(IntEnum):
    """Why a connection is closed (RFC 6455 §7.4.1): those that this server says."""

    NORMAL = 1000
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_DATA = 1007


class FrameError(FrontError):
    """The client broke the protocol: its connection is to be closed with this code."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Ping(NamedTuple):
    """To be answered by a pong with the same payload."""

    payload: bytes


class Close(NamedTuple):
    """To be answered by the same, if the server has not sent one. Nothing that comes after it counts."""

    code: int | None


class _Head(NamedTuple):
    """The beginning of a frame: where its payload begins and how long it is."""

    first: int
    start: int
    length: int
    mask: bytes


class FrameReader:
    """One per connection: feed it what arrives, take what it means: bytes of MQTT, pings, and the end.

    It holds at most the head of a frame, or a control frame, that is not all there; and while it is `full`, what came
    after the frames of one call.
    """

    __slots__ = ("_closed", "_in_message", "_left", "_mask", "_partial", "full")

    def __init__(self) -> None:
        self.full = False
        """There may be more frames than one call reads: call it again."""
        self._partial = b""
        self._left = 0
        self._mask = b""
        self._in_message = False
        self._closed = False

    def feed(self, data: bytes) -> Iterator[bytes | Ping | Close]:
        """What `data` brings, in its order; take it all before the next call. Raises FrameError after what was right
        before the fault; then the reader is of no more use.
        """
        if self._partial:
            data, self._partial = self._partial + data, b""
        at, size, frames = 0, len(data), 0
        self.full = False
        while at < size and not self._closed:
            if frames == FRAMES_A_CALL:
                self.full = True
                self._partial = data[at:]
                return
            if self._left:
                piece = data[at : at + self._left]
                at += len(piece)
                yield self._unmasked(piece)
                continue
            head = read_head(data, at)
            if head is None or (head.first & 8 and head.start + head.length > size):
                self._partial = data[at:]
                return
            at = head.start
            frames += 1
            if head.first & 8:
                at += head.length
                yield from self._control(head, unmask(data[head.start : at], head.mask))
            else:
                self._begin(head)

    def _unmasked(self, piece: bytes) -> bytes:
        mask, turn = self._mask, len(piece) % _MASK_BYTES
        self._left -= len(piece)
        self._mask = mask[turn:] + mask[:turn]
        return unmask(piece, mask)

    def _begin(self, head: _Head) -> None:
        """A data frame. It may be part of a message, whose parts have nothing but other control frames between them."""
        continues = head.first & 0xF == Opcode.CONTINUATION
        if continues is not self._in_message:
            text = "goes on with a message that never began" if continues else "begins a message inside another one"
            raise FrameError(CloseCode.PROTOCOL_ERROR, f"a frame {text}")
        self._in_message = not head.first & _FIN
        self._left, self._mask = head.length, head.mask

    def _control(self, head: _Head, payload: bytes) -> Iterator[Ping | Close]:
        opcode = head.first & 0xF
        if opcode == Opcode.PING:
            yield Ping(payload)
        elif opcode == Opcode.CLOSE:
            self._closed = True
            yield Close(_close_code(payload))


def read_head(data: bytes, at: int) -> _Head | None:
    """The head of the frame that begins at `at`; None if it is not all there. Raises FrameError."""
    size = len(data)
    if at + 2 > size:
        return None
    first, second = data[at], data[at + 1]
    _check(first, second)
    length, start = second & 0x7F, at + 2
    if length >= _LENGTH_16:
        width = 2 if length == _LENGTH_16 else 8
        if start + width > size:
            return None
        length = int.from_bytes(data[start : start + width], "big")
        start += width
        if length < (_LENGTH_16 if width == 2 else 1 << 16) or length >> 63:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a length is not in its shortest form, or too long")
    end = start + _MASK_BYTES
    return _Head(first, end, length, data[start:end]) if end <= size else None


def _check(first: int, second: int) -> None:
    """Of what may not be, as much as the first two bytes show."""
    opcode = first & 0xF
    if first & _RESERVED:
        raise FrameError(CloseCode.PROTOCOL_ERROR, "a reserved bit is set, and no extension was agreed on")
    if opcode not in _OPCODES:
        raise FrameError(CloseCode.PROTOCOL_ERROR, f"opcode {opcode} is unknown")
    if not second & _MASKED:
        raise FrameError(CloseCode.PROTOCOL_ERROR, "a frame is not masked")
    if opcode & 8 and (not first & _FIN or second & 0x7F > MAX_CONTROL_BYTES):
        raise FrameError(CloseCode.PROTOCOL_ERROR, "a control frame is in parts, or too long")
    if opcode == Opcode.TEXT:  # [MQTT-6.0.0-1]
        raise FrameError(CloseCode.UNSUPPORTED_DATA, "MQTT travels in binary frames")


_OPCODES: Final = frozenset(Opcode)


def unmask(payload: bytes, mask: bytes) -> bytes:
    """Also masks, as that is the same (RFC 6455 §5.3)."""
    size = len(payload)
    key = int.from_bytes((mask * (size // _MASK_BYTES + 1))[:size], "little")
    return (int.from_bytes(payload, "little") ^ key).to_bytes(size, "little")


def _close_code(payload: bytes) -> int | None:
    """Raises FrameError for what a client may not say (RFC 6455 §7.4)."""
    if not payload:
        return None
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (1000 <= code <= 1014 or 3000 <= code <= 4999) or code in (1004, 1005, 1006):
        raise FrameError(CloseCode.PROTOCOL_ERROR, "a close frame has a wrong code")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError(CloseCode.INVALID_DATA, "a close frame has a reason that is not UTF-8") from None
    return code


def frame_head(opcode: Opcode, size: int) -> bytes:
    """What goes before a payload of that size, which the server does not mask: one frame, one message."""
    first = _FIN | opcode
    if size < _LENGTH_16:
        return bytes((first, size))
    if size < 1 << 16:
        return struct.pack(">BBH", first, _LENGTH_16, size)
    return struct.pack(">BBQ", first, _LENGTH_64, size)


def close_frame(code: int | None) -> bytes:
    payload = b"" if code is None else code.to_bytes(2, "big")
    return frame_head(Opcode.CLOSE, len(payload)) + payload


def pong_frame(payload: bytes) -> bytes:
    return frame_head(Opcode.PONG, len(payload)) + payload
