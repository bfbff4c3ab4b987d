"""`--against`: its options, and a small comparison of this version with itself."""

from __future__ import annotations

import json
import os
import signal
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringmq.experiments.benchmarks.against import Comparison, Cost, Schedule
from ringmq.experiments.cli import bench, bench_against
from ringmq.experiments.load.patterns import PATTERNS
from ringmq.experiments.processes.checkouts import Checkout
from tests.conftest import Eventually, Process

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a benchmark needs two cores")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder whose `ringmq` is that of this environment."""
    program = tmp_path / "checkout" / ".venv" / "bin" / "ringmq"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sysconfig.get_path("scripts")}/ringmq" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return tmp_path / "checkout"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(bench.bench, [str(argument) for argument in arguments])


@needs_two_cores
@pytest.mark.parametrize(
    ("command", "pattern", "qos", "name"),
    [("front", "qos0-1to10", 2, "qos2-1to10-100B"), ("ring", "two-1to1", 1, "qos1-two-1to1-100B")],
)
def test_small_comparison_has_all_figures(checkout: Path, command: str, pattern: str, qos: int, name: str) -> None:
    small = ("--repeats", 2, "--seconds", 0.1, "--rate", 1000, "--qos", qos, "--payload", 100)
    result = run(command, "--against", checkout, "--pattern", pattern, *map(str, small), "--json", "--verbose")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert set(figures) == {name, "goals"}
    found = figures[name]
    assert found["rate_hz"] == 1000
    for ratio in (found["cpu_ratio"], found["idle_memory_ratio"]):
        assert 0 < ratio["low"] <= ratio["median"] <= ratio["high"] < 100
        assert ratio["confidence"] == 0.5
    assert found["other"]["checkout"] == str(checkout)
    for side in ("this", "other"):
        pairs = found[side]["pairs"]
        assert len(pairs) == 2
        assert all(cost["cpu_s_per_million"] > 0 and cost["idle_bytes"] > 1e6 for cost in pairs)
    assert len(figures["goals"]) == 2
    assert "this / other: processor time of a delivery" in result.stderr


@pytest.mark.parametrize("command", ["front", "ring"])
def test_a_checkout_without_an_environment_is_one_line(command: str, tmp_path: Path) -> None:
    result = run(command, "--against", tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path} has no .venv/bin/ringmq: run: make -C {tmp_path} venv" in result.output


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("front", "--rate", "100"), "--rate needs --against"),
        (("ring", "--rate", "100"), "--rate needs --against"),
        (("front", "--servers", "peer", "--against"), "--servers cannot be combined with --against"),
        (("front", "--idle", "3", "--against"), "--idle cannot be combined with --against"),
        (("front", "--filters", "3", "--against"), "--filters cannot be combined with --against"),
        (("front", "--quick", "--against"), "--quick cannot be combined with --against"),
        (("ring", "--patience", "1", "--against"), "--patience cannot be combined with --against"),
        (("ring", "--sides", "ringmq", "--against"), "--sides cannot be combined with --against"),
        (("front", "--qos", "3", "--against"), "Invalid value for '--qos'"),
        (("front", "--payload", "1000001", "--against"), "Invalid value for '--payload'"),
        (("front", "--rate", "0", "--against"), "Invalid value for '--rate'"),
    ],
)
def test_options_that_make_no_sense_are_refused(checkout: Path, options: tuple[str, ...], error: str) -> None:
    result = run(*options, *([checkout] if options[-1] == "--against" else []))
    assert result.exit_code == 2
    assert error in result.output


def test_table_has_both_sides_and_the_interval(checkout: Path) -> None:
    pair = (Checkout("this", Path("/a"), Path("/a/ringmq")), Checkout("other", Path("/b"), Path("/b/ringmq")))
    found = Comparison(
        20_000.0,
        [
            {"this": Cost(3.0, 41e6, 19_000.0, 0.0), "other": Cost(cost, 40e6, 20_000.0, 0.0)}
            for cost in (2.0, 3.0, 4.0)
        ],
    )
    lines = bench_against.table(PATTERNS["qos0-1to1"], found, pair, Schedule(pairs=3)).split("\n")
    assert lines[0] == "qos0-1to1: 20,000 publications/s, 3 pairs, 2 s of each side"
    assert lines[2].split() == ["this", "3.000", "0.0%", "19000", "41.0", "/a"]
    assert lines[3].split() == ["other", "3.000", "66.7%", "20000", "40.0", "/b"]
    assert "processor time of a delivery 1.000 (0.750-1.500), memory of an idle peer 1.025 (1.025-1.025)" in lines[4]
    assert "confidence 75.0%" in lines[5]


@needs_two_cores
def test_sigterm_ends_the_peers_of_both_sides(
    start: Callable[..., Process], checkout: Path, eventually: Eventually
) -> None:
    process = start("bench", "ring", "--against", str(checkout), "--seconds", "600", "--rate", "100")
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    pids = eventually(lambda: found if len(found := children.read_text().split()) == 4 else [], 60, "four peers")
    assert process.end(signal.SIGTERM, within_s=30) == 130
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), 20, "the end of the peers")
