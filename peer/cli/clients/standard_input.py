"""Standard input as payloads: as a whole, or line by line, read by a thread so that the client goes on meanwhile."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator
from typing import Final

from ringmq.mqtt_front.codec.fields import MAX_VARINT
from ringmq.peer.errors import PeerError

MAX_PAYLOAD_BYTES: Final = MAX_VARINT
"""Maximum length of a packet without its first bytes (5.0 §2.1.4): a payload of that size does not quite fit."""
CHUNK_BYTES: Final = 1 << 16
"""What a pipe holds."""
STDIN: Final = 0


class StandardInput:
    """Read it once, in either way."""

    def __init__(self) -> None:
        """Raises PeerError if there is none."""
        if sys.stdin is None:  # its number may be that of a socket by now
            raise PeerError("standard input is closed")
        self._room = threading.Semaphore(1)
        """The thread reads the next chunk when the one before has been taken: input waits where it comes from."""

    def whole(self) -> bytes:
        """All of it. Raises PeerError."""
        chunks: list[bytes] = []
        size = 0
        while chunk := _read():
            size += len(chunk)
            if size > MAX_PAYLOAD_BYTES:
                raise PeerError(f"standard input: a message has at most {MAX_PAYLOAD_BYTES:,} bytes")
            chunks.append(chunk)
        return b"".join(chunks)

    async def lines(self) -> AsyncIterator[bytes]:
        """Its lines without their ends, but for empty ones. Raises PeerError."""
        loop = asyncio.get_running_loop()
        chunks: asyncio.Queue[bytes | PeerError] = asyncio.Queue()
        threading.Thread(target=self._feed, args=(loop, chunks), name="input", daemon=True).start()
        begun: list[bytes] = []
        size = 0
        while chunk := await chunks.get():
            if isinstance(chunk, PeerError):
                raise chunk
            *whole, rest = chunk.split(b"\n")
            for line in whole:
                text = b"".join((*begun, line)) if begun else line
                begun, size = [], 0
                if text:
                    yield text
            if rest:
                begun.append(rest)
                size += len(rest)
            if size > MAX_PAYLOAD_BYTES:
                raise PeerError(f"standard input: a message has at most {MAX_PAYLOAD_BYTES:,} bytes, a line has more")
            self._room.release()
        if begun:
            yield b"".join(begun)

    def _feed(self, loop: asyncio.AbstractEventLoop, chunks: asyncio.Queue[bytes | PeerError]) -> None:
        chunk: bytes | PeerError = b"first"
        while chunk and isinstance(chunk, bytes):
            self._room.acquire()
            try:
                chunk = _read()
            except PeerError as error:
                chunk = error
            try:
                loop.call_soon_threadsafe(chunks.put_nowait, chunk)
            except RuntimeError:  # the loop has ended, and with it the need for input
                return


def _read() -> bytes:
    try:
        return os.read(STDIN, CHUNK_BYTES)
    except OSError as error:
        raise PeerError(f"cannot read standard input: {error.strerror}") from None
