"""Records in files: one JSON object per line, appended to a file that is rotated when it is full.

Owns the file and its older parts. No file stays open between two batches, so other programs may move or delete the
files. Records that cannot be written are counted and dropped: a peer does not wait for a disk.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

MAX_FILE_BYTES: Final = 64 << 20
KEPT: Final = 8
"""Older parts beside the current file. The oldest part is deleted when there would be more."""
QUIET_S: Final = 60.0
"""The least time between two warnings in the log that records cannot be written."""

_log = structlog.get_logger()


class FileSink:
    """Appends batches to `path`. Older parts are `path.1`, the latest, to `path.<kept>`; `kept` is at least 1."""

    def __init__(
        self,
        path: Path,
        max_bytes: int = MAX_FILE_BYTES,
        kept: int = KEPT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._kept = kept
        self._clock = clock
        self._warned_at: float | None = None
        self._failing = False
        self.lost = 0
        """Lines that could not be written."""

    def write(self, batch: bytes) -> None:
        """Append lines, each with its line feed: all of them, or none if the write fails. Never raises OSError."""
        try:
            self._rotate_if_full(len(batch))
            self._append(batch)
        except OSError as error:
            self.lost += batch.count(b"\n")
            self._report_failure(error.strerror or str(error))
        else:
            self._report_recovery()

    def _rotate_if_full(self, size: int) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return
        # A folder or FIFO at this path belongs to somebody else, and rotation would rename it.
        if not stat.S_ISREG(found.st_mode):
            raise OSError("not a regular file")
        if found.st_size and found.st_size + size > self._max_bytes:
            # The oldest part first, so that every rename finds its new name free or overwrites only the oldest.
            for number in range(self._kept, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._part(number - 1).replace(self._part(number))

    def _part(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _append(self, batch: bytes) -> None:
        # Unbuffered: a write error then shows up here, where the half-written batch can still be cut off.
        with self._path.open("ab+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a writer was killed in the middle of a line
                    batch = b"\n" + batch
            rest = memoryview(batch)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                with contextlib.suppress(OSError):  # if this fails too, the next batch ends the incomplete line
                    file.truncate(size)
                raise

    def _report_failure(self, reason: str) -> None:
        now = self._clock()
        if not self._failing and (self._warned_at is None or now >= self._warned_at + QUIET_S):
            self._warned_at, self._failing = now, True
            _log.warning("cannot write records", file=str(self._path), why=reason)

    def _report_recovery(self) -> None:
        if self._failing:
            self._failing = False
            _log.info("writing records again", file=str(self._path), lost=self.lost)
