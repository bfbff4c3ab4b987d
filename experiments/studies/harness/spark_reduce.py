"""From landed records to the collector's tables, by Spark in a process of its own: a process can have one session.

Owns that process, what becomes of the Parquet, and of an experiment when Spark fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from ringmq.collector.data_folder import PARQUET
from ringmq.collector.ingest.spool import LANDING
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.collector.report import read_tables
from ringmq.collector.report.read_tables import Tables
from ringmq.collector.spark.java import find_java
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome, Request

STOP_S: Final = 30.0
"""How long Spark has to end when somebody does not want to wait any more."""
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""Unless somebody says otherwise. All is done before it would pay to compile any better: it takes half of the time. But
then Java keeps 48 MB for what is compiled in the place of 240, which is too little one time in four: "Out of space in
CodeCache for adapters" ends it."""
METADATA: Final = "_spark_metadata"
"""In the Parquet: it names files by where they were, so that who has moved them does without."""


def reduce(data: Path, request: Request, outcome: Outcome) -> Tables:
    """All tables of a data folder, whose Parquet goes into the folder of the request.

    Spark may break down for no reason of ours; once more, it goes on where it was. If it fails again there are no
    tables, and the outcome is broken; if somebody interrupts it, that is raised. Either way what has landed is kept,
    and it is said: `ringmq collect` can make tables of it.
    """
    try:
        try:
            found = tables(data)
        except ExperimentError as error:
            request.progress.say(f"once more: {error.message}")
            found = tables(data)
    except ExperimentError as error:
        outcome.broken = True
        _keep_landed(data, request, outcome, error.message)
        return {}
    except KeyboardInterrupt:
        _keep_landed(data, request, outcome, "interrupted")
        raise
    keep_parquet(data, request.folder)
    return found


def _keep_landed(data: Path, request: Request, outcome: Outcome, reason: str) -> None:
    outcome.left_out.append(f"tables of the collector: {reason}; the records are in {LANDING}/")
    request.progress.say(outcome.left_out[-1])
    (data / LANDING).rename(request.folder / LANDING)


def tables(data: Path) -> Tables:
    """All tables of what has landed in a data folder, with None where a row has no value. Raises ExperimentError."""
    find_java()
    command = [sys.executable, "-P", "-m", "ringmq.experiments.studies.harness.spark_job", str(data)]
    # A group of its own: Ctrl-C is for us. What was measured until then is still to be reduced.
    with subprocess.Popen(  # noqa: S603  # it is ourselves
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        process_group=0,
        env={"JDK_JAVA_OPTIONS": JAVA} | os.environ,
    ) as child:
        try:
            _, said = child.communicate()
        except BaseException:
            _end(child)
            raise
    if child.returncode:
        lines = said.decode(errors="replace").strip().splitlines()
        raise ExperimentError(lines[-1] if lines else f"Spark ended with {child.returncode}")
    found = read_tables.read_local(data, HEADS)
    return {
        name: [{column: row.get(column) for column in HEADS[name].names} for row in rows]
        for name, rows in found.items()
    }


def keep_parquet(data: Path, folder: Path) -> None:
    """Move the Parquet into a folder, where anything that knows Parquet reads it."""
    kept = folder / PARQUET
    (data / PARQUET).rename(kept)
    shutil.rmtree(kept / METADATA, ignore_errors=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
