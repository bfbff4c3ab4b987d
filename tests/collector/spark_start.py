"""Starts Spark with half of the work: its JVM maps an archive of the classes that another JVM loaded and verified.

The archive is made once in a run of the tests. To make it takes the work of three starts, and there are twenty.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ringmq.experiments.studies.harness.spark_reduce import JAVA

SCRIPT: Final = """
import pathlib, sys
from ringmq.collector.cli.options import MASTER
from ringmq.collector.spark import jvm
from ringmq.collector.spark.session import session
folder = pathlib.Path(sys.argv[1])
jvm.STOP_S = 300.0  # Java writes the archive at its end
try:
    with session(MASTER, {}) as spark:
        spark.range(10).count()
    (folder / "spark.part").rename(folder / "spark.jsa")
finally:
    (folder / "spark.ended").touch()
"""
PATIENCE_S: Final = 30.0
"""The longest time that the tests of a process wait for the archive. Without it they are only slower."""


@contextmanager
def options(folder: Path) -> Iterator[Callable[[], dict[str, str]]]:
    """Gives the variables for a quick start, which may change while an archive is made. The first process that needs
    them begins to make it in this folder."""
    maker: subprocess.Popen[bytes] | None = None
    try:
        (folder / "spark.begun").mkdir()
    except FileExistsError:
        pass
    else:
        maker = _begin(folder)
    deadline = time.monotonic() + PATIENCE_S

    def given() -> dict[str, str]:
        while not (folder / "spark.ended").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        archive = folder / "spark.jsa"
        more = {"SPARK_SUBMIT_OPTS": f"-XX:SharedArchiveFile={archive}"} if archive.exists() else {}
        return {"JDK_JAVA_OPTIONS": JAVA, **more}

    try:
        yield given
    finally:
        if maker is not None:
            maker.terminate()
            with suppress(subprocess.TimeoutExpired):
                maker.wait(PATIENCE_S)
            maker.kill()  # its JVM ends with it
            maker.wait()


def _begin(folder: Path) -> subprocess.Popen[bytes]:
    making = {"JDK_JAVA_OPTIONS": JAVA, "SPARK_SUBMIT_OPTS": f"-XX:ArchiveClassesAtExit={folder}/spark.part"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(folder)],
        env=os.environ | making,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
