"""`ringmq bench topics`: its options, and small runs."""

from __future__ import annotations

import json
import os
import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ringmq.experiments.benchmarks.topics import meter, runner
from ringmq.experiments.benchmarks.topics.costs import Reading, Work
from ringmq.experiments.benchmarks.topics.method import TopicsPattern
from ringmq.experiments.cli import bench_topics
from ringmq.experiments.cli.bench import bench
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.servers import why_not

needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a benchmark needs two cores")
QUICK = ("--rest", "0.05", "--settle", "0", "--pause", "0", "--load", "0.2")


@pytest.fixture(autouse=True)
def few_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meter, "MESSAGES", 200)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder whose `ringmq` is that of this environment."""
    program = tmp_path / "checkout" / ".venv" / "bin" / "ringmq"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec "{sysconfig.get_path("scripts")}/ringmq" "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    return tmp_path / "checkout"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(bench, ["topics", *map(str, arguments)])


@needs_two_cores
def test_patterns_have_figures_and_tables() -> None:
    result = run("connects", "new", "--peers", 2, "--count", 30, *QUICK, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert list(figures) == ["new", "connects", "goals"]
    (reading,) = figures["new"]["sides"]["this"]
    assert (figures["new"]["peers"], figures["new"]["count"], figures["new"]["qos"]) == (2, 30, 1)
    assert reading["works"]["new"]["units"] == reading["works"]["new"]["wanted"] == 30
    assert reading["works"]["new"]["ratio"] > 0
    assert reading["reference"]["cpu_us"] > 0
    assert reading["memory_before_bytes"] > 1e6
    assert reading["rest_after_cores"] >= 0
    assert "new: 2 peers, QoS 1\nside " in result.stderr


@needs_two_cores
def test_versions_take_turns(checkout: Path) -> None:
    options = ("--peers", 2, "--count", 20, "--repeats", 2, *QUICK)
    result = run("new", "--against", checkout, *options, "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)["new"]
    assert {name: len(found) for name, found in figures["sides"].items()} == {"this": 2, "other": 2}
    assert 0 < figures["cpu_ratios"]["new"]["low"] <= figures["cpu_ratios"]["new"]["high"]
    assert "this / other: processor time: message to a topic in use " in result.stderr


@needs_two_cores
@pytest.mark.skipif(why_not("mosquitto") is not None, reason="needs mosquitto")
def test_mosquitto_does_the_same_work() -> None:
    result = run("churn", "--clients", 2, "--peers", 2, "--count", 20, "--beside", "mosquitto", *QUICK)
    assert result.exit_code == 0, result.output
    assert any(line.split()[:2] == ["mosquitto", "pair,"] for line in result.stdout.splitlines())


@needs_two_cores
def test_new_is_measured_once_if_again_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def measure(source: object, pattern: str, *_: object) -> Reading:
        measured.append(str(pattern))
        raise BenchError("no ring")

    monkeypatch.setattr(bench_topics, "measure", measure)
    result = run("new", "again", "deep")
    assert measured == ["again", "deep"]
    assert result.exit_code == 1
    assert "again, this: no ring" in result.stderr


@needs_two_cores
@pytest.mark.parametrize(("lost", "status"), [(0, 0), (2, 1)])
def test_lost_messages_end_with_status_1(lost: int, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(Work("message", 1, done=1, seconds=1.0, cpu_s=1.0), lost=lost)
    monkeypatch.setattr(bench_topics, "measure", lambda *_: reading)
    assert run("filters").exit_code == status


@needs_two_cores
def test_pattern_that_breaks_off_shows_what_it_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(system: object, meter: object, method: object, reading: Reading) -> None:
        reading.works.append(Work("new", 10, done=4, seconds=1.0, cpu_s=1.0))
        raise ConnectionResetError("reset")

    monkeypatch.setitem(runner.PLAYS, TopicsPattern.NEW, play)
    result = run("new", "--peers", 1, *QUICK)
    assert result.exit_code == 1
    assert "of 10 at the timeout" in result.stdout
    assert "new, this: the servers failed under load: reset" in result.stderr


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("newer",), "Invalid value for '[new|again|"),
        (("new", "--data"), "--data needs the pattern retained and --peers 1"),
        (("retained", "--data"), "--data needs the pattern retained and --peers 1"),
        (("new", "--each", "2"), "--each needs the pattern filters"),
        (("takeover", "--peers", "4"), "takeover needs at least 5 peers, got --peers 4"),
        (("deep", "--levels", "10,x"), "must be comma-separated numbers, such as 10,100, got '10,x'"),
        (("deep", "--levels", "1,200"), "each number of levels must be 2 to 128, got '1,200'"),
        (("new", "--qos", "3"), "Invalid value for '--qos'"),
        (("takeover", "--fault", "fire"), "Invalid value for '--fault'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: tuple[str, ...], error: str) -> None:
    result = run(*options)
    assert result.exit_code == 2
    assert error in result.output


def test_a_checkout_without_an_environment_is_one_line(tmp_path: Path) -> None:
    result = run("new", "--against", tmp_path)
    assert result.exit_code == 2
    assert f"{tmp_path} has no .venv/bin/ringmq: run: make -C {tmp_path} venv" in result.output
