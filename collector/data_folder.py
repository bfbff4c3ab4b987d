"""Where things are in a data folder, on this machine or on any file system that Hadoop knows. Touches none of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

CHECKPOINT: Final = "checkpoint"
"""How far the stream is."""
PARQUET: Final = "parquet"
REDUCED: Final = "reduced"
"""The tables."""
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_HERE: Final = re.compile(r"(?i:file):(?!//)|(?i:file)://(?:localhost)?(?=/)")
_PATTERN: Final = re.compile(r"[\[\]{}*?\\]")


def below(folder: str, *names: str) -> str:
    """A path below a folder."""
    return "/".join((folder.rstrip("/"), *names))


def local_path(folder: str) -> Path | None:
    """The folder as a path of this machine; None if it is elsewhere."""
    here = _HERE.match(folder)
    if here:
        return Path(folder[here.end() :])
    return None if _URL.match(folder) else Path(folder)


def whole(folder: str) -> str:
    """The folder as Spark takes it, wherever the process is. Raises ValueError, one line, if Spark would misread it.

    A URL stays one: on this machine, too, it may be needed to say that it is there.
    """
    path = local_path(folder)
    named = folder if path is None else str(path.absolute())
    found = _PATTERN.search(named)
    if found:
        raise ValueError(f"{named!r} has a {found[0]}, and Spark takes names with any of [ ] {{ }} * ? \\ for patterns")
    return f"file:{named}" if path is not None and _HERE.match(folder) else named
