"""Finds Java for Spark, and reports how to install a version that is new enough. Only Spark jobs need Java."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

from ringmq.collector.errors import CollectorError

MIN_VERSION: Final = 17
"""The oldest version that Spark 4 supports."""
VERSION_TIMEOUT_S: Final = 20.0
"""The longest time for `java -version`. A slower Java is useless for a job."""
REMEDY: Final = f"on Debian or Ubuntu run: apt-get install openjdk-{MIN_VERSION}-jre-headless; or set JAVA_HOME"
# Java 8 and older begin their version with "1.".
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


def find_java() -> Path:
    """The Java that Spark will use: the Java of JAVA_HOME, else the first on the PATH.

    Raises CollectorError with one line if there is none or it is too old.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        where = f"in JAVA_HOME ({home})" if home else "on the PATH"
        raise CollectorError(f"Spark needs Java {MIN_VERSION} or newer, found none {where}: {REMEDY}")
    version = _version_of(found)
    if version < MIN_VERSION:
        raise CollectorError(f"Spark needs Java {MIN_VERSION} or newer, {found} is {version}: {REMEDY}")
    return Path(found)


def _version_of(java: str) -> int:
    try:
        process = subprocess.run(  # noqa: S603  # the user's own Java
            [java, "-version"], capture_output=True, text=True, errors="replace", timeout=VERSION_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CollectorError(f"cannot run {java}: {error}: {REMEDY}") from error
    # Java writes its version to stderr, and may write notes about its options before it.
    match = _VERSION.search(process.stderr + process.stdout)
    if process.returncode or match is None:
        raise CollectorError(f"cannot read the version of {java}: {REMEDY}")
    return int(match[1])
