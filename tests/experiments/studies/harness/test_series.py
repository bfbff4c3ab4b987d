"""Series of trials: failed trials are left out, and Ctrl-C keeps the results so far."""

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

PLANS = {label: plan(run=label) for label in ("a", "b", "c")}


class FakeTrials:
    """Replaces real trials, and Spark."""

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
        observed = steady(of.messages, 1 / of.published_hz, of.publishers, of.subscribers, 1.0) if self.slow else None
        return trial(of, observed, 1.0 if of.kill else None)

    def tables(self, data: Path) -> Tables:
        self.reduced += 1
        if "tables" in self._fails:
            raise self._fails["tables"]
        rows = [{"run": run, "row": row, "tot_msg": 40} for run in self.runs for row in ("peer", "total")]
        return {"per_peer": rows, "boxes": [], "dead": [{"reason": "bad"}]}


def test_all_trials_are_played_and_reduced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played, outcome = FakeTrials(monkeypatch), Outcome()
    asked, progress = request(tmp_path, seed=9)
    found = play(PLANS, asked, outcome)
    assert played.runs == list(found.trials) == ["a", "b", "c"]
    assert played.reduced == 1
    assert progress.steps == len(progress.done) == 4
    assert found.total(found.trials["b"]) == {"run": "b", "row": "total", "tot_msg": 40}
    assert list(outcome.tables) == ["per_peer"]
    assert outcome.settings["seed"] == 9
    assert outcome.settings["plans"].keys() == {"a", "b", "c"}  # type: ignore[attr-defined]
    assert (outcome.left_out, outcome.interrupted) == ([], False)
    assert [file.name for file in tmp_path.iterdir()] == ["parquet"]


def test_failed_trial_is_left_out_and_the_next_one_is_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTrials(monkeypatch, {"b": ExperimentError("no ring")})
    asked, progress = request(tmp_path)
    outcome = Outcome()
    found = play(PLANS | {"large": plan(run="large", peers=4)}, asked, outcome)
    assert list(found.trials) == ["a", "c"]
    assert outcome.left_out == ["b: no ring", "large: too small"]
    assert progress.said == ["left out: b: no ring", "left out: large: too small"]
    assert progress.steps == len(progress.done) == 5


def test_trial_on_a_slow_machine_is_kept_with_a_remark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTrials(monkeypatch).slow = True
    asked, progress = request(tmp_path)
    outcome = Outcome()
    killed = plan(run="killed", kill=Kill(at_s=0.5, victims=(1,)))
    found = play({"a": PLANS["a"], "killed": killed}, asked, outcome)
    assert list(found.trials) == ["a", "killed"]
    (left,) = outcome.left_out
    assert left.startswith("a: in the tables, but this machine is too small for 40 deliveries/s")
    assert progress.said == [left]


def test_series_without_any_trial_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = FakeTrials(monkeypatch, {label: ExperimentError(f"no {label}") for label in PLANS})
    with pytest.raises(ExperimentError, match="nothing could be measured: a: no a"):
        play(PLANS, request(tmp_path)[0], Outcome())
    assert played.reduced == 0
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_the_trials_so_far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = FakeTrials(monkeypatch, {"b": KeyboardInterrupt()})
    outcome = Outcome()
    found = play(PLANS, request(tmp_path)[0], outcome)
    assert played.runs == ["a", "b"]
    assert list(found.trials) == ["a"]
    assert outcome.interrupted
    assert found.tables
    assert [file.name for file in tmp_path.iterdir()] == ["parquet"]


def test_ctrl_c_in_the_first_trial_gives_an_empty_series(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = FakeTrials(monkeypatch, {"a": KeyboardInterrupt()})
    outcome = Outcome()
    assert play(PLANS, request(tmp_path)[0], outcome).trials == {}
    assert outcome.interrupted
    assert played.reduced == 0


def test_second_ctrl_c_skips_the_tables_and_keeps_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTrials(monkeypatch, {"b": KeyboardInterrupt(), "tables": KeyboardInterrupt()})
    outcome = Outcome()
    found = play(PLANS, request(tmp_path)[0], outcome)
    assert (list(found.trials), found.tables, outcome.interrupted) == (["a"], {}, True)
    assert found.total(found.trials["a"]) == {}
    assert outcome.left_out == ["tables of the collector: interrupted; the records are in landing/"]
    assert [file.name for file in tmp_path.iterdir()] == ["landing"]


def test_failed_spark_leaves_the_trials_and_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = FakeTrials(monkeypatch, {"tables": ExperimentError("no Spark")})
    outcome = Outcome()
    found = play(PLANS, request(tmp_path)[0], outcome)
    assert (list(found.trials), found.tables, outcome.interrupted) == (["a", "b", "c"], {}, False)
    assert played.reduced == 2
    assert outcome.left_out == ["tables of the collector: no Spark; the records are in landing/"]
    assert [file.name for file in tmp_path.iterdir()] == ["landing"]


def test_missing_java_is_reported_before_any_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = FakeTrials(monkeypatch)

    def none() -> None:
        raise CollectorError("no Java")

    monkeypatch.setattr(series, "find_java", none)
    with pytest.raises(CollectorError, match="no Java"):
        play(PLANS, request(tmp_path)[0], Outcome())
    assert played.runs == []
