"""The frames of WebSocket (RFC 6455 §5), as both sides read them and as a server writes them.

Owns masks, lengths, fragments and control frames. Payloads are passed on as they arrive, since MQTT packets need not
begin or end with frames [MQTT-6.0.0-2]: a frame of any length takes no memory. Knows no MQTT and no socket.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from ringmq.mqtt_front.errors import FrontError

MAX_CONTROL_BYTES: Final = 125
"""Maximum payload of a control frame (RFC 6455 §5.5)."""

FRAMES_A_CALL: Final = 300
"""Frames parsed in one call, in less than 1 ms, so that a client that sends tiny frames does not stall the others."""
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
    """The reasons for closing that RingMQ sends (RFC 6455 §7.4.1)."""

    NORMAL = 1000
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    INVALID_DATA = 1007


class FrameError(FrontError):
    """The other side violated the protocol: close its connection with `code`."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Ping(NamedTuple):
    """Answer it with a pong of the same payload."""

    payload: bytes


class Close(NamedTuple):
    """Answer it with a close frame, unless this side has sent one. Later frames are ignored (RFC 6455 §5.5.1)."""

    code: int | None


class _Head(NamedTuple):
    """The head of a frame: its first byte, and the place, length and mask of its payload."""

    first: int
    start: int
    length: int
    mask: bytes


class FrameReader:
    """One per connection: feed it the bytes of a socket; it yields bytes of MQTT, pings, and the close frame.

    It holds at most an incomplete head or control frame, and while it is `full` the bytes after the frames of one call.
    """

    __slots__ = ("_closed", "_in_message", "_left", "_mask", "_mask_bit", "_partial", "full")

    def __init__(self, *, of_server: bool = False) -> None:
        """`of_server`: the frames are those of a server, which does not mask them."""
        self._mask_bit = 0 if of_server else _MASKED
        self.full = False
        """Whether frames may be left over: call `feed(b"")`."""
        self._partial = b""
        self._left = 0
        self._mask = b""
        self._in_message = False
        self._closed = False

    def feed(self, data: bytes) -> Iterator[bytes | Ping | Close]:
        """Yields the contents of `data` in order; exhaust the iterator before the next call.

        Raises FrameError after the contents before the fault; do not use the reader after that.
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
            head = read_head(data, at, self._mask_bit)
            # A control frame is read as a whole, since its payload of 125 bytes at most is answered as a whole.
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
        mask, used = self._mask, len(piece) % _MASK_BYTES
        self._left -= len(piece)
        # The mask goes on where this piece ended, as the next piece of the frame comes with another chunk.
        self._mask = mask[used:] + mask[:used]
        return unmask(piece, mask)

    def _begin(self, head: _Head) -> None:
        """Begin a data frame. Only control frames may stand between the fragments of a message (RFC 6455 §5.4)."""
        continues = head.first & 0xF == Opcode.CONTINUATION
        if continues is not self._in_message:
            text = (
                "a continuation frame without a message" if continues else "a new message inside a fragmented message"
            )
            raise FrameError(CloseCode.PROTOCOL_ERROR, text)
        self._in_message = not head.first & _FIN
        self._left, self._mask = head.length, head.mask

    def _control(self, head: _Head, payload: bytes) -> Iterator[Ping | Close]:
        opcode = head.first & 0xF
        if opcode == Opcode.PING:
            yield Ping(payload)
        elif opcode == Opcode.CLOSE:
            self._closed = True
            yield Close(_close_code(payload))


def read_head(data: bytes, at: int, mask_bit: int) -> _Head | None:
    """The head of the frame that begins at `at`; None if it is incomplete. Raises FrameError, also if the frame is
    masked and must not be, or the other way round.
    """
    size = len(data)
    if at + 2 > size:
        return None
    first, second = data[at], data[at + 1]
    _check(first, second, mask_bit)
    length, start = second & 0x7F, at + 2
    if length >= _LENGTH_16:
        width = 2 if length == _LENGTH_16 else 8
        if start + width > size:
            return None
        length = int.from_bytes(data[start : start + width], "big")
        start += width
        # RFC 6455 §5.2: the minimal number of bytes must be used, and the highest bit of the longest form must be 0.
        if length < (_LENGTH_16 if width == 2 else 1 << 16) or length >> 63:
            raise FrameError(CloseCode.PROTOCOL_ERROR, "a frame length is not in its shortest form, or exceeds 63 bits")
    end = start + _MASK_BYTES if mask_bit else start
    return _Head(first, end, length, data[start:end]) if end <= size else None


def _check(first: int, second: int, mask_bit: int) -> None:
    """Refuse what the first two bytes of a frame show to be wrong."""
    opcode = first & 0xF
    if first & _RESERVED:
        raise FrameError(CloseCode.PROTOCOL_ERROR, "a reserved bit is set without an extension")
    if opcode not in _OPCODES:
        raise FrameError(CloseCode.PROTOCOL_ERROR, f"unknown opcode {opcode}")
    # RFC 6455 §5.1: all frames of a client are masked, so that no proxy can be made to read them as HTTP (§10.3).
    if second & _MASKED != mask_bit:
        rule = "a frame of a client must be masked" if mask_bit else "a frame of a server must not be masked"
        raise FrameError(CloseCode.PROTOCOL_ERROR, rule)
    if opcode & 8 and (not first & _FIN or second & 0x7F > MAX_CONTROL_BYTES):
        raise FrameError(
            CloseCode.PROTOCOL_ERROR, f"a control frame must be unfragmented and have at most {MAX_CONTROL_BYTES} bytes"
        )
    if opcode == Opcode.TEXT:  # [MQTT-6.0.0-1]
        raise FrameError(CloseCode.UNSUPPORTED_DATA, "MQTT must be sent in binary frames, got a text frame")


_OPCODES: Final = frozenset(Opcode)


def unmask(payload: bytes, mask: bytes) -> bytes:
    """Masking and unmasking are the same operation (RFC 6455 §5.3). Without a mask the payload stays as it is."""
    if not mask:
        return payload
    # One XOR of two large integers is far faster than a loop over the bytes.
    size = len(payload)
    key = int.from_bytes((mask * (size // _MASK_BYTES + 1))[:size], "little")
    return (int.from_bytes(payload, "little") ^ key).to_bytes(size, "little")


def _close_code(payload: bytes) -> int | None:
    """The code in a close frame. Raises FrameError for codes that must not be sent (RFC 6455 §7.4)."""
    if not payload:
        return None
    code = int.from_bytes(payload[:2], "big")
    if len(payload) < 2 or not (1000 <= code <= 1014 or 3000 <= code <= 4999) or code in (1004, 1005, 1006):
        raise FrameError(CloseCode.PROTOCOL_ERROR, "invalid code in a close frame")
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        raise FrameError(CloseCode.INVALID_DATA, "the reason in a close frame is not UTF-8") from None
    return code


def frame_head(opcode: Opcode, size: int) -> bytes:
    """The head of an unfragmented message with a payload of `size` bytes; a server does not mask (RFC 6455 §5.1)."""
    first = _FIN | opcode
    if size < _LENGTH_16:
        return bytes((first, size))
    if size < 1 << 16:
        return struct.pack(">BBH", first, _LENGTH_16, size)
    return struct.pack(">BBQ", first, _LENGTH_64, size)


def masked_frame(opcode: Opcode, payload: bytes, mask: bytes) -> bytes:
    """An unfragmented message of a client. `mask`: 4 bytes that nobody can predict (RFC 6455 §5.3)."""
    head = bytearray(frame_head(opcode, len(payload)))
    head[1] |= _MASKED
    return bytes(head) + mask + unmask(payload, mask)


def close_frame(code: int | None) -> bytes:
    payload = b"" if code is None else code.to_bytes(2, "big")
    return frame_head(Opcode.CLOSE, len(payload)) + payload


def pong_frame(payload: bytes) -> bytes:
    return frame_head(Opcode.PONG, len(payload)) + payload
