"""Trials one after the other: those that fail are left out, and Ctrl-C keeps what was measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.report.read_tables import Tables
from ringmq.experiments.studies.harness import series
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome
from ringmq.experiments.studies.harness.plan import Kill, Plan
from ringmq.experiments.studies.harness.series import play
from ringmq.experiments.studies.harness.trial import Trial
from tests.experiments.studies.making import plan, request, steady, trial

PLANS = {what: plan(run=what) for what in ("a", "b", "c")}


class Played:
    """Stands in for real trials, and for Spark."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fails: dict[str, BaseException] | None = None) -> None:
        self.runs: list[str] = []
        self.reduced = 0
        self.slow = False
        self._fails = fails or {}
        monkeypatch.setattr(series, "run", self.run)
        monkeypatch.setattr(series.spark_reduce, "tables", self.tables)
        monkeypatch.setattr(series.spark_reduce, "keep_parquet", lambda data, folder: (folder / "parquet").mkdir())
        monkeypatch.setattr(series, "find_java", lambda: None)
        monkeypatch.setattr(series.rings, "why_not", lambda peers, disk: "too small" if peers > 3 else None)

    def run(self, of: Plan, data: Path) -> Trial:
        (data / "landing").mkdir(exist_ok=True)
        self.runs.append(of.run)
        if of.run in self._fails:
            raise self._fails[of.run]
        told = steady(of.messages, 1 / of.published_hz, of.publishers, of.subscribers, 1.0) if self.slow else None
        return trial(of, told, 1.0 if of.kill else None)

    def tables(self, data: Path) -> Tables:
        self.reduced += 1
        if "tables" in self._fails:
            raise self._fails["tables"]
        rows = [{"run": run, "row": row, "tot_msg": 40} for run in self.runs for row in ("peer", "total")]
        return {"per_peer": rows, "boxes": [], "dead": [{"reason": "bad"}]}


def test_all_are_played_and_reduced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played, outcome = Played(monkeypatch), Outcome()
    asked, heard = request(tmp_path, seed=9)
    found = play(PLANS, asked, outcome)
    assert played.runs == list(found.trials) == ["a", "b", "c"]
    assert played.reduced == 1
    assert heard.steps == len(heard.done) == 4
    assert found.total(found.trials["b"]) == {"run": "b", "row": "total", "tot_msg": 40}
    assert list(outcome.tables) == ["per_peer"]
    assert outcome.settings["seed"] == 9
    assert outcome.settings["plans"].keys() == {"a", "b", "c"}  # type: ignore[attr-defined]
    assert (outcome.left_out, outcome.interrupted) == ([], False)
    assert [file.name for file in tmp_path.iterdir()] == ["parquet"]


def test_one_that_fails_is_left_out_and_the_next_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch, {"b": ExperimentError("no ring")})
    asked, heard = request(tmp_path)
    outcome = Outcome()
    found = play(PLANS | {"large": plan(run="large", peers=4)}, asked, outcome)
    assert list(found.trials) == ["a", "c"]
    assert outcome.left_out == ["b: no ring", "large: too small"]
    assert heard.said == ["left out: b: no ring", "left out: large: too small"]
    assert heard.steps == len(heard.done) == 5


def test_a_machine_that_is_too_slow_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch).slow = True
    asked, heard = request(tmp_path)
    outcome = Outcome()
    killed = plan(run="killed", kill=Kill(at_s=0.5, victims=(1,)))
    found = play({"a": PLANS["a"], "killed": killed}, asked, outcome)
    assert list(found.trials) == ["a", "killed"]
    (left,) = outcome.left_out
    assert left.startswith("a: in the tables, but this machine is too small for 40 deliveries/s")
    assert heard.said == [left]


def test_if_none_can_be_played_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, {what: ExperimentError(f"no {what}") for what in PLANS})
    with pytest.raises(ExperimentError, match="nothing could be measured: a: no a"):
        play(PLANS, request(tmp_path)[0], Outcome())
    assert played.reduced == 0
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, {"b": KeyboardInterrupt()})
    outcome = Outcome()
    found = play(PLANS, request(tmp_path)[0], outcome)
    assert played.runs == ["a", "b"]
    assert list(found.trials) == ["a"]
    assert outcome.interrupted
    assert found.tables
    assert [file.name for file in tmp_path.iterdir()] == ["parquet"]


def test_ctrl_c_before_anything_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, {"a": KeyboardInterrupt()})
    outcome = Outcome()
    assert play(PLANS, request(tmp_path)[0], outcome).trials == {}
    assert outcome.interrupted
    assert played.reduced == 0


def test_ctrl_c_again_does_without_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Played(monkeypatch, {"b": KeyboardInterrupt(), "tables": KeyboardInterrupt()})
    outcome = Outcome()
    found = play(PLANS, request(tmp_path)[0], outcome)
    assert (list(found.trials), found.tables, outcome.interrupted) == (["a"], {}, True)
    assert found.total(found.trials["a"]) == {}
    assert outcome.left_out == ["tables of the collector: interrupted; the records are in landing/"]
    assert [file.name for file in tmp_path.iterdir()] == ["landing"]


def test_if_spark_fails_the_rest_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, {"tables": ExperimentError("no Spark")})
    outcome = Outcome()
    found = play(PLANS, request(tmp_path)[0], outcome)
    assert (list(found.trials), found.tables, outcome.interrupted) == (["a", "b", "c"], {}, False)
    assert played.reduced == 2
    assert outcome.left_out == ["tables of the collector: no Spark; the records are in landing/"]
    assert [file.name for file in tmp_path.iterdir()] == ["landing"]


def test_java_is_looked_for_before_anybody_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch)

    def none() -> None:
        raise CollectorError("no Java")

    monkeypatch.setattr(series, "find_java", none)
    with pytest.raises(CollectorError, match="no Java"):
        play(PLANS, request(tmp_path)[0], Outcome())
    assert played.runs == []
