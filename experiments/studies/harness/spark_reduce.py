"""Makes the collector's tables from landed records, by Spark in its own process, since a process can have one session.

Owns that process, the Parquet folder, and the handling of an experiment whose Spark process fails.
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
from ringmq.experiments.processes.signals import held_back
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome, Request

STOP_S: Final = 30.0
"""Time for Spark to end after an interrupt."""
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
"""Default options of Java. The job is too short for the optimising compiler: without it, it takes half of the time. But
then Java reserves 48 MB instead of 240 MB for compiled code, and one run in four ended with "Out of space in CodeCache
for adapters". One thread that collects garbage saves another eighth of the work of a start."""
METADATA: Final = "_spark_metadata"
"""File index in the Parquet folder. It has absolute paths, so it must be removed when the folder is moved."""


def reduce(data: Path, request: Request, outcome: Outcome) -> Tables:
    """The tables of a data folder, whose Parquet moves into the folder of the request.

    Spark may fail for reasons outside the data. A second attempt continues where the first attempt stopped. If it fails
    too, there are no tables, and the outcome is broken; an interrupt is raised. In both cases the landed records are
    kept and reported: `ringmq collect` can make tables of them.
    """
    try:
        try:
            reduced_tables = tables(data)
        except ExperimentError as error:
            request.progress.say(f"trying again: {error.message}")
            reduced_tables = tables(data)
    except ExperimentError as error:
        outcome.broken = True
        _keep_landed(data, request, outcome, error.message)
        return {}
    except KeyboardInterrupt:
        _keep_landed(data, request, outcome, "interrupted")
        raise
    keep_parquet(data, request.folder)
    return reduced_tables


def _keep_landed(data: Path, request: Request, outcome: Outcome, reason: str) -> None:
    outcome.left_out.append(f"tables of the collector: {reason}; the records are in {LANDING}/")
    request.progress.say(outcome.left_out[-1])
    (data / LANDING).rename(request.folder / LANDING)


def tables(data: Path) -> Tables:
    """All tables of the landed records, with None for missing values of a row. Raises ExperimentError."""
    find_java()
    command = [sys.executable, "-P", "-m", "ringmq.experiments.studies.harness.spark_job", str(data)]
    # A process group of its own: Ctrl-C must not end Spark, which still reduces the results so far.
    child: subprocess.Popen[bytes] | None = None
    try:
        with held_back():
            child = subprocess.Popen(  # noqa: S603  # it is ourselves
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                process_group=0,
                env={"JDK_JAVA_OPTIONS": JAVA} | os.environ,  # options of the user take precedence
            )
        _, errors = child.communicate()
    except BaseException:
        if child is not None:
            _end(child)
        raise
    if child.returncode:
        lines = errors.decode(errors="replace").strip().splitlines()
        raise ExperimentError(lines[-1] if lines else f"Spark ended with {child.returncode}")
    return {
        name: [{column: row.get(column) for column in HEADS[name].names} for row in rows]
        for name, rows in read_tables.read_local(data, HEADS).items()
    }


def keep_parquet(data: Path, folder: Path) -> None:
    """Move the Parquet folder, without Spark's file index, so that every reader of Parquet can read it."""
    kept = folder / PARQUET
    (data / PARQUET).rename(kept)
    shutil.rmtree(kept / METADATA, ignore_errors=True)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.communicate(timeout=STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
