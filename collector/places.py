"""Where things are in a data folder, on this machine or on any file system that Hadoop knows. Touches none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

CHECKPOINT: Final = "checkpoint"
"""How far the stream is."""
PARQUET: Final = "parquet"
REDUCED: Final = "reduced"
"""The tables."""


def below(folder: str, *names: str) -> str:
    """A path below a folder."""
    return "/".join((folder.rstrip("/"), *names))


def local_path(folder: str) -> Path | None:
    """The folder as a path of this machine; None if it is elsewhere."""
    parts = urlsplit(folder)
    if parts.scheme == "file":
        return Path(parts.path)
    return None if "://" in folder else Path(folder)
