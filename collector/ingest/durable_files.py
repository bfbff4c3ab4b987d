"""File operations whose results survive a power cut. Each operation is one call, and raises CollectorError.

Knows nothing about the content of the files. Tests replace it by a disk that forgets unsynchronised changes.
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
        """Create a folder and its missing parents. They are on the disk when this returns."""
        # Not `mkdir(parents=True)`: every new folder needs a sync of its parent, or a power cut may remove it.
        if not folder.is_dir():
            if folder.parent != folder:
                self.make(folder.parent)
            self._try("create", folder, lambda: folder.mkdir(exist_ok=True))
            self.sync(folder.parent)

    def names(self, folder: Path) -> list[str]:
        """The names of the files in a folder, sorted."""
        return self._try("read", folder, lambda: sorted(entry.name for entry in os.scandir(folder) if entry.is_file()))

    def read(self, file: Path) -> bytes | None:
        """The content of a file; None if the file does not exist."""
        try:
            return self._try("read", file, file.read_bytes)
        except CollectorError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise

    def write(self, file: Path, pieces: Iterable[bytes]) -> None:
        """Write a file. Its content is on the disk when this returns, its name only after `sync` of its folder."""

        def write() -> None:
            with file.open("wb") as target:
                target.writelines(pieces)
                target.flush()
                os.fsync(target.fileno())

        self._try("write", file, write)

    def move(self, file: Path, to: Path) -> None:
        """Rename a file atomically, replacing `to`. The new name is on the disk after `sync` of the folder of `to`."""
        self._try("write", to, lambda: file.replace(to))

    def remove(self, file: Path) -> None:
        self._try("remove", file, file.unlink)

    def sync(self, folder: Path) -> None:
        """The names in this folder are on the disk when this returns."""

        def sync() -> None:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)

        self._try("write", folder, sync)

    def _try(self, verb: str, path: Path, operation: Callable[[], Result]) -> Result:
        try:
            return operation()
        except OSError as error:
            raise CollectorError(f"data: cannot {verb} {path}: {error.strerror}") from error
