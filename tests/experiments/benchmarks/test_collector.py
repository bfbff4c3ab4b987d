"""The stages of the collector, with few records, and what is told of their figures."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.spark.java import find_java
from ringmq.experiments.benchmarks import collector
from ringmq.experiments.benchmarks.collector import Figures, slope, verdicts, watched
from ringmq.experiments.load.raw_clients import BenchError

RECORDS = 3_000


def java_is_there() -> bool:
    try:
        find_java()
    except CollectorError:
        return False
    return True


def made(records: int, wall_s: float) -> Figures:
    return Figures(records, wall_s, wall_s, 1)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a benchmark needs two cores")
def test_all_that_is_published_is_landed(tmp_path: Path) -> None:
    figures = collector.ingest(tmp_path, RECORDS, seed=1)
    lines = [line for file in (tmp_path / "landing").iterdir() for line in file.read_bytes().splitlines()]
    names = {(one["peer"], one["number"]) for one in map(json.loads, lines)}
    assert len(lines) == len(names) == figures.records == RECORDS
    assert 0 < figures.cpu_s < 60
    assert 0 < figures.wall_s < 60
    assert figures.memory_bytes > 10_000_000


def test_an_ingest_that_cannot_begin_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BenchError, match="collect ingest: ringmq: data: "):
        collector.ingest(tmp_path / "file", RECORDS, seed=1)


@pytest.mark.skipif(not java_is_there(), reason="there is no Java")
def test_what_starting_takes_is_measured(tmp_path: Path) -> None:
    assert 0.5 < collector.start_s(tmp_path, "local[1]") < 120


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    with (
        watched("show", "--data", str(tmp_path)) as command,
        pytest.raises(BenchError, match="collect show: ringmq: data: "),
    ):
        command.end(0)


def test_a_command_ends_with_its_context(tmp_path: Path) -> None:
    with watched("ingest", "--data", str(tmp_path)) as command:
        process = command.process
    assert process.returncode is not None


def test_the_slope_is_the_exponent() -> None:
    assert slope([made(10, 1.0), made(100, 10.0)]) == pytest.approx(1)
    assert slope([made(10, 1.0), made(1000, 10.0)]) == pytest.approx(0.5)
    assert slope([made(10, 6.0), made(100, 15.0)], start_s=5.0) == pytest.approx(1)


def test_goals_are_judged() -> None:
    found = {
        "ingest": [made(100_000, 1.0), made(10_000_000, 1000.0)],
        "reduce": [made(100_000, 5.0), made(10_000_000, 100.0)],
    }
    assert [str(one).split(":")[0] for one in verdicts(found)] == ["MISSED", "MISSED", "reached"]
    found = {
        "ingest": [made(10_000_000, 100.0)],
        "reduce": [made(1_000_000, 5.0), made(10_000_000, 60.0)],
    }
    assert [str(one).split(":")[0] for one in verdicts(found)] == ["reached", "reached", "MISSED"]
    assert verdicts({"ingest": [], "reduce": [made(1000, 1.0)]}) == []
