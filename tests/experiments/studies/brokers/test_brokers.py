"""The patterns are measured in turn; sides and patterns that cannot be measured are left out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.experiments.benchmarks.comparison import Method, Result
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.studies.brokers import brokers
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Request
from tests.experiments.studies.making import ProgressLog

FIGURES = Figures(100.0, 100.0, 1000.0, 10, 0.0, (0.001, 0.002), 0.5, 0.4, 0.0, 0.0, 0.0)
SIDES = ["ringmq", "bridged", "mosquitto"]


@pytest.fixture
def progress() -> ProgressLog:
    return ProgressLog()


@pytest.fixture
def request_(tmp_path: Path, progress: ProgressLog) -> Request:
    return Request(tmp_path, True, 1, progress)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Fake servers and loads. `compared` has the arguments of all comparisons, `fails` the sides that do not start with
    their errors, and `then` is called by each comparison."""
    state = SimpleNamespace(compared=[], fails={}, then=lambda: None)

    @contextmanager
    def joined(side: str, count: int, core: int) -> Iterator[list[Any]]:
        if (side, count) in state.fails:
            raise BenchError(state.fails[side, count])
        yield [SimpleNamespace(address=("127.0.0.1", port)) for port in range(count)]

    @contextmanager
    def loaded(servers: list[Any], pattern: Any) -> Iterator[int]:
        yield len(servers)

    def compare(
        pattern: Any, loads: Mapping[str, int], method: Method, reference: str, report: Any
    ) -> dict[str, Result]:
        state.then()
        state.compared.append((pattern.name, dict(loads), reference))
        report(reference, FIGURES)
        return {side: Result([FIGURES], at_half=[FIGURES]) for side in loads}

    monkeypatch.setattr(brokers.sides, "joined", joined)
    monkeypatch.setattr(brokers.sides, "why_not", lambda side: None)
    monkeypatch.setattr(brokers.reachability, "check", lambda addresses: None)
    monkeypatch.setattr(brokers, "cores", lambda: (min(os.sched_getaffinity(0)),) * 2)
    monkeypatch.setattr(brokers, "Load", loaded)
    monkeypatch.setattr(brokers, "compare", compare)
    return state


def test_each_pattern_is_measured_with_each_side(
    machine: SimpleNamespace, request_: Request, progress: ProgressLog
) -> None:
    outcome = brokers.run(request_)
    five = dict.fromkeys(SIDES, 5)
    assert machine.compared == [
        ("one-A", {"ringmq": 1, "mosquitto": 1}, "mosquitto"),
        ("five-B", five, "bridged"),
        ("five-C", five, "bridged"),
        ("five-D", five, "bridged"),
    ]
    assert len(progress.done) == progress.steps == 4
    assert [(row["pattern"], row["side"]) for row in outcome.tables["brokers"]] == [
        (pattern, side) for pattern in "ABCD" for side in SIDES if (pattern, side) != ("A", "bridged")
    ]
    assert outcome.plots == [request_.folder / "brokers.png"]
    assert outcome.plots[0].is_file()
    assert outcome.quantities
    assert outcome.left_out == ["nodelay: not measured with --quick"]
    assert not outcome.interrupted


def test_full_run_has_all_sides(machine: SimpleNamespace, tmp_path: Path, progress: ProgressLog) -> None:
    outcome = brokers.run(Request(tmp_path, False, 1, progress))
    assert machine.compared[1][1] == {"ringmq": 5, "bridged": 5, "nodelay": 5, "mosquitto": 5}
    assert outcome.settings["sides"] == ["ringmq", "bridged", "nodelay", "mosquitto"]


def test_without_mosquitto_the_ring_is_measured_alone(
    machine: SimpleNamespace, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "mosquitto is not installed"
    monkeypatch.setattr(brokers.sides, "why_not", lambda side: None if side == "ringmq" else why)
    outcome = brokers.run(request_)
    assert {row["side"] for row in outcome.tables["brokers"]} == {"ringmq"}
    assert machine.compared[0] == ("one-A", {"ringmq": 1}, "ringmq")
    assert f"mosquitto: {why}" in outcome.left_out
    assert f"bridged: {why}" in outcome.left_out


def test_side_that_does_not_start_is_left_out(
    machine: SimpleNamespace, request_: Request, progress: ProgressLog
) -> None:
    machine.fails = {("bridged", 5): "no message came through"}
    outcome = brokers.run(request_)
    assert machine.compared[1] == ("five-B", {"ringmq": 5, "mosquitto": 5}, "mosquitto")
    assert "pattern B, bridged: no message came through" in outcome.left_out
    assert "pattern B, bridged: no message came through" in progress.said


def test_failed_pattern_is_left_out(machine: SimpleNamespace, request_: Request) -> None:
    turns = iter([False, True, False, False])

    def fail() -> None:
        if next(turns):
            raise BenchError("the server failed under load: reset")

    machine.then = fail
    outcome = brokers.run(request_)
    assert [row["pattern"] for row in outcome.tables["brokers"] if row["side"] == "ringmq"] == ["A", "C", "D"]
    assert "pattern B: the server failed under load: reset" in outcome.left_out


def test_interrupted_run_keeps_its_results(machine: SimpleNamespace, request_: Request) -> None:
    turns = iter([False, True])

    def interrupt() -> None:
        if next(turns):
            raise KeyboardInterrupt

    machine.then = interrupt
    outcome = brokers.run(request_)
    assert outcome.interrupted
    assert {row["pattern"] for row in outcome.tables["brokers"]} == {"A"}
    assert outcome.plots


def test_run_without_any_result_is_an_error(
    machine: SimpleNamespace, request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one_core() -> tuple[int, int]:
        raise BenchError("a benchmark needs two cores: one for the server, one for the load")

    monkeypatch.setattr(brokers, "cores", one_core)
    with pytest.raises(ExperimentError, match="needs two cores"):
        brokers.run(request_)


def test_busy_machine_is_reported(machine: SimpleNamespace, request_: Request, monkeypatch: pytest.MonkeyPatch) -> None:
    busy = replace(FIGURES, server_waited=0.4)
    monkeypatch.setattr(brokers, "compare", lambda *_: {"ringmq": Result([busy]), "mosquitto": Result()})
    remark = "pattern C: in the tables, but other processes had 40% of the cores"
    assert remark in brokers.run(request_).left_out


def test_loss_at_the_limit_is_reported(
    machine: SimpleNamespace, request_: Request, progress: ProgressLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    lossy = replace(FIGURES, loss=0.005)

    def compare(pattern: Any, loads: Any, method: Any, reference: str, report: Any) -> dict[str, Result]:
        report("ringmq", lossy)
        return {"ringmq": Result([lossy])}

    monkeypatch.setattr(brokers, "compare", compare)
    outcome = brokers.run(request_)
    assert "pattern B, ringmq: 0.50% of the messages were lost although it kept up" in progress.said
    assert {row["loss_percent"] for row in outcome.tables["brokers"]} == {0.5}
