"""Writing files so that they are still there after a power cut. Each step is one call, and raises CollectorError.

Knows nothing of what is written. Tests put a disk in its place that forgets what was not synchronised.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from ringmq.collector.errors import CollectorError

Result = TypeVar("Result")


class Disk:
    """The disk of this machine."""

    def make(self, folder: Path) -> None:
        """Make a folder and those above it, all on the disk when this returns; one that is there is left as it is."""
        if not folder.is_dir():
            if folder.parent != folder:
                self.make(folder.parent)
            self._try("make", folder, lambda: folder.mkdir(exist_ok=True))
            self.sync(folder.parent)

    def names(self, folder: Path) -> list[str]:
        """Of the files there, in order."""
        return self._try("read", folder, lambda: sorted(entry.name for entry in os.scandir(folder) if entry.is_file()))

    def read(self, file: Path) -> bytes | None:
        """None if there is no such file."""
        try:
            return self._try("read", file, file.read_bytes)
        except CollectorError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def write(self, file: Path, pieces: Iterable[bytes]) -> None:
        """What is in it is on the disk when this returns; whether it is there, only after `sync` of its folder."""

        def write() -> None:
            with file.open("wb") as target:
                target.writelines(pieces)
                target.flush()
                os.fsync(target.fileno())

        self._try("write", file, write)

    def move(self, file: Path, to: Path) -> None:
        """At once, in the place of one that is there. On the disk after `sync` of the folder that it is moved to."""
        self._try("write", to, lambda: file.replace(to))

    def remove(self, file: Path) -> None:
        self._try("remove", file, file.unlink)

    def sync(self, folder: Path) -> None:
        """The names in it are on the disk when this returns."""

        def sync() -> None:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

        self._try("write", folder, sync)

    def _try(self, what: str, path: Path, step: Callable[[], Result]) -> Result:
        try:
            return step()
        except OSError as error:
            raise CollectorError(f"data: cannot {what} {path}: {error.strerror}") from error
