"""Frames: the pieces of the stream of bytes between two peers.

    4 bytes  length of kind and body, big endian, at least 1
    1 byte   kind
    n bytes  body

Owns the cutting and its limit. Knows neither sockets nor the meaning of a body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

from ringmq.overlay.errors import ProtocolError

HEADER_BYTES: Final = 5
_LENGTH_BYTES: Final = 4
_HEADER: Final = struct.Struct(">IB")


class Kind(IntEnum):
    """The second field of a frame: the reader of the body."""

    HELLO = 1
    """Identity of the sender (`overlay.links.handshake`); first in each link, repeated after a change of address."""
    GOODBYE = 2
    """The sender closes this connection; the body has the reason."""
    CONTROL = 3
    """A message of the ring (`overlay.core.codec`)."""
    PARCEL = 4
    """Bytes of the application, as they are."""
    STATUS_REQUEST = 5
    """Request for the status, instead of a HELLO. The body names a subject, for the application; empty: all."""
    STATUS_REPLY = 6
    """The status, as JSON."""
    RELAY = 7
    """A message for another peer, or of another peer (`Relay`). It may be dropped, as a parcel may."""
    REQUEST = 8
    """A request to the application, instead of a HELLO: about the whole ring, or to change something in it."""
    REPLY = 9
    """The answer to a request, as JSON."""
    JOIN = 10
    """Request of a machine without a certificate to be admitted, with a token, instead of a HELLO. As JSON."""
    ADMISSION = 11
    """Answer to a JOIN: a certificate, or why there is none. As JSON."""
    COMMAND = 12
    """A command of the operator, instead of a HELLO. Only over the socket in the data folder. As JSON."""
    RESULT = 13
    """Answer to a COMMAND. As JSON."""
    EXPULSIONS = 14
    """The signed list of expelled peers, or the part about the receiver. As JSON."""


_KINDS: Final = frozenset(int(kind) for kind in Kind)
DROPPABLE: Final = frozenset({Kind.PARCEL, Kind.RELAY})
"""Frames that are refused if there is no room for them. Other frames close the link then."""


def header(kind: Kind, body_bytes: int) -> bytes:
    """Length and kind, which go before a body of this size."""
    return _HEADER.pack(body_bytes + 1, kind)


def frame(kind: Kind, body: bytes = b"") -> bytes:
    """A whole frame. A link writes header and body apart instead, and copies the body once less."""
    return _HEADER.pack(len(body) + 1, kind) + body


class FrameReader:
    """Cuts a stream into frames, however it was chunked.

    `max_frame_bytes` limits a frame without its length field. It is looked at before each frame, so it can be changed
    between two frames of one chunk.
    """

    __slots__ = ("_broken", "_missing", "_rest", "max_frame_bytes")

    def __init__(self, max_frame_bytes: int) -> None:
        self.max_frame_bytes = max_frame_bytes
        self._rest = bytearray()
        self._missing = _LENGTH_BYTES
        """Bytes that `_rest` needs before there is anything to cut."""
        self._broken = False

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """The frames that are now complete, as (kind, body); exhaust them before feeding again.

        Raises ProtocolError for bytes that are no frame; after that the reader raises for any bytes.
        """
        if self._broken:
            raise ProtocolError("the stream is broken already")
        rest = self._rest
        # Small chunks of a large frame gather in `_rest` and are joined once, when the frame is complete.
        if rest or len(data) < self._missing:
            rest += data
            if len(rest) < self._missing:
                return
            data = bytes(rest)
            rest.clear()
        at, end = 0, len(data)
        while end - at >= _LENGTH_BYTES:
            size = int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
            stop = at + _LENGTH_BYTES + size
            if size == 0 or size > self.max_frame_bytes:
                raise self._break(f"a frame must have 1 to {self.max_frame_bytes} bytes, got {size}")
            if stop > end:
                rest += data[at:]
                self._missing = stop - at
                return
            kind = data[at + _LENGTH_BYTES]
            if kind not in _KINDS:
                raise self._break(f"unknown frame kind {kind}")
            yield kind, data[at + HEADER_BYTES : stop]
            at = stop
        rest += data[at:]
        self._missing = _LENGTH_BYTES

    @property
    def expected_bytes(self) -> int:
        """The size of the frame that is not complete yet."""
        return self._missing

    def drop(self) -> None:
        """Free the memory of an unfinished frame: nothing is fed any more."""
        self._broken = True
        self._rest = bytearray()
        self._missing = _LENGTH_BYTES

    @property
    def buffered_bytes(self) -> int:
        """Bytes of a frame that is not complete yet."""
        return len(self._rest)

    def _break(self, why: str) -> ProtocolError:
        self._broken = True
        self._rest.clear()
        return ProtocolError(why)
