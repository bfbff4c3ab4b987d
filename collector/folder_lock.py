"""A folder that only one process may use at a time: a lock that ends with its holder, however it ends."""

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
    """A hold on `folder`, made if missing, in the name of `user`: others of that name are kept out until `close`."""

    def __init__(self, folder: Path, user: str) -> None:
        """Raises CollectorError if another has it, or the folder cannot be used."""
        Disk().make(folder)
        try:
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
        """Let another process have the folder. The lock file stays: removing it would let two in."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


@contextmanager
def hold(data: str, user: str) -> Iterator[None]:
    """Keep others of the name `user` out of a data folder, if it is on this machine.

    Raises CollectorError if there is one, or no such folder.
    """
    folder = local_path(data)
    with ExitStack() as stack:
        if folder is not None:
            if not folder.is_dir():
                raise CollectorError(f"data: there is no folder {folder}: run ringmq collect ingest first")
            stack.enter_context(FolderLock(folder, user))
        yield
