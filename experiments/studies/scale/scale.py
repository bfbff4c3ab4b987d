"""The experiment `scale`: the quantities of the sweeps from a dozen nodes to 100,000, simulated, and real where it can.

Owns which rings there are, and who publishes in them. All nodes subscribe to all topics, as in most trials of the
thesis (§4.1.6), and up to 14 publish.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ringmq.collector.errors import CollectorError
from ringmq.dispatching.algorithms import Choice
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.studies.harness import rings, spark_reduce, trial
from ringmq.experiments.studies.harness.approaches import ALL, DIRECT, SCRIBE, Approach, guided
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome, Request, Row
from ringmq.experiments.studies.harness.plan import DELAY, PAYLOAD_BYTES, Plan, ids, spread, topics
from ringmq.experiments.studies.scale import cores as scale_cores
from ringmq.experiments.studies.scale import plots
from ringmq.experiments.studies.scale import real as scale_real
from ringmq.experiments.studies.scale.figures import (
    CORES,
    REAL,
    SIMULATED,
    Found,
    below_scribe,
    differences,
    of_tally,
    quantities,
    rows,
)
from ringmq.experiments.studies.scale.grown import grown_ring
from ringmq.experiments.studies.scale.multicast import Load, Network, Spreading, known_ring
from ringmq.experiments.studies.sweeps.sweep import Size, plan_of
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.settings.load import parse_delay

SIZES: Final = (12, 25, 50, 100, 1_000, 10_000, 100_000)
QUICK_SIZES: Final = (12, 50, 1_000, 10_000)
REAL_SIZES: Final = (12, 25, 50)
QUICK_REAL_SIZES: Final = (12,)
QUICK_REAL: Final = (SCRIBE, DIRECT, guided(5))
CORES_SIZE: Final = 10_000
QUICK_CORES_SIZE: Final = 1_000
"""Of the ring of whole cores that the simulation is held against."""
CORES_MESSAGES: Final = 7
MOST_PUBLISHERS: Final = 14
PUBLISHING: Final = 0.28
"""Of the nodes, until there are so many: both as in the thesis."""
TOPICS: Final = 7
PUBLISHED_HZ: Final = 49.0
"""In a real ring, all publishers together: 2,450 deliveries/s at 50 peers."""
MEASURED_S: Final = 4.0
WARM_S: Final = 1.0
"""Both at least, and whole rounds, so that each publisher publishes to each topic as often."""
GROWN: Final = 100
"""Up to so many nodes a simulated ring comes about by joins, as real ones do; beyond, tables are filled at random."""
ALL_PAIRS: Final = 1_000
"""Up to so many nodes each publisher publishes to each topic; beyond, there are no more than the next messages."""
MOST_MESSAGES: Final = 28
PEER: Final = Peer(Id(0), "127.0.0.1", 20_000, 1 << 40)
"""Addresses of real peers on one machine are as long; `boot` is the time of their start."""
KEPT: Final = ("runs", "per_peer")
"""Of the collector's tables."""


@dataclass(slots=True)
class _Done:
    """What there is until now."""

    found: list[Found] = field(default_factory=list)
    checked: list[Found] = field(default_factory=list)
    """Whole cores, and the same simulated."""
    costs: list[Row] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)


def run(request: Request) -> Outcome:
    """Raises ExperimentError when nothing was found."""
    sizes = QUICK_SIZES if request.quick else SIZES
    real_sizes = QUICK_REAL_SIZES if request.quick else REAL_SIZES
    cores_size = QUICK_CORES_SIZE if request.quick else CORES_SIZE
    done = _Done()
    done.outcome.settings = {
        "seed": request.seed,
        "sizes": sizes,
        "real_sizes": real_sizes,
        "cores_size": cores_size,
        "approaches": [approach.key for approach in ALL],
        "payload_bytes": PAYLOAD_BYTES,
        "delay": DELAY,
    }
    if request.quick:
        left = [size for size in SIZES if size not in sizes]
        done.outcome.left_out.append(f"{', '.join(f'{size:,}' for size in left)} nodes: not simulated with --quick")
    plans = {size: plan_of(f"scale-{size}", size_of(size), DIRECT, request.seed) for size in real_sizes}
    done.outcome.settings["plans"] = {f"{size}": asdict(plan) for size, plan in plans.items()}
    real = [(plan, approach) for plan in plans.values() for approach in _others(plan.peers, request.quick)]
    request.progress.begin(len(real) + len(sizes) * len(ALL) + len(_others(cores_size)) + 1)
    with TemporaryDirectory(prefix="ringmq-lab-data-", dir=request.folder) as folder:
        try:
            for plan, approach in real:
                _play(replace(plan, run=f"{plan.run}-{approach.key}", approach=approach), request, Path(folder), done)
            for size in sizes:
                _simulate(size, request, done)
            _check(cores_size, request, done)
        except KeyboardInterrupt:
            done.outcome.interrupted = True
        _conclude(request, Path(folder), done)
    return done.outcome


def _others(size: int, quick: bool = False) -> list[Approach]:
    """Those that are not Direct by another name, since nobody has more receivers than their fan-out."""
    wanted = QUICK_REAL if quick else ALL
    return [one for one in wanted if one.fanout is None or one.fanout < size - 1]


def size_of(nodes: int) -> Size:
    """Of a real ring."""
    publishers = publishing(nodes)
    round_s = publishers * TOPICS / PUBLISHED_HZ
    return Size(
        peers=nodes,
        publishers=publishers,
        subscribers=nodes,
        topics=TOPICS,
        rate_hz=1 / round_s,
        warm_s=round_s * -(-WARM_S // round_s),
        measured_s=round_s * -(-MEASURED_S // round_s),
    )


def publishing(nodes: int) -> int:
    """How many publish."""
    return min(MOST_PUBLISHERS, max(1, round(PUBLISHING * nodes)))


def _play(plan: Plan, request: Request, data: Path, done: _Done) -> None:
    """One real ring. If it fails it is left out."""
    what = f"{plan.peers} real peers, {plan.approach.label}"
    began = time.monotonic()
    try:
        reason = rings.why_not(plan.peers, disk=request.folder)
        if reason is not None:
            raise ExperimentError(reason)
        played = trial.run(plan, data)
        done.found.append(scale_real.found_of(played, data))
    except ExperimentError as error:
        done.outcome.left_out.append(f"{what}: {error.message}")
        request.progress.say(f"left out: {done.outcome.left_out[-1]}")
    else:
        _note(done, plan.peers, plan.approach, REAL, time.monotonic() - began, plan.messages)
        _warn(played, what, request, done)
    request.progress.step(what)


def _warn(played: trial.Trial, what: str, request: Request, done: _Done) -> None:
    counts = played.counts
    troubles = [] if counts.keeps_up else [trial.too_slow(played)]
    if counts.missed or counts.twice:
        troubles.append(f"{counts.missed} of {counts.wanted} deliveries were missed, {counts.twice} came twice")
    for trouble in troubles:
        request.progress.say(f"{what}: {trouble}")
        done.outcome.left_out.append(f"{what}: in the tables, but {trouble}")


def _simulate(size: int, request: Request, done: _Done) -> None:
    """All approaches over one ring: the one that real peers would be."""
    plan, points = plan_of(f"{size}", size_of(size), DIRECT, request.seed), ids(request.seed, size)
    network = Network(PEER, parse_delay(DELAY), request.seed, recorded=True)
    ring = grown_ring(points, network, request.seed) if size <= GROWN else known_ring(points, request.seed)
    publishers = [ring.place(points[place]) for place in plan.publishers]
    most = len(publishers) * TOPICS if size <= ALL_PAIRS else MOST_MESSAGES
    load = Load(tuple(range(size)), topics(TOPICS), pairs(publishers, TOPICS, most), PAYLOAD_BYTES)
    for approach in ALL:
        began = time.process_time()
        tally = Spreading(ring, load, network, choice_of(approach)).publish_all()
        done.found.append(of_tally(size, approach, SIMULATED, tally, len(load.pairs)))
        _note(done, size, approach, SIMULATED, time.process_time() - began, len(load.pairs))
        request.progress.step(f"{size:,} simulated nodes, {approach.label}")


def choice_of(approach: Approach) -> Choice:
    return Choice(approach.dispatch, approach.fanout or UNBOUNDED)


def pairs(publishers: Sequence[int], topic_count: int, most: int) -> tuple[tuple[int, int], ...]:
    """Publishers with numbers of topics, each once: however few, all publishers and all topics have their share."""
    rounds = range(topic_count)
    every = [(one, (place + turn) % topic_count) for turn in rounds for place, one in enumerate(publishers)]
    return tuple(every[:most])


def _check(size: int, request: Request, done: _Done) -> None:
    """The simulation against whole cores, with one topic."""
    ring = FilledRing(size, request.seed)
    publishers = spread(request.seed, "publishers", size, CORES_MESSAGES)
    load = Load(tuple(range(size)), topics(1), pairs(publishers, 1, CORES_MESSAGES), PAYLOAD_BYTES)
    network = Network(scale_cores.PEER, parse_delay(DELAY), request.seed, recorded=False)
    for approach in _others(size):
        choice, began = choice_of(approach), time.process_time()
        simulated = Spreading(ring, load, network, choice).publish_all()
        between = time.process_time()
        cores = scale_cores.by_cores(size, request.seed, load, network, choice)
        done.checked.append(of_tally(size, approach, SIMULATED, simulated, len(load.pairs)))
        done.checked.append(of_tally(size, approach, CORES, cores, len(load.pairs)))
        _note(done, size, approach, f"{SIMULATED}, for the {CORES}", between - began, len(load.pairs))
        _note(done, size, approach, CORES, time.process_time() - between, len(load.pairs))
        request.progress.step(f"{size:,} {CORES}, {approach.label}")


def _note(done: _Done, size: int, approach: Approach, source: str, took_s: float, messages: int) -> None:
    """What it cost: real rings are measured by the clock, the others by processor time."""
    done.costs.append(
        {
            "nodes": size,
            "approach": approach.label,
            "source": source,
            "messages": messages,
            "took_s": round(took_s, 2),
            "memory_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
    )


def _conclude(request: Request, data: Path, done: _Done) -> None:
    outcome = done.outcome
    if not done.found:
        raise ExperimentError(f"scale: nothing was found: {(outcome.left_out or ['interrupted'])[0]}")
    compared = differences(done.found) + differences(done.checked)
    outcome.tables = {"scale": rows(done.found), "agreement": compared, "costs": done.costs}
    if done.checked:
        outcome.tables["cores"] = rows(done.checked)
    outcome.quantities = quantities(compared) + below_scribe(done.found)
    outcome.plots = [plots.write(done.found, request.folder)]
    if not outcome.interrupted and any(one.source != SIMULATED for one in done.found):
        try:
            found = spark_reduce.reduce(data, request, outcome)
        except CollectorError as error:
            outcome.left_out.append(f"tables of the collector: {error.message}")
        except KeyboardInterrupt:
            outcome.interrupted = True
        else:
            outcome.tables |= {f"collector_{name}": found[name] for name in KEPT if found.get(name)}
    request.progress.step("tables and plots")
