"""A folder for what a process writes on its way, which is gone after it, however it ended.

A killed process cannot clean up after itself, so the next one does: a lock tells whether the owner is still there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

PREFIX: Final = "ringmq-spark-"
LOCK: Final = "owner.lock"


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
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _remove_if_left(folder: Path) -> None:
    """One without a lock file is just being made, or not ours."""
    with contextlib.suppress(OSError), (folder / LOCK).open("rb") as lock:
        if os.fstat(lock.fileno()).st_uid == os.getuid():
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
