"""A sweep without its rings: its plans, tables, quantities and plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ringmq.experiments.studies.harness.approaches import ALL, DIRECT, QUICK, guided
from ringmq.experiments.studies.harness.figures import Claim, Measure, Statistic
from ringmq.experiments.studies.harness.outcome import Outcome, Request
from ringmq.experiments.studies.harness.plan import Plan
from ringmq.experiments.studies.harness.series import Series
from ringmq.experiments.studies.sweeps import sweep
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL, Level, Sweep, conduct, plan_of, stand_in
from tests.experiments.studies.making import box, request, trial

TWO = Sweep(
    name="two",
    title="Two levels",
    axis="topics",
    full=(Level("1", replace(FULL, topics=1)), Level("7", FULL)),
    quick=(Level("1", replace(SMALL, topics=1)), Level("2", SMALL)),
    claims=(
        Claim("§1", DIRECT, Measure.LATENCY, Statistic.MAXIMUM, 14),
        Claim("§1", guided(5), Measure.BANDWIDTH, Statistic.MAXIMUM, 99),
    ),
)


def replace_trials(monkeypatch: pytest.MonkeyPatch, without: str = "") -> dict[str, Plan]:
    """Replace all trials by made-up ones, in which the other approaches have half of Scribe's figures."""
    asked: dict[str, Plan] = {}

    def play(plans: Mapping[str, Plan], request: Request, outcome: Outcome) -> Series:
        asked.update(plans)
        trials = {label: trial(plan) for label, plan in plans.items() if label != without}
        boxes, totals = [], []
        for number, made in enumerate(trials.values()):
            share = 0.5 if made.plan.approach in QUICK[1:] else 1.0
            boxes += [
                box(made.plan.run, "latency", 0.02 * share, 0.01),
                box(made.plan.run, "bandwidth", 4e6 * share, 1e6),
            ]
            totals.append({"run": made.plan.run, "row": "total", "published": 1, "tot_msg": number})
        outcome.tables["boxes"] = boxes
        return Series(trials, {"boxes": boxes, "per_peer": totals})

    monkeypatch.setattr(sweep, "play", play)
    return asked


def test_quick_run_has_all_tables_quantities_and_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replace_trials(monkeypatch)
    outcome = conduct(TWO, request(tmp_path)[0])
    assert list(asked) == [f"{level}, {approach.label}" for level in ("1", "2") for approach in QUICK]
    assert [plan.run for plan in asked.values()] == [f"two-{n}-{approach.key}" for n in (1, 2) for approach in QUICK]
    assert list(outcome.tables) == ["levels", "boxes"]
    first = outcome.tables["levels"][0]
    assert (first["level"], first["approach"], first["topics"], first["received_recorded"]) == ("1", "Scribe", 1, 0)
    assert (first["latency_maximum_ms"], first["bandwidth_maximum_mbit_s"]) == (20.0, 4.0)
    assert (first["missed"], first["keeps_up"]) == (0, True)
    assert all(list(row) == list(first) for row in outcome.tables["levels"])
    latency, bandwidth = outcome.quantities
    assert (latency.ours, latency.holds) == (pytest.approx(50.0), True)
    assert bandwidth.what == "highest bandwidth of a node, Guided F=3 below Scribe"
    assert "small ring" in bandwidth.note
    assert [plot.name for plot in outcome.plots] == ["boxes_latency.png", "boxes_bandwidth.png"]
    assert all(plot.read_bytes().startswith(b"\x89PNG") for plot in outcome.plots)


def test_full_run_has_all_approaches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replace_trials(monkeypatch)
    outcome = conduct(TWO, request(tmp_path, quick=False)[0])
    assert len(asked) == 2 * len(ALL)
    assert {plan.peers for plan in asked.values()} == {50}
    assert "Guided F=5" in outcome.quantities[1].what


def test_missing_trial_has_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_trials(monkeypatch, without="1, Direct")
    outcome = conduct(TWO, request(tmp_path)[0])
    assert len(outcome.tables["levels"]) == 5
    assert outcome.quantities[0].ours == pytest.approx(50.0)


def test_sweep_without_tables_has_the_counts_of_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_trials(monkeypatch)
    monkeypatch.setattr(sweep, "play", lambda plans, request, outcome: Series({w: trial(p) for w, p in plans.items()}))
    outcome = conduct(TWO, request(tmp_path)[0])
    assert len(outcome.tables["levels"]) == 6
    assert outcome.tables["levels"][0]["latency_maximum_ms"] is None
    assert outcome.tables["levels"][0]["received_recorded"] is None
    assert [quantity.ours for quantity in outcome.quantities] == [None, None]
    assert outcome.plots == []


def test_plan_follows_from_the_seed_and_not_from_the_approach(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_trials(monkeypatch)
    direct, tree = (plan_of("run", FULL, approach, 1) for approach in (DIRECT, guided(5)))
    assert replace(direct, approach=tree.approach) == tree
    assert plan_of("run", FULL, DIRECT, 2).publishers != direct.publishers
    assert (len(direct.publishers), len(direct.subscribers), len(direct.topics)) == (14, 50, 7)
    fewer = plan_of("run", replace(FULL, subscribers=13), DIRECT, 1)
    assert fewer.subscribers == direct.subscribers[:13]


def test_clients_keep_their_positions_when_nodes_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    replace_trials(monkeypatch)
    some = replace(FULL, subscribers=20, homes=20)
    few, many = (plan_of("run", replace(some, peers=peers), DIRECT, 1) for peers in (20, 50))
    assert (few.publishers, few.subscribers) == (many.publishers, many.subscribers)
    assert sorted(many.subscribers) == list(range(20))


def test_quick_run_replaces_every_guided_approach() -> None:
    assert stand_in(guided(5), quick=False) == guided(5)
    assert stand_in(guided(5), quick=True) == guided(3)
    assert stand_in(DIRECT, quick=True) == DIRECT
