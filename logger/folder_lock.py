"""A lock that only one process holds on a folder at a time. The system frees it however that process ends.

It stands here because peers and the collector both lock a data folder, and `logger` is the only package that both may
import. It knows neither of them: the caller names the lock file and its user.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Self

from ringmq.logger.errors import LoggerError


class FolderLock:
    """Holds the lock from its creation until `close`."""

    def __init__(self, folder: Path, file_name: str, user: str) -> None:
        """Lock a folder that exists. `user` names the kind of process in the error for a second one.

        Raises LoggerError if another process holds the lock, or if the folder cannot be used.
        """
        try:
            # Close-on-exec: an inherited descriptor would keep the lock while a child runs.
            self._lock = os.open(folder / file_name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LoggerError(f"data: cannot use {folder}: {error.strerror}") from error
        try:
            # flock, not lockf: a POSIX lock would end when this process closes any other descriptor of the file.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            raise LoggerError(f"data: {folder} is in use by another {user}: each needs its own") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the lock. Idempotent."""
        # The file stays: if it were removed, a process that opened it before and a later one could both hold a lock.
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
