"""A stream for log lines that never waits: whoever reads them may stop reading, and the process goes on.

Owns what happens to lines that nobody takes: they are left out and counted.
"""

from __future__ import annotations

import os
import select
import stat
from typing import Final, TextIO

ATOMIC_BYTES: Final = 4096
"""A pipe that is writable has room for as many (PIPE_BUF); a longer line is cut."""


def waits(stream: TextIO) -> bool:
    """Whether writing to it may have to wait for a reader: files never do, and a person may stop a terminal."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class Impatient:
    """As much of a text stream as log lines need: one `write` per line, then `flush`."""

    def __init__(self, stream: TextIO) -> None:
        self._file = stream.fileno()
        self._poll = select.poll()
        self._poll.register(self._file, select.POLLOUT)
        self.left_out = 0

    def write(self, text: str) -> int:
        if self.left_out:
            missing, self.left_out = self.left_out, 0
            if not self._put(f"{missing} lines were left out: nobody read them\n"):
                self.left_out = missing
        if self.left_out or not self._put(text):
            self.left_out += 1
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def isatty(self) -> bool:
        return False

    def _put(self, text: str) -> bool:
        if not self._poll.poll(0):
            return False
        raw = text.encode("utf-8", "replace")
        if len(raw) > ATOMIC_BYTES:
            raw = raw[: ATOMIC_BYTES - 4] + "…\n".encode()
        try:
            os.write(self._file, raw)
        except OSError:  # its reader has gone for good
            return False
        return True
