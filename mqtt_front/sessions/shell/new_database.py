"""Makes a database file whole or not at all, so that an empty file can only be one that was damaged."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path


def make_database(path: Path, script: str) -> None:
    """Make the file by this SQL, unless it is there. Raises sqlite3.Error for a file that has lost its content, and
    OSError.
    """
    if path.exists():
        if not path.stat().st_size:
            raise sqlite3.DatabaseError(
                "it is empty, so what was in it is lost: restore it, or delete it to begin anew"
            )
        return
    log = path.with_name(f"{path.name}-wal")
    if log.exists():  # SQLite would take what is in it for changes of the new file.
        raise sqlite3.DatabaseError(f"it is gone, and its log is there: restore it, or delete {log} to begin anew")
    beside = path.with_name(f"{path.name}.new")
    # One of a process that ended meanwhile; SQLite may have left a journal beside it.
    for leftover in (beside, beside.with_name(f"{beside.name}-journal")):
        leftover.unlink(missing_ok=True)
    beside.touch(0o600)  # Messages are nobody's business. SQLite gives its log the same rights.
    with closing(sqlite3.connect(beside, isolation_level=None)) as database:
        database.executescript(f"BEGIN; {script} COMMIT;")
    beside.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
