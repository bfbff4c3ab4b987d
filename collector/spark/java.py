"""Finds Java, which Spark runs on, and says how to get one that is new enough. Nothing else of the project needs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ringmq.collector.errors import CollectorError

LEAST: Final = 17
"""What Spark 4 needs."""
ASK_S: Final = 20.0
"""A Java that takes longer to say its version is of no use."""
REMEDY: Final = f"on Debian or Ubuntu run: apt-get install openjdk-{LEAST}-jre-headless; or set JAVA_HOME"
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def find_java() -> Path:
    """The Java that Spark will take: that of JAVA_HOME, or else the first on the PATH.

    Raises CollectorError, one line, if there is none or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        where = f"in JAVA_HOME, which is {home}" if home else "on the PATH"
        raise CollectorError(f"Spark needs Java {LEAST} or newer, and there is none {where}: {REMEDY}")
    version = _version_of(found)
    if version < LEAST:
        raise CollectorError(f"Spark needs Java {LEAST} or newer, and {found} is {version}: {REMEDY}")
    return Path(found)


def _version_of(java: str) -> int:
    try:
        asked = subprocess.run(  # noqa: S603  # it is the user's own Java
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=ASK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CollectorError(f"{java} cannot be run: {error}: {REMEDY}") from error
    match = _VERSION.search(asked.stderr + asked.stdout)
    if asked.returncode or match is None:
        raise CollectorError(f"{java} does not say its version: {REMEDY}")
    return int(match[1])
