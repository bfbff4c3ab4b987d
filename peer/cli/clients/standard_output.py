"""Standard output that may be slow: a thread writes, so that pings go on, and the client reads as fast as that.

Owns the queue of what is not written yet, and its bound.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from ringmq.peer.errors import PeerError

STDOUT: Final = 1
FULL_BYTES: Final = 1 << 20
"""From here on `is_full`: seconds of a slow reader, and the memory of a small command."""
WRITE_BYTES: Final = 1 << 16
"""What is written at once, as much as a pipe holds: what is written is told soon."""

Written = Callable[[], None]


class StandardOutput:
    """One per process. `put` texts; `closed` is done when nobody reads any more, or when writing fails."""

    def __init__(self, on_room: Callable[[], None]) -> None:
        """`on_room` is called when it `is_full` no more. Raises PeerError if there is no standard output."""
        if sys.stdout is None:  # its number may be that of a socket by now
            raise PeerError("standard output is closed")
        self._loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[OSError | None] = self._loop.create_future()
        """The fault; None if the reader has gone, which is none."""
        self._on_room = on_room
        self._waiting: deque[tuple[bytes, Written | None]] = deque()
        self._wake = threading.Condition()
        self._size_bytes = 0
        self._unwritten = 0
        """Texts that were put and are not written."""
        self._drained = asyncio.Event()
        self._drained.set()
        self._thread: threading.Thread | None = None
        self._watch_reader()

    @property
    def is_full(self) -> bool:
        return self._size_bytes >= FULL_BYTES

    def put(self, text: bytes, written: Written | None = None) -> None:
        """Write this after all before; `written` is called when that is done, unless it fails."""
        self._size_bytes += len(text)
        self._unwritten += 1
        self._drained.clear()
        with self._wake:
            self._waiting.append((text, written))
            self._wake.notify()
        if self._thread is None:
            # A daemon: if nobody reads, the process can end nevertheless.
            self._thread = threading.Thread(target=self._write_all, name="output", daemon=True)
            self._thread.start()

    async def drained(self) -> None:
        """Return when everything is written, or when it is `closed`."""
        empty = asyncio.ensure_future(self._drained.wait())
        ends: list[asyncio.Future[Any]] = [empty, self.closed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        empty.cancel()

    # The thread

    def _write_all(self) -> None:
        while True:
            texts: list[bytes] = []
            calls: list[Written | None] = []
            size = 0
            with self._wake:
                while not self._waiting:
                    self._wake.wait()
                while self._waiting and size < WRITE_BYTES:
                    text, written = self._waiting.popleft()
                    texts.append(text)
                    size += len(text)
                    calls.append(written)
            fault: OSError | None = None
            try:
                _write(b"".join(texts))
            except OSError as error:
                fault = error
            try:
                self._loop.call_soon_threadsafe(self._done, size, calls, fault)
            except RuntimeError:  # the loop has ended
                return
            if fault is not None:
                return

    def _done(self, size: int, calls: list[Written | None], fault: OSError | None) -> None:
        if fault is not None:
            self._close(fault)
            return
        was_full = self.is_full
        self._size_bytes -= size
        self._unwritten -= len(calls)
        for written in calls:
            if written is not None:
                written()
        if was_full and not self.is_full:
            self._on_room()
        if not self._unwritten:
            self._drained.set()

    def _close(self, fault: OSError | None) -> None:
        if not self.closed.done():
            self.closed.set_result(None if fault is None or fault.errno == errno.EPIPE else fault)

    def _watch_reader(self) -> None:
        """Notice at once that the reader of a pipe has gone: the next message may come much later, or never."""
        with contextlib.suppress(OSError, ValueError, NotImplementedError):
            if stat.S_ISFIFO(os.fstat(STDOUT).st_mode):
                self._loop.add_reader(STDOUT, self._reader_gone)

    def _reader_gone(self) -> None:
        poll = select.poll()
        poll.register(STDOUT, 0)
        self._loop.remove_reader(STDOUT)
        if poll.poll(0):
            self._close(None)


def _write(text: bytes) -> None:
    view = memoryview(text)
    while view:
        try:
            view = view[os.write(STDOUT, view) :]
        except BlockingIOError:  # whoever has it as well made it non-blocking
            select.select([], [STDOUT], [])
