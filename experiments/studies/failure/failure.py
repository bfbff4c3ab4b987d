"""All coordinators die while messages flow (§4.2.5 of the thesis); with Scribe, all roots.

Owns who dies and who is where. What the kill did, `recovery` finds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Final

from ringmq.collector.jobs.tables import columns
from ringmq.experiments.studies.failure.plots import draw
from ringmq.experiments.studies.failure.recovery import WHOLE, Recovery, rate_over_time, recovery
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
    "our Scribe has the links and the failure detector of the others, and joins a dead root's tree elsewhere at once"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of the trials."""

    peers: int
    publishers: int
    topics: int
    rate_hz: float
    """Messages of each publisher to each topic."""
    kill_at_s: float
    whole_s: float


FULL: Final = Size(peers=50, publishers=14, topics=7, rate_hz=4 / 7, kill_at_s=30.0, whole_s=60.0)
QUICK: Final = Size(peers=12, publishers=4, topics=2, rate_hz=8.0, kill_at_s=8.0, whole_s=16.0)
QUICK_APPROACHES: Final = (SCRIBE, DIRECT, WITHOUT_BOUND)


def run(request: Request) -> Outcome:
    """Play it."""
    size, approaches = (QUICK, QUICK_APPROACHES) if request.quick else (FULL, ALL)
    outcome = Outcome(settings={"size": asdict(size)})
    plans = {approach.label: plan_of(size, approach, request.seed) for approach in approaches}
    series = play(plans, request, outcome)
    found = {approach: recovery_of(trial) for approach in approaches if (trial := series.trials.get(approach.label))}
    tables: dict[str, Sequence[Row]] = {
        "recovery": [row_of(approach, series.trials[approach.label], one, series) for approach, one in found.items()],
        "over_time": [
            {"approach": approach.label, "time_s": time_s, "deliveries_hz": rate_hz}
            for approach in found
            for time_s, rate_hz in rate_over_time(series.trials[approach.label].traffic, size.whole_s)
        ],
    }
    outcome.tables = tables | outcome.tables
    outcome.quantities = quantities(found)
    for approach, one in found.items():
        if one.lowest_before < WHOLE:
            outcome.left_out.append(
                f"{approach.label}: in the tables, but this machine is too small or disturbed:"
                f" before the kill {100 * one.lowest_before:.0f} % were in time at worst"
            )
            request.progress.say(outcome.left_out[-1])
    if found:
        outcome.plots = [request.folder / "failure.png"]
        draw({approach: series.trials[approach.label] for approach in found}, found, outcome.plots[0])
    return outcome


def plan_of(size: Size, approach: Approach, seed: int) -> Plan:
    """Every peer has a subscriber; the victims have their share of the publishers."""
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
    """So many places, and as large a part of them at victims as of all peers are, but at least one."""
    chance = Random(f"{seed} publishers")
    dying = max(1, round(count * len(victims) / peers))
    chosen = chance.sample(sorted(victims), min(dying, len(victims)))
    chosen += chance.sample([place for place in range(peers) if place not in victims], count - len(chosen))
    chance.shuffle(chosen)
    return tuple(chosen)


def recovery_of(trial: Trial) -> Recovery:
    kill, killed_s = trial.plan.kill, trial.killed_s
    assert kill is not None, "the plan has one"
    assert killed_s is not None, "it was played to its end"
    return recovery(trial.traffic, kill.victims, killed_s)


def row_of(approach: Approach, trial: Trial, found: Recovery, series: Series) -> Row:
    """What one trial was and did."""
    kill = trial.plan.kill
    assert kill is not None, "the plan has one"
    return {
        "approach": approach.label,
        "killed": len(kill.victims),
        "killed_s": trial.killed_s,
        "share_of_the_killed": round(found.share, 4),
        "lowest_rate": round(found.lowest, 4),
        "lowest_rate_before": round(found.lowest_before, 4),
        "recovered_s": found.recovered_s,
        "delivered": found.delivered,
        "lost_live": found.lost_live,
        "lost_live_after_kill": found.lost_after,
        "due_live": found.due_live,
        "delivered_live_peers": delivered_at(trial, set(kill.victims)),
        "delivered_live_peers_recorded": recorded_at(trial, set(kill.victims), series),
    }


def delivered_at(trial: Trial, dead: Collection[int]) -> int:
    """All that came to subscribers at live peers, from wherever, with repetitions."""
    return sum(len(one.numbers) for one in trial.traffic.arrivals if one.place not in dead)


def recorded_at(trial: Trial, dead: Collection[int], series: Series) -> int | None:
    """The same, as those peers say; the last words of the dead are missing. None if nothing was reduced."""
    plan = trial.plan
    live = {point.hex() for place, point in enumerate(ids(plan.seed, plan.peers)) if place not in dead}
    rows = [row for row in series.tables.get(columns.PER_PEER.name, ()) if row["run"] == plan.run]
    found = [row["tot_msg"] for row in rows if row["peer"] in live]
    return round(sum(found)) if found else None


def quantities(found: Mapping[Approach, Recovery]) -> list[Quantity]:
    """What the thesis says, and what we have set ourselves."""
    scribe = found.get(SCRIBE)
    listed = []
    for approach, faster, more in ((WITHOUT_BOUND, FASTER_PERCENT, MORE_PERCENT), (DIRECT, None, None)):
        ours = found.get(approach)
        listed += [_faster(approach, ours, scribe, faster), _more(approach, ours, scribe, more)]
    direct = found.get(DIRECT)
    return [
        *listed,
        Quantity(
            "deliveries between live clients that were lost, Direct",
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
            note="" if direct is None else _about(direct),
        ),
    ]


def _faster(approach: Approach, ours: Recovery | None, scribe: Recovery | None, theirs: float | None) -> Quantity:
    what = f"time until the rate is back, {approach.label} below Scribe"
    if ours is None or scribe is None:
        return Quantity(what, SOURCE, theirs, None, "%", note="not both were played")
    told = f"{_seconds(ours)} against {_seconds(scribe)}"
    if ours.recovered_s is None or not scribe.recovered_s:
        return Quantity(what, SOURCE, theirs, None, "%", note=told)
    return Quantity(what, SOURCE, theirs, 100 * (1 - ours.recovered_s / scribe.recovered_s), "%", note=told)


def _more(approach: Approach, ours: Recovery | None, scribe: Recovery | None, theirs: float | None) -> Quantity:
    what = f"deliveries in all, {approach.label} above Scribe"
    if ours is None or scribe is None or not scribe.delivered:
        return Quantity(what, SOURCE, theirs, None, "%", note="not both were played")
    more = 100 * (ours.delivered / scribe.delivered - 1)
    told = f"{ours.delivered} against {scribe.delivered}"
    if theirs is not None and more < theirs:
        told += f"; {STRONG}"
    return Quantity(what, SOURCE, theirs, more, "%", note=told)


def _about(direct: Recovery) -> str:
    told = f"the killed peers' own clients had {100 * direct.share:.0f} % of all"
    if direct.lowest_before < WHOLE:
        told += f"; this machine is disturbed: before the kill it was {100 * direct.lowest_before:.0f} % at worst"
    return told


def _seconds(one: Recovery) -> str:
    if one.recovered_s is None:
        return "never"
    return f"{one.recovered_s:.1f} s" if one.recovered_s else "no fall"
