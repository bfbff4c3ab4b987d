"""A sweep: trials of one ring with each approach at several levels of one parameter, and the figures of the nodes.

Owns the list of trials and their evaluation. The modules of the sweeps, such as `subscribers`, choose the parameter.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from ringmq.collector.jobs.tables import columns as heads
from ringmq.experiments.studies.harness.approaches import ALL, QUICK, QUICK_FANOUT, Approach, guided
from ringmq.experiments.studies.harness.figures import Boxes, Claim, Measure, Statistic, by_level
from ringmq.experiments.studies.harness.outcome import Outcome, Request, Row
from ringmq.experiments.studies.harness.plan import Plan, client_positions, topics
from ringmq.experiments.studies.harness.series import Series, play
from ringmq.experiments.studies.harness.trial import Trial
from ringmq.experiments.studies.sweeps.boxplots import Frame, draw

MEDIAN: Final = "median"
"""A column of `boxes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSize:
    """TrialSize of a trial."""

    peers: int
    publishers: int
    subscribers: int
    topics: int
    homes: int | None = None
    """Number of peers that may have clients, counted from the first; None for all peers."""
    rate_hz: float
    """Messages a second of each publisher to each topic."""
    warm_s: float
    measured_s: float


FULL: Final = TrialSize(peers=50, publishers=14, subscribers=50, topics=7, rate_hz=0.5, warm_s=2.0, measured_s=8.0)
"""Size of the thesis (§4.1.6), which does not state its rate; this rate leaves two cores spare time."""
SMALL: Final = TrialSize(peers=12, publishers=4, subscribers=12, topics=2, rate_hz=4.0, warm_s=1.0, measured_s=4.0)
"""Size of a quick run, with two publishers for each topic as in the thesis."""


@dataclass(frozen=True, slots=True)
class Level:
    """One value of the swept parameter."""

    name: str
    """Name on the axis and in tables."""
    size: TrialSize


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Definition of one sweep."""

    name: str
    title: str
    axis: str
    """Description of the swept parameter, with its unit."""
    full: tuple[Level, ...]
    quick: tuple[Level, ...]
    claims: tuple[Claim, ...]

    def levels(self, quick: bool) -> tuple[Level, ...]:
        return self.quick if quick else self.full


def conduct(sweep: Sweep, request: Request) -> Outcome:
    """Play all levels with all approaches, and compare the approaches. Raises ExperimentError if every trial failed."""
    levels, approaches = sweep.levels(request.quick), QUICK if request.quick else ALL
    outcome = Outcome(settings={"levels": {level.name: asdict(level.size) for level in levels}})
    plans = {
        label_of(level, approach): plan_of(f"{sweep.name}-{number}-{approach.key}", level.size, approach, request.seed)
        for number, level in enumerate(levels, 1)
        for approach in approaches
    }
    series = play(plans, request, outcome)
    played = [
        (level, approach, series.trials[label_of(level, approach)])
        for level in levels
        for approach in approaches
        if label_of(level, approach) in series.trials
    ]
    runs = {trial.plan.run: (level.name, approach.key) for level, approach, trial in played}
    boxes = by_level(series.tables.get(heads.BOXES.name, ()), runs)
    outcome.tables = {"levels": [level_row(*trial, boxes, series) for trial in played]} | outcome.tables
    outcome.quantities = [
        claim.against(boxes, stand_in(claim.approach, request.quick), request.quick) for claim in sweep.claims
    ]
    frame = Frame(sweep.title, sweep.axis, [level.name for level in levels], approaches)
    for measure in Measure if boxes else ():
        outcome.plots.append(request.folder / f"boxes_{measure}.png")
        draw(frame, measure, boxes, outcome.plots[-1])
    return outcome


def label_of(level: Level, approach: Approach) -> str:
    return f"{level.name}, {approach.label}"


def stand_in(approach: Approach, quick: bool) -> Approach:
    """The approach that is played for an approach of the thesis: a quick run has one smaller fan-out for all trees."""
    return guided(QUICK_FANOUT) if quick and approach.fanout is not None else approach


def plan_of(run: str, size: TrialSize, approach: Approach, seed: int) -> Plan:
    """The plan of a trial. All approaches share ids, delays and positions, and a larger level extends a smaller."""
    homes = size.peers if size.homes is None else size.homes
    return Plan(
        run=run,
        approach=approach,
        peers=size.peers,
        publishers=client_positions(seed, "publishers", homes, size.publishers),
        subscribers=client_positions(seed, "subscribers", homes, size.subscribers),
        topics=topics(size.topics),
        rate_hz=size.rate_hz,
        warm_s=size.warm_s,
        measured_s=size.measured_s,
        seed=seed,
    )


def level_row(level: Level, approach: Approach, trial: Trial, boxes: Boxes, series: Series) -> Row:
    """The row of one trial in the table `levels`."""
    plan, counts, recorded = trial.plan, trial.counts, series.total(trial)
    of_trial = boxes.get((level.name, approach.key), {})
    columns = {"maximum": Statistic.MAXIMUM, "median": MEDIAN, "spread": Statistic.SPREAD}
    latency, bandwidth = of_trial.get(Measure.LATENCY), of_trial.get(Measure.BANDWIDTH)
    return {
        "level": level.name,
        "approach": approach.label,
        "peers": plan.peers,
        "publishers": len(plan.publishers),
        "subscribers": len(plan.subscribers),
        "topics": len(plan.topics),
        "offered_hz": round(plan.delivered_hz, 3),
        **{f"latency_{name}_ms": _scaled(latency, column, 1e3) for name, column in columns.items()},
        **{f"bandwidth_{name}_mbit_s": _scaled(bandwidth, column, 1e-6) for name, column in columns.items()},
        "published": counts.published,
        "published_recorded": recorded.get("published"),
        "received": counts.received,
        "received_recorded": recorded.get("tot_msg"),
        "missed": counts.missed,
        "twice": counts.twice,
        "client_p50_ms": round(1e3 * counts.p50_s, 2),
        "client_p99_ms": round(1e3 * counts.p99_s, 2),
        "keeps_up": counts.keeps_up,
        "ready_s": round(trial.ready_s, 1),
    }


def _scaled(row: Row | None, column: str, scale: float) -> float | None:
    value = None if row is None else row.get(column)
    return round(scale * value, 4) if isinstance(value, int | float) else None
