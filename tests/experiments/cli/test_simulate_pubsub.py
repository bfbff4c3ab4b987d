"""`ringmq simulate pubsub`: runs with each dispatching, with and without sessions, and options that do not fit."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.cli import simulate_pubsub, simulate_report
from ringmq.experiments.cli.simulate import simulate
from ringmq.experiments.scenarios.pubsub.figures import PubSubFigures
from ringmq.experiments.scenarios.pubsub.scene import pubsub
from ringmq.experiments.scenarios.sessions.scene import SessionFigures
from ringmq.experiments.simulator.checks import InvariantBrokenError


class InlinePool:
    """A pool without processes, so that patches of this process apply to its work."""

    def __init__(self, workers: int | None) -> None: ...
    def __enter__(self) -> InlinePool:
        return self

    def __exit__(self, *_: object) -> None: ...
    def map(self, work: Any, items: Any) -> Any:
        return map(work, items)


@pytest.fixture(autouse=True)
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_report, "ProcessPoolExecutor", InlinePool)


def run(*more: str) -> Result:
    return CliRunner().invoke(simulate, ["pubsub", "--seconds", "5", *more])


def test_each_seed_runs_with_each_dispatching(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[tuple[int, str, int]] = []
    figures = pubsub(2, 1, span_s=1.0, trouble="calm")

    def break_in_trees(nodes: int, seed: int, *_: object, dispatch: Choice, topics: int) -> PubSubFigures:
        runs.append((seed, dispatch.name, topics))
        if dispatch.name == "guided" and seed == 8:
            raise InvariantBrokenError("twice: a message")
        return figures

    monkeypatch.setattr(simulate_pubsub, "pubsub", break_in_trees)
    result = run(
        "--nodes", "2", "--seed", "7", "--seeds", "2", "--topics", "40", "--json",
        "--dispatch", "direct", "--dispatch", "guided",
    )  # fmt: skip
    assert runs == [(7, "direct", 40), (7, "guided", 40), (8, "direct", 40), (8, "guided", 40)]
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["broken"] == ["seed 8, guided: twice: a message"]
    assert report["4 runs of 2 peers"]["held"] == 3


def test_runs_with_scribe() -> None:
    result = run("--nodes", "8", "--dispatch", "scribe", "--trouble", "churn", "--json")
    assert result.exit_code == 0, result.output
    (total, *_) = json.loads(result.stdout).values()
    assert total["counters"]["joins"] > 0
    assert total["held"] == 1


def test_broken_promises_are_shown_with_the_way_to_see_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def play(nodes: int, seed: int, timing: str, span_s: float, trouble: str, dispatch: Choice) -> SessionFigures:
        if seed == 4:
            error = InvariantBrokenError("1 of cut")
            error.add_note("cut at 3.1 s: a message was lost")
            raise error
        return SessionFigures(nodes, seed, trouble, 10, 9, 30, 2, 1.5, 0.5, span_s, 1000, 0.1)

    monkeypatch.setattr(simulate_pubsub, "sessions", play)
    result = run("--sessions", "--trouble", "cuts", "--seed", "3", "--seeds", "3", "--dispatch", "guided")
    assert result.exit_code == 1
    assert "3 runs of 6 whole peers" in result.stdout
    assert "held                   2" in result.stdout
    again = "ringmq simulate pubsub --sessions --nodes 6 --seed 4 --timing lan --seconds 5 --dispatch guided"
    assert f"broken: 1 of cut\nto see it again: {again} --fanout 3 --trouble cuts\ncut at 3.1 s" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--sessions", "--trouble", "lapses"], "--trouble"),
        (["--trouble", "crashes"], "--trouble"),
        (["--sessions", "--dispatch", "scribe"], "--dispatch"),
        (["--sessions", "--topics", "40"], "--topics"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: list[str], named: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert named in result.stderr
