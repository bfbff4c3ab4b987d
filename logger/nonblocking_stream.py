"""A stream for log lines that never blocks: if the reader stops reading, the process continues.

Owns the handling of lines that the reader does not take: they are dropped and counted.
"""

from __future__ import annotations

import os
import select
import stat
from typing import Final, TextIO

ATOMIC_BYTES: Final = 4096
"""A writable pipe has room for this many bytes (PIPE_BUF); a longer line is cut."""


def may_block(stream: TextIO) -> bool:
    """Whether a write to this stream can block until somebody reads: true for pipes and sockets."""
    # Files never block. A terminal can, but then a person has stopped it on purpose, to read.
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class NonBlockingStream:
    """The methods of a text stream that log lines need: `write`, then `flush`."""

    def __init__(self, stream: TextIO) -> None:
        self._file = stream.fileno()
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLOUT)
        self.dropped = 0

    def write(self, text: str) -> int:
        if self.dropped:
            # The notice goes first, at the position of the gap. Its success also shows that the reader reads again.
            missing, self.dropped = self.dropped, 0
            if not self._write_now(f"{missing} lines were dropped: nobody read them\n"):
                self.dropped = missing
        if self.dropped or not self._write_now(text):
            self.dropped += 1
        return len(text)

    def flush(self) -> None:
        """Does nothing: no text is buffered."""

    def isatty(self) -> bool:
        return False

    def _write_now(self, text: str) -> bool:
        if not self._poll.poll(0):
            return False
        raw = text.encode("utf-8", "replace")
        if len(raw) > ATOMIC_BYTES:
            raw = raw[: ATOMIC_BYTES - 4] + "…\n".encode()
        try:
            os.write(self._file, raw)
        except OSError:  # the reader has closed the pipe
            return False
        return True
