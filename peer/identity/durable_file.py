"""Replaces a small file of the data folder atomically and durably. Knows nothing of its content."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ringmq.peer.errors import DataFolderError

SHARED_MODE: Final = 0o666
"""What the umask leaves of it, as for any file that a program makes."""
SECRET_MODE: Final = 0o600


def replace_durably(file: Path, content: bytes, mode: int = SHARED_MODE) -> None:
    """After a power cut the file has the old or the new content. Raises DataFolderError with one line."""
    fresh = file.with_suffix(".new")
    try:
        fresh.unlink(missing_ok=True)  # its mode may be another
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "wb") as output:
            output.write(content)
            output.flush()
            os.fsync(output.fileno())
        fresh.replace(file)
        # The rename itself is an entry of the folder, so it is durable only after a sync of the folder.
        folder = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise DataFolderError(f"data: cannot write {file}: {error.strerror}") from error
