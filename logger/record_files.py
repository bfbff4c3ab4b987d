"""Records in files: one JSON object per line, appended, and put aside when a file has its size.

Owns the file and its older parts. Nothing is held open between two batches, so whoever moves or deletes files in the
meantime does no harm. What cannot be written is counted and given up: a peer does not wait for a disk.
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
"""Older files beside the one that is written to. The oldest goes when there would be more."""
QUIET_S: Final = 60.0
"""At least, between two lines in the log that say that records cannot be written."""

_log = structlog.get_logger()


class FileSink:
    """Appends batches to `path`. Older parts are `path.1`, the latest, up to `path.<kept>`, at least one."""

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
        self._complained = False
        self.lost = 0
        """Lines that could not be written."""

    def write(self, batch: bytes) -> None:
        """Append lines, each with its end: all of them or, if the system refuses, none. Never raises OSError."""
        try:
            self._make_room(len(batch))
            self._append(batch)
        except OSError as error:
            self.lost += batch.count(b"\n")
            self._complain(error.strerror or str(error))
        else:
            self._relent()

    def _make_room(self, size: int) -> None:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is no regular file")
        if found.st_size and found.st_size + size > self._max_bytes:
            for number in range(self._kept, 0, -1):
                with contextlib.suppress(FileNotFoundError):
                    self._part(number - 1).replace(self._part(number))

    def _part(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _append(self, batch: bytes) -> None:
        with self._path.open("ab+", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a writer was killed within a line
                    batch = b"\n" + batch
            rest = memoryview(batch)
            try:
                while rest:
                    rest = rest[file.write(rest) :]
            except OSError:
                with contextlib.suppress(OSError):  # else it is half a line for the next batch
                    file.truncate(size)
                raise

    def _complain(self, why: str) -> None:
        now = self._clock()
        if not self._complained and (self._warned_at is None or now >= self._warned_at + QUIET_S):
            self._warned_at, self._complained = now, True
            _log.warning("records cannot be written", file=str(self._path), why=why)

    def _relent(self) -> None:
        if self._complained:
            self._complained = False
            _log.info("records are written again", file=str(self._path), lost=self.lost)
