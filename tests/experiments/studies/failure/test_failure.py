"""The experiment `failure` without its rings: victims, positions of clients, and compared quantities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from ringmq.experiments.studies.failure import failure
from ringmq.experiments.studies.failure.failure import FULL, QUICK, plan_of, publishers, quantities, run
from ringmq.experiments.studies.failure.recovery import ON_TIME_S, Recovery
from ringmq.experiments.studies.harness.approaches import DIRECT, SCRIBE, WITHOUT_BOUND
from ringmq.experiments.studies.harness.outcome import Outcome, Request
from ringmq.experiments.studies.harness.plan import Plan, coordinators, ids
from ringmq.experiments.studies.harness.series import Series
from tests.experiments.studies.making import request, steady, trial

GOOD = Recovery(
    share=0.3, lowest=0.99, lowest_before=1.0, recovered_s=0.1, lost_live=0, lost_after=0, due_live=900, delivered=1500
)
BAD = replace(GOOD, lowest=0.2, recovered_s=2.0, lost_live=90, lost_after=80, delivered=1000)


@pytest.mark.parametrize("size", [FULL, QUICK])
def test_all_coordinators_die_and_every_peer_has_a_subscriber(size: failure.FailureSize) -> None:
    plan = plan_of(size, DIRECT, 1)
    assert plan.kill is not None
    assert plan.kill.victims == coordinators(ids(1, size.peers), plan.topics)
    assert 1 <= len(plan.kill.victims) <= size.topics
    assert plan.kill.at_s < size.whole_s
    assert plan.subscribers == tuple(range(size.peers))
    dying = set(plan.publishers) & set(plan.kill.victims)
    assert dying
    assert set(plan.publishers) - dying
    assert len(set(plan.publishers)) == size.publishers


def test_the_same_seed_gives_the_same_victims_for_all_approaches() -> None:
    direct, scribe = plan_of(FULL, DIRECT, 3), plan_of(FULL, SCRIBE, 3)
    assert replace(direct, approach=SCRIBE, run=scribe.run) == scribe


@pytest.mark.parametrize(("victims", "count", "dying"), [((1, 2), 4, 1), (tuple(range(25)), 14, 7), ((3,), 5, 1)])
def test_victims_have_their_share_of_the_publishers(victims: tuple[int, ...], count: int, dying: int) -> None:
    found = publishers(1, 50, victims, count)
    assert len(found) == len(set(found)) == count
    assert len({*found} & {*victims}) == dying
    assert found == publishers(1, 50, victims, count)


def test_quantities_compare_with_scribe_and_with_our_goals() -> None:
    found = quantities({SCRIBE: BAD, DIRECT: replace(GOOD, recovered_s=0.5), WITHOUT_BOUND: GOOD})
    faster, more, direct_faster, direct_more, lost, lowest = found
    assert (faster.theirs, faster.ours, faster.holds) == (94.0, pytest.approx(95.0), True)
    assert faster.note == "0.1 s against 2.0 s"
    assert (more.theirs, more.ours, more.holds) == (48.0, pytest.approx(50.0), True)
    assert (direct_faster.theirs, direct_faster.ours) == (None, pytest.approx(75.0))
    assert direct_more.ours == pytest.approx(50.0)
    assert (lost.ours, lost.holds, lost.note) == (0, True, "of 900")
    assert (lowest.ours, lowest.holds) == (pytest.approx(99.0), True)
    assert lowest.note == "the killed peers' own clients had 30 % of all deliveries"
    disturbed = quantities({DIRECT: replace(GOOD, lowest_before=0.5)})[-1]
    assert disturbed.note.endswith("; this machine is disturbed: at worst it was 50 % before the kill")


def test_losses_and_falls_with_direct_miss_our_goals() -> None:
    lost, lowest = quantities({DIRECT: BAD})[-2:]
    assert (lost.ours, lost.holds) == (90, False)
    assert (lowest.ours, lowest.holds) == (pytest.approx(20.0), False)


@pytest.mark.parametrize(
    ("ours", "scribe", "note"),
    [
        (0.1, 0.0, "0.1 s against no fall"),
        (None, 2.0, "never against 2.0 s"),
        (0.1, None, "0.1 s against never"),
    ],
)
def test_recovery_times_that_cannot_be_compared_are_in_the_note(
    ours: float | None, scribe: float | None, note: str
) -> None:
    found = {WITHOUT_BOUND: replace(GOOD, recovered_s=ours), SCRIBE: replace(BAD, recovered_s=scribe)}
    assert (quantities(found)[0].ours, quantities(found)[0].note) == (None, note)


def test_note_gives_the_strong_baseline_as_the_reason() -> None:
    more = quantities({SCRIBE: replace(BAD, delivered=1400), WITHOUT_BOUND: GOOD})[1]
    assert more.holds is False
    assert failure.STRONG in more.note


def test_quantities_without_trials_have_no_figures() -> None:
    assert [quantity.ours for quantity in quantities({})] == [None] * 6
    assert all(quantity.ours is None for quantity in quantities({WITHOUT_BOUND: GOOD})[:2])


@pytest.mark.parametrize("latency_s", [0.01, 1.0])
def test_run_has_all_tables_and_remarks_on_a_slow_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, latency_s: float
) -> None:
    def play(plans: Mapping[str, Plan], request: Request, outcome: Outcome) -> Series:
        series = Series()
        for label, plan in plans.items():
            observed = steady(plan.messages, 1 / plan.published_hz, plan.publishers, plan.subscribers, latency_s)
            series.trials[label] = trial(plan, observed, 8.0)
            rows = [{"run": plan.run, "row": "peer", "peer": peer_id.hex()} for peer_id in ids(plan.seed, 12)]
            series.tables["per_peer"] = [*series.tables.get("per_peer", []), *[row | {"tot_msg": 2.0} for row in rows]]
        outcome.tables["rates"] = [{"run": "r"}]
        return series

    monkeypatch.setattr(failure, "play", play)
    asked, progress = request(tmp_path)
    outcome = run(asked)
    assert len(outcome.left_out) == len(progress.said) == (3 if latency_s > ON_TIME_S else 0)
    rows = outcome.tables["recovery"]
    assert [row["approach"] for row in rows] == ["Scribe", "Direct", "Guided F=∞"]
    assert list(outcome.tables) == ["recovery", "over_time", "rates"]
    live = 12 - int(str(rows[0]["killed"]))
    assert rows[0]["delivered_live_peers_recorded"] == 2 * live
    assert rows[0]["delivered_live_peers"] == live * 1024
    assert {row["approach"] for row in outcome.tables["over_time"]} == {row["approach"] for row in rows}
    assert len(outcome.quantities) == 6
    assert outcome.plots[0].read_bytes().startswith(b"\x89PNG")


def test_run_interrupted_in_the_first_trial_has_no_plots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failure, "play", lambda plans, request, outcome: Series())
    outcome = run(request(tmp_path)[0])
    assert (outcome.plots, outcome.tables["recovery"]) == ([], [])
