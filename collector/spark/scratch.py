"""A folder for what a process writes on its way, which is gone after it, however it ended.

A killed process cannot clean up after itself, so the next one does: a lock tells whether the owner is still there, or
somebody who has inherited it.
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
LEFT_S: Final = 3600.0
"""A younger folder without a lock may be just being made. An older one was made again when its owner had removed it."""


@contextmanager
def scratch(parent: Path | None = None) -> Iterator[Path]:
    """A new folder in `parent`, by default where temporary files go. Removes those of owners that were killed."""
    parent = parent or Path(tempfile.gettempdir())
    for old in sorted(parent.glob(f"{PREFIX}*")):
        _remove_if_left(old)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    try:
        with (folder / LOCK).open("wb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Who is started with it has the folder, too: it may outlive us for a moment.
            os.set_inheritable(lock.fileno(), True)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        found = folder.stat()
        if found.st_uid != os.getuid():
            return
        try:
            with (folder / LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except FileNotFoundError:
            if time.time() - found.st_mtime > LEFT_S:
                shutil.rmtree(folder, ignore_errors=True)
