"""Paths in a data folder, on this machine or on any file system that Hadoop supports. Does not access them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

CHECKPOINT: Final = "checkpoint"
"""The folder with the progress of the stream."""
PARQUET: Final = "parquet"
REDUCED: Final = "reduced"
"""The folder of the tables."""
# A colon alone makes no URL: `run:1` is a valid name of a folder.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_LOCAL_URL: Final = re.compile(r"(?i:file):(?!//)|(?i:file)://(?:localhost)?(?=/)")
_PATTERN: Final = re.compile(r"[\[\]{}*?\\]")


def below(folder: str, *names: str) -> str:
    """A path below a folder."""
    return "/".join((folder.rstrip("/"), *names))


def local_path(folder: str) -> Path | None:
    """The folder as a path of this machine; None for a folder elsewhere."""
    url = _LOCAL_URL.match(folder)
    if url:
        return Path(folder[url.end() :])
    return None if _URL.match(folder) else Path(folder)


def spark_path(folder: str) -> str:
    """The folder as an absolute path or URL for Spark. Raises ValueError with one line if Spark would misread it."""
    path = local_path(folder)
    # Absolute: Spark may run in another working directory than this process.
    name = folder if path is None else str(path.absolute())
    sign = _PATTERN.search(name)
    if sign:
        raise ValueError(f"{name!r} contains {sign[0]}: Spark reads names with any of [ ] {{ }} * ? \\ as patterns")
    # A `file:` URL stays a URL: Hadoop looks up a plain path in its default file system, which may be another.
    return f"file:{name}" if path is not None and _LOCAL_URL.match(folder) else name
