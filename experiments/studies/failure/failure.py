"""All coordinators are killed while messages flow (§4.2.5 of the thesis); with Scribe, all roots are.

Owns the choice of the victims and of the positions of clients. `recovery` measures the effect of the kill.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Final

from ringmq.collector.jobs.tables import columns
from ringmq.experiments.studies.failure.plots import draw
from ringmq.experiments.studies.failure.recovery import WHOLE, Recovery, measure_recovery, rate_over_time
from ringmq.experiments.studies.harness.approaches import ALL, DIRECT, SCRIBE, WITHOUT_BOUND, Approach
from ringmq.experiments.studies.harness.outcome import Outcome, Quantity, Request, Row
from ringmq.experiments.studies.harness.plan import Kill, Plan, coordinators, ids, topics
from ringmq.experiments.studies.harness.series import Series, play
from ringmq.experiments.studies.harness.trial import Trial

SOURCE: Final = "§4.2.5"
FASTER_PERCENT: Final = 94.0
MORE_PERCENT: Final = 48.0
GOAL: Final = "our goal"
STRONG: Final = (
    "our Scribe shares links and failure detector with the others, and joins a dead root's tree elsewhere at once"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureSize:
    """FailureSize of the trials."""

    peers: int
    publishers: int
    topics: int
    rate_hz: float
    """Messages a second of each publisher to each topic."""
    kill_at_s: float
    whole_s: float


FULL: Final = FailureSize(peers=50, publishers=14, topics=7, rate_hz=4 / 7, kill_at_s=30.0, whole_s=60.0)
QUICK: Final = FailureSize(peers=12, publishers=4, topics=2, rate_hz=8.0, kill_at_s=8.0, whole_s=16.0)
QUICK_APPROACHES: Final = (SCRIBE, DIRECT, WITHOUT_BOUND)


def run(request: Request) -> Outcome:
    """Run the experiment."""
    size, approaches = (QUICK, QUICK_APPROACHES) if request.quick else (FULL, ALL)
    outcome = Outcome(settings={"size": asdict(size)})
    plans = {approach.label: plan_of(size, approach, request.seed) for approach in approaches}
    series = play(plans, request, outcome)
    recoveries = {
        approach: recovery_of(trial) for approach in approaches if (trial := series.trials.get(approach.label))
    }
    tables: dict[str, Sequence[Row]] = {
        "recovery": [
            row_of(approach, series.trials[approach.label], recovery, series)
            for approach, recovery in recoveries.items()
        ],
        "over_time": [
            {"approach": approach.label, "time_s": time_s, "deliveries_hz": rate_hz}
            for approach in recoveries
            for time_s, rate_hz in rate_over_time(series.trials[approach.label].traffic, size.whole_s)
        ],
    }
    outcome.tables = tables | outcome.tables
    outcome.quantities = quantities(recoveries)
    for approach, recovery in recoveries.items():
        if recovery.lowest_before < WHOLE:
            outcome.left_out.append(
                f"{approach.label}: in the tables, but this machine is too small or disturbed:"
                f" at worst {100 * recovery.lowest_before:.0f} % were in time before the kill"
            )
            request.progress.say(outcome.left_out[-1])
    if recoveries:
        outcome.plots = [request.folder / "failure.png"]
        draw({approach: series.trials[approach.label] for approach in recoveries}, recoveries, outcome.plots[0])
    return outcome


def plan_of(size: FailureSize, approach: Approach, seed: int) -> Plan:
    """The plan of a trial: every peer has a subscriber, and the victims have their share of the publishers."""
    names = topics(size.topics)
    victims = coordinators(ids(seed, size.peers), names)
    return Plan(
        run=f"failure-{approach.key}",
        approach=approach,
        peers=size.peers,
        publishers=publishers(seed, size.peers, victims, size.publishers),
        subscribers=tuple(range(size.peers)),
        topics=names,
        rate_hz=size.rate_hz,
        warm_s=0.0,
        measured_s=size.whole_s,
        seed=seed,
        kill=Kill(at_s=size.kill_at_s, victims=victims),
    )


def publishers(seed: int, peers: int, victims: Collection[int], count: int) -> tuple[int, ...]:
    """Positions of `count` publishers. The victims have the same share of them as of all peers, but at least one."""
    chance = Random(f"{seed} publishers")
    dying = max(1, round(count * len(victims) / peers))
    chosen = chance.sample(sorted(victims), min(dying, len(victims)))
    chosen += chance.sample([position for position in range(peers) if position not in victims], count - len(chosen))
    chance.shuffle(chosen)
    return tuple(chosen)


def recovery_of(trial: Trial) -> Recovery:
    kill, killed_s = trial.plan.kill, trial.killed_s
    assert kill is not None, "every plan of this experiment has a kill"
    assert killed_s is not None, "the trial was played to its end"
    return measure_recovery(trial.traffic, kill.victims, killed_s)


def row_of(approach: Approach, trial: Trial, recovery: Recovery, series: Series) -> Row:
    """The row of one trial in the table `recovery`."""
    kill = trial.plan.kill
    assert kill is not None, "every plan of this experiment has a kill"
    return {
        "approach": approach.label,
        "killed": len(kill.victims),
        "killed_s": trial.killed_s,
        "share_of_the_killed": round(recovery.share, 4),
        "lowest_rate": round(recovery.lowest, 4),
        "lowest_rate_before": round(recovery.lowest_before, 4),
        "recovered_s": recovery.recovered_s,
        "delivered": recovery.delivered,
        "lost_live": recovery.lost_live,
        "lost_live_after_kill": recovery.lost_after,
        "due_live": recovery.due_live,
        "delivered_live_peers": delivered_at(trial, set(kill.victims)),
        "delivered_live_peers_recorded": recorded_at(trial, set(kill.victims), series),
    }


def delivered_at(trial: Trial, dead: Collection[int]) -> int:
    """All arrivals at subscribers of live peers, from any publisher, including duplicates."""
    return sum(len(arrivals.numbers) for arrivals in trial.traffic.arrivals if arrivals.position not in dead)


def recorded_at(trial: Trial, dead: Collection[int], series: Series) -> int | None:
    """The same figure from the records of the live peers; dead peers lack their last records. None without tables."""
    plan = trial.plan
    live = {peer_id.hex() for position, peer_id in enumerate(ids(plan.seed, plan.peers)) if position not in dead}
    rows = [row for row in series.tables.get(columns.PER_PEER.name, ()) if row["run"] == plan.run]
    counts = [row["tot_msg"] for row in rows if row["peer"] in live]
    return round(sum(counts)) if counts else None


def quantities(recoveries: Mapping[Approach, Recovery]) -> list[Quantity]:
    """The figures of the thesis and our own goals, beside our figures."""
    scribe = recoveries.get(SCRIBE)
    listed = []
    for approach, faster, more in ((WITHOUT_BOUND, FASTER_PERCENT, MORE_PERCENT), (DIRECT, None, None)):
        ours = recoveries.get(approach)
        listed += [_faster(approach, ours, scribe, faster), _more(approach, ours, scribe, more)]
    direct = recoveries.get(DIRECT)
    return [
        *listed,
        Quantity(
            "lost deliveries between live clients, Direct",
            GOAL,
            0,
            None if direct is None else direct.lost_live,
            "deliveries",
            at_least=False,
            note="" if direct is None else f"of {direct.due_live}",
        ),
        Quantity(
            "live clients' rate in the worst 0.1 s after the kill, Direct",
            GOAL,
            100 * WHOLE,
            None if direct is None else 100 * direct.lowest,
            "%",
            note="" if direct is None else _note_of(direct),
        ),
    ]


def _faster(approach: Approach, ours: Recovery | None, scribe: Recovery | None, theirs: float | None) -> Quantity:
    what = f"time until the rate is back, {approach.label} below Scribe"
    if ours is None or scribe is None:
        return Quantity(what, SOURCE, theirs, None, "%", note="not both trials were played")
    note = f"{_seconds(ours)} against {_seconds(scribe)}"
    if ours.recovered_s is None or not scribe.recovered_s:
        return Quantity(what, SOURCE, theirs, None, "%", note=note)
    return Quantity(what, SOURCE, theirs, 100 * (1 - ours.recovered_s / scribe.recovered_s), "%", note=note)


def _more(approach: Approach, ours: Recovery | None, scribe: Recovery | None, theirs: float | None) -> Quantity:
    what = f"deliveries in all, {approach.label} above Scribe"
    if ours is None or scribe is None or not scribe.delivered:
        return Quantity(what, SOURCE, theirs, None, "%", note="not both trials were played")
    more = 100 * (ours.delivered / scribe.delivered - 1)
    note = f"{ours.delivered} against {scribe.delivered}"
    if theirs is not None and more < theirs:
        note += f"; {STRONG}"
    return Quantity(what, SOURCE, theirs, more, "%", note=note)


def _note_of(direct: Recovery) -> str:
    note = f"the killed peers' own clients had {100 * direct.share:.0f} % of all deliveries"
    if direct.lowest_before < WHOLE:
        note += f"; this machine is disturbed: at worst it was {100 * direct.lowest_before:.0f} % before the kill"
    return note


def _seconds(recovery: Recovery) -> str:
    if recovery.recovered_s is None:
        return "never"
    return f"{recovery.recovered_s:.1f} s" if recovery.recovered_s else "no fall"
