"""A folder for the temporary files of a process, which is removed after its end, however it ends.

A killed process cannot clean up after itself, so the next process does. A lock shows whether the owner of a folder
still runs, or a child that has inherited the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = "ringmq-spark-"
LOCK: Final = "owner.lock"
ABANDONED_S: Final = 3600.0
"""The age at which a folder without a lock file is removed. A younger folder may be about to get its lock; an older
folder was created again after its owner had removed it."""


@contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent`, by default the system's folder of temporary files. Removes folders of killed owners."""
    parent = parent or Path(tempfile.gettempdir())
    for old in sorted(parent.glob(f"{PREFIX}*")):
        _remove_if_abandoned(old)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        with (folder / LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # A child that inherits the lock keeps the folder: the JVM may outlive this process for a moment.
            os.set_inheritable(lock.fileno(), True)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_abandoned(folder: Path) -> None:
    # BlockingIOError: the lock is held, so the folder is in use.
    with contextlib.suppress(OSError):
        found = folder.stat()
        if found.st_uid != os.getuid():
            return
        try:
            with (folder / LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            if time.time() - found.st_mtime > ABANDONED_S:
                shutil.rmtree(folder, ignore_errors=True)
