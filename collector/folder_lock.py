"""A lock on a folder that only one process may use at a time. The lock ends with its process, even after `kill -9`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from ringmq.collector.data_folder import local_path
from ringmq.collector.errors import CollectorError
from ringmq.collector.ingest.durable_files import Disk


class FolderLock:
    """An exclusive lock on `folder` for one kind of `user`, such as "ingest", until `close`. Creates the folder."""

    def __init__(self, folder: Path, user: str) -> None:
        """Raises CollectorError if another process holds the lock, or the folder cannot be used."""
        Disk().make(folder)
        try:
            # Close-on-exec: an inherited descriptor would keep the lock while a child runs.
            self._lock = os.open(folder / f"{user}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CollectorError(f"data: cannot use {folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise CollectorError(f"data: {folder} is in use by another {user}: each needs its own") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock."""
        # The file stays. If it were removed, a process that had opened the old file and a process that creates a new
        # file could both hold a lock.
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@contextmanager
def hold(data: str, user: str) -> Iterator[None]:
    """Hold the lock of `user` on a data folder, if the folder is on this machine.

    Raises CollectorError if another process holds it, or the folder does not exist.
    """
    folder = local_path(data)
    with ExitStack() as stack:
        if folder is not None:
            # FolderLock would create the folder, and hide a mistyped path.
            if not folder.is_dir():
                raise CollectorError(f"data: there is no folder {folder}: run ringmq collect ingest first")
            stack.enter_context(FolderLock(folder, user))
        yield
