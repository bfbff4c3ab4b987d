"""The stages of the collector with few records, and the verdicts on their figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.spark.java import find_java
from ringmq.experiments.benchmarks import collector
from ringmq.experiments.benchmarks.collector import StageFigures, slope, verdicts, watched
from ringmq.experiments.load.raw_clients import BenchError

RECORDS = 3_000


def has_java() -> bool:
    try:
        find_java()
    except CollectorError:
        return False
    return True


def made(records: int, wall_s: float) -> StageFigures:
    return StageFigures(records, wall_s, wall_s, 1)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a benchmark needs two cores")
def test_all_published_records_land(tmp_path: Path) -> None:
    figures = collector.ingest(tmp_path, RECORDS, seed=1)
    lines = [line for file in (tmp_path / "landing").iterdir() for line in file.read_bytes().splitlines()]
    names = {(record["peer"], record["number"]) for record in map(json.loads, lines)}
    assert len(lines) == len(names) == figures.records == RECORDS
    assert 0 < figures.cpu_s < 60
    assert 0 < figures.wall_s < 60
    assert figures.memory_bytes > 10_000_000


def test_ingest_that_cannot_start_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BenchError, match="collect ingest: ringmq: data: "):
        collector.ingest(tmp_path / "file", RECORDS, seed=1)


@pytest.mark.skipif(not has_java(), reason="there is no Java")
def test_start_time_of_spark_is_measured(tmp_path: Path) -> None:
    assert 0.5 < collector.start_s(tmp_path, "local[1]") < 120


def test_failed_command_is_an_error(tmp_path: Path) -> None:
    with (
        watched("show", "--data", str(tmp_path)) as command,
        pytest.raises(BenchError, match="collect show: ringmq: data: "),
    ):
        command.end(0)


def test_command_is_killed_at_the_end_of_its_context(tmp_path: Path) -> None:
    with watched("ingest", "--data", str(tmp_path)) as command:
        process = command.process
    assert process.returncode is not None


def test_slope_is_the_exponent_of_the_time() -> None:
    assert slope([made(10, 1.0), made(100, 10.0)]) == pytest.approx(1)
    assert slope([made(10, 1.0), made(1000, 10.0)]) == pytest.approx(0.5)
    assert slope([made(10, 6.0), made(100, 15.0)], start_s=5.0) == pytest.approx(1)


def test_verdicts_judge_the_measured_goals() -> None:
    found = {
        "ingest": [made(100_000, 1.0), made(10_000_000, 1000.0)],
        "reduce": [made(100_000, 5.0), made(10_000_000, 100.0)],
    }
    assert [str(verdict).split(":")[0] for verdict in verdicts(found)] == ["MISSED", "MISSED", "reached"]
    found = {
        "ingest": [made(10_000_000, 100.0)],
        "reduce": [made(1_000_000, 5.0), made(10_000_000, 60.0)],
    }
    assert [str(verdict).split(":")[0] for verdict in verdicts(found)] == ["reached", "reached", "MISSED"]
    assert verdicts({"ingest": [], "reduce": [made(1000, 1.0)]}) == []
