"""The experiment `scale`: the quantities of the sweeps from a dozen nodes to 100,000, simulated, and real if possible.

Owns the rings and their publishers. All nodes subscribe to all topics, as in most trials of the thesis (§4.1.6), and up
to 14 of them publish.
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
from ringmq.experiments.studies.harness.plan import DELAY, PAYLOAD_BYTES, Plan, client_positions, ids, topics
from ringmq.experiments.studies.scale import cores as scale_cores
from ringmq.experiments.studies.scale import plots
from ringmq.experiments.studies.scale import real as scale_real
from ringmq.experiments.studies.scale.figures import (
    CORES,
    REAL,
    SIMULATED,
    RingFigures,
    below_scribe,
    differences,
    of_tally,
    quantities,
    rows,
)
from ringmq.experiments.studies.scale.grown import grown_ring
from ringmq.experiments.studies.scale.multicast import LinkModel, MulticastLoad, MulticastRun, known_ring
from ringmq.experiments.studies.sweeps.sweep import TrialSize, plan_of
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
"""Size of the ring of whole cores that checks the simulation."""
CORES_MESSAGES: Final = 7
MOST_PUBLISHERS: Final = 14
PUBLISHING: Final = 0.28
"""Share of the nodes that publish, up to MOST_PUBLISHERS: both as in the thesis."""
TOPICS: Final = 7
PUBLISHED_HZ: Final = 49.0
"""Rate of all publishers of a real ring together, which gives 2,450 deliveries/s with 50 peers."""
MEASURED_S: Final = 4.0
WARM_S: Final = 1.0
"""Least times. Both are extended to whole rounds, in which each publisher publishes once to each topic."""
GROWN: Final = 100
"""Nodes of the largest simulated ring that is grown by joins, like real rings. Larger rings have random tables."""
ALL_PAIRS: Final = 1_000
"""Nodes of the largest ring where each publisher publishes to each topic. Larger rings have MOST_MESSAGES messages."""
MOST_MESSAGES: Final = 28
PEER: Final = Peer(Id(0), "127.0.0.1", 20_000, 1 << 40)
"""A peer whose encoded form is as long as a real one's on one machine; `boot` is the time of a peer's start."""
KEPT: Final = ("runs", "per_peer")
"""Tables of the collector that the outcome keeps."""


@dataclass(slots=True)
class _Results:
    """Results so far."""

    rings: list[RingFigures] = field(default_factory=list)
    checked: list[RingFigures] = field(default_factory=list)
    """Rings of whole cores, and the simulated rings beside them."""
    costs: list[Row] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)


def run(request: Request) -> Outcome:
    """Run the experiment. Raises ExperimentError without any result."""
    sizes = QUICK_SIZES if request.quick else SIZES
    real_sizes = QUICK_REAL_SIZES if request.quick else REAL_SIZES
    cores_size = QUICK_CORES_SIZE if request.quick else CORES_SIZE
    results = _Results()
    results.outcome.settings = {
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
        results.outcome.left_out.append(f"{', '.join(f'{size:,}' for size in left)} nodes: not simulated with --quick")
    plans = {size: plan_of(f"scale-{size}", size_of(size), DIRECT, request.seed) for size in real_sizes}
    results.outcome.settings["plans"] = {f"{size}": asdict(plan) for size, plan in plans.items()}
    real = [(plan, approach) for plan in plans.values() for approach in _others(plan.peers, request.quick)]
    request.progress.begin(len(real) + len(sizes) * len(ALL) + len(_others(cores_size)) + 1)
    with TemporaryDirectory(prefix="ringmq-lab-data-", dir=request.folder) as folder:
        try:
            for plan, approach in real:
                _play(
                    replace(plan, run=f"{plan.run}-{approach.key}", approach=approach), request, Path(folder), results
                )
            for size in sizes:
                _simulate(size, request, results)
            _check(cores_size, request, results)
        except KeyboardInterrupt:
            results.outcome.interrupted = True
        _conclude(request, Path(folder), results)
    return results.outcome


def _others(size: int, quick: bool = False) -> list[Approach]:
    """The approaches that differ from Direct: a fan-out that no peer's receivers exceed is Direct by another name."""
    wanted = QUICK_REAL if quick else ALL
    return [approach for approach in wanted if approach.fanout is None or approach.fanout < size - 1]


def size_of(nodes: int) -> TrialSize:
    """Size of a trial with a real ring."""
    publishers = publishing(nodes)
    round_s = publishers * TOPICS / PUBLISHED_HZ
    return TrialSize(
        peers=nodes,
        publishers=publishers,
        subscribers=nodes,
        topics=TOPICS,
        rate_hz=1 / round_s,
        warm_s=round_s * -(-WARM_S // round_s),
        measured_s=round_s * -(-MEASURED_S // round_s),
    )


def publishing(nodes: int) -> int:
    """Number of publishers in a ring."""
    return min(MOST_PUBLISHERS, max(1, round(PUBLISHING * nodes)))


def _play(plan: Plan, request: Request, data: Path, results: _Results) -> None:
    """Play a trial with one real ring. A failed trial is left out."""
    what = f"{plan.peers} real peers, {plan.approach.label}"
    began = time.monotonic()
    try:
        reason = rings.why_not(plan.peers, disk=request.folder)
        if reason is not None:
            raise ExperimentError(reason)
        played = trial.run(plan, data)
        results.rings.append(scale_real.figures_of(played, data))
    except ExperimentError as error:
        results.outcome.left_out.append(f"{what}: {error.message}")
        request.progress.say(f"left out: {results.outcome.left_out[-1]}")
    else:
        _add_cost(results, plan.peers, plan.approach, REAL, time.monotonic() - began, plan.messages)
        _warn(played, what, request, results)
    request.progress.step(what)


def _warn(played: trial.Trial, what: str, request: Request, results: _Results) -> None:
    counts = played.counts
    troubles = [] if counts.keeps_up else [trial.too_slow(played)]
    if counts.missed or counts.twice:
        troubles.append(f"{counts.missed} of {counts.wanted} deliveries were missed, {counts.twice} came twice")
    for trouble in troubles:
        request.progress.say(f"{what}: {trouble}")
        results.outcome.left_out.append(f"{what}: in the tables, but {trouble}")


def _simulate(size: int, request: Request, results: _Results) -> None:
    """Simulate all approaches in one ring, with the ids, delays and publishers of the real ring of this size."""
    plan, peer_ids = plan_of(f"{size}", size_of(size), DIRECT, request.seed), ids(request.seed, size)
    links = LinkModel(PEER, parse_delay(DELAY), request.seed, recorded=True)
    ring = grown_ring(peer_ids, links, request.seed) if size <= GROWN else known_ring(peer_ids, request.seed)
    publishers = [ring.position(peer_ids[position]) for position in plan.publishers]
    most = len(publishers) * TOPICS if size <= ALL_PAIRS else MOST_MESSAGES
    load = MulticastLoad(tuple(range(size)), topics(TOPICS), pairs(publishers, TOPICS, most), PAYLOAD_BYTES)
    for approach in ALL:
        began = time.process_time()
        tally = MulticastRun(ring, load, links, choice_of(approach)).publish_all()
        results.rings.append(of_tally(size, approach, SIMULATED, tally, len(load.pairs)))
        _add_cost(results, size, approach, SIMULATED, time.process_time() - began, len(load.pairs))
        request.progress.step(f"{size:,} simulated nodes, {approach.label}")


def choice_of(approach: Approach) -> Choice:
    return Choice(approach.dispatch, approach.fanout or UNBOUNDED)


def pairs(publishers: Sequence[int], topic_count: int, most: int) -> tuple[tuple[int, int], ...]:
    """At most `most` different pairs of a publisher and a topic number, distributed over all publishers and topics."""
    rotations = range(topic_count)
    every = [
        (publisher, (index + rotation) % topic_count)
        for rotation in rotations
        for index, publisher in enumerate(publishers)
    ]
    return tuple(every[:most])


def _check(size: int, request: Request, results: _Results) -> None:
    """Compare the simulation with whole cores, for one topic."""
    ring = FilledRing(size, request.seed)
    publishers = client_positions(request.seed, "publishers", size, CORES_MESSAGES)
    load = MulticastLoad(tuple(range(size)), topics(1), pairs(publishers, 1, CORES_MESSAGES), PAYLOAD_BYTES)
    links = LinkModel(scale_cores.PEER, parse_delay(DELAY), request.seed, recorded=False)
    for approach in _others(size):
        choice, began = choice_of(approach), time.process_time()
        simulated = MulticastRun(ring, load, links, choice).publish_all()
        between = time.process_time()
        cores = scale_cores.by_cores(size, request.seed, load, links, choice)
        results.checked.append(of_tally(size, approach, SIMULATED, simulated, len(load.pairs)))
        results.checked.append(of_tally(size, approach, CORES, cores, len(load.pairs)))
        _add_cost(results, size, approach, f"{SIMULATED}, for the {CORES}", between - began, len(load.pairs))
        _add_cost(results, size, approach, CORES, time.process_time() - between, len(load.pairs))
        request.progress.step(f"{size:,} {CORES}, {approach.label}")


def _add_cost(results: _Results, size: int, approach: Approach, source: str, took_s: float, messages: int) -> None:
    """Add a row to the table of costs. The time of real rings is wall-clock time, the others' is processor time."""
    results.costs.append(
        {
            "nodes": size,
            "approach": approach.label,
            "source": source,
            "messages": messages,
            "took_s": round(took_s, 2),
            "memory_peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        }
    )


def _conclude(request: Request, data: Path, results: _Results) -> None:
    outcome = results.outcome
    if not results.rings:
        raise ExperimentError(f"scale: there is no result: {(outcome.left_out or ['interrupted'])[0]}")
    compared = differences(results.rings) + differences(results.checked)
    outcome.tables = {"scale": rows(results.rings), "agreement": compared, "costs": results.costs}
    if results.checked:
        outcome.tables["cores"] = rows(results.checked)
    outcome.quantities = quantities(compared) + below_scribe(results.rings)
    outcome.plots = [plots.write(results.rings, request.folder)]
    if not outcome.interrupted and any(ring.source != SIMULATED for ring in results.rings):
        try:
            tables = spark_reduce.reduce(data, request, outcome)
        except CollectorError as error:
            outcome.left_out.append(f"tables of the collector: {error.message}")
        except KeyboardInterrupt:
            outcome.interrupted = True
        else:
            outcome.tables |= {f"collector_{name}": tables[name] for name in KEPT if tables.get(name)}
    request.progress.step("tables and plots")
