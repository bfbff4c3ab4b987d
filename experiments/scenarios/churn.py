"""Peers come and go for hours: wrong and lost deliveries, and the cost of keeping the ring.

Sessions have a Weibull distribution with a shape below 1, with a stable majority and a minority of short sessions, as
measured in real networks; exponential sessions would be kinder. Every session ends with a silent crash. Half of the
crashed peers come back with their old ids, the others are replaced by new peers.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from math import log
from typing import Final

from ringmq.experiments.scenarios.building import Progress, join_somewhere, settled_ring, silent
from ringmq.experiments.scenarios.detection import Detection, DetectionFigures
from ringmq.experiments.scenarios.workload import LookupFigures, Lookups
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.world import Node, World
from ringmq.overlay.core.timing import PRESETS

SHAPE: Final = 0.5
"""Shape k of the Weibull distribution; fits to measured BitTorrent sessions gave .34 to .59."""
ABSENCE_S: Final = 60.0
"""Mean time until a crashed peer comes back or is replaced."""
LOOKUPS_PER_S: Final = 0.01
"""Lookups a second of each peer."""
WORKLOAD: Final = frozenset({"Lookup", "Receipt"})
"""Kinds of messages that are not control traffic. Acknowledgements of hops are control traffic."""


@dataclass(frozen=True, slots=True)
class ChurnFigures:
    """Figures of a run. `control_per_s` is the rate of control messages of one peer."""

    nodes: int
    seed: int
    timing: str
    burst_loss: float
    hours: float
    crashes: int
    joins: int
    mean_live: float
    lookups: LookupFigures
    breaks: dict[str, int]
    control_per_s: float
    control_by_kind: dict[str, float]
    detection: DetectionFigures
    digest: int
    events: int
    events_per_s: float


class Churn:
    """Peers with sessions, in a world with lookups."""

    def __init__(self, nodes: int, seed: int, timing: str, burst_loss: float, median_s: float) -> None:
        weather = Weather(delay_s=DELAYS_S[timing], burst_loss=burst_loss)
        self.world = World(seed, PRESETS[timing], weather, strict=not burst_loss)
        self.nodes = nodes
        self.crashes = 0
        self.joins = 0
        # The median of a Weibull distribution is its scale times ln(2)^(1/k).
        self._scale_s = median_s / log(2) ** (1 / SHAPE)
        self._due: list[tuple[float, int, Node]] = []
        self._entries = count()
        settled_ring(self.world, nodes)
        for node in self.world.live():
            self._begin_session(node)
        self.lookups = Lookups(self.world, LOOKUPS_PER_S * nodes)
        self.detection = Detection(self.world)

    def _begin_session(self, node: Node) -> None:
        session_s = self.world.random.weibullvariate(self._scale_s, SHAPE)
        heappush(self._due, (self.world.now + session_s, next(self._entries), node))

    def run(self, span_s: float, progress: Progress) -> float:
        """Run lookups and sessions for a time. Returns the mean number of live peers."""
        world, lookups, due = self.world, self.lookups, self._due
        end, reported, area, live = world.now + span_s, 0.0, 0.0, len(world.live())
        while True:
            moment = min(lookups.next_at, due[0][0])
            area += live * (min(moment, end) - world.now)
            if moment > end:
                world.run(end)
                return area / span_s
            world.run(moment)
            if moment == lookups.next_at:
                lookups.issue()
            else:
                live += self._change(heappop(due)[2])
            if moment - reported > span_s / 500:
                reported = moment
                progress(1 - (end - moment) / span_s)

    def _change(self, node: Node) -> int:
        """End the session of a peer, or begin one in its place. Returns the change in the number of live peers."""
        world = self.world
        if node.alive:
            self.detection.crashing(node)
            world.crash(node)
            self.crashes += 1
            heappush(self._due, (world.now + world.random.expovariate(1 / ABSENCE_S), next(self._entries), node))
            return -1
        self.detection.returned(node.peer.id)
        again = world.add(node.peer.id if world.random.random() < 0.5 else None)
        join_somewhere(world, again)
        self.joins += 1
        self._begin_session(again)
        return 1


def churn(
    nodes: int,
    seed: int,
    timing: str,
    hours: float,
    burst_loss: float = 0.0,
    median_s: float = 3600.0,
    progress: Progress = silent,
) -> ChurnFigures:
    """Run churn. Raises InvariantBrokenError at the first broken invariant; with loss, breaks are counted instead."""
    scene = Churn(nodes, seed, timing, burst_loss, median_s)
    world = scene.world
    mean_live = scene.run(hours * 3600, progress)
    per_peer_s = mean_live * hours * 3600
    by_kind = {kind: sent / per_peer_s for kind, sent in world.sent.most_common() if kind not in WORKLOAD}
    scene.lookups.next_at = float("inf")
    # After this time the last lookups are delivered or lost: a sender has given up.
    world.run(world.now + world.timing.receipt_s * world.timing.receipt_tries)
    return ChurnFigures(
        nodes=nodes,
        seed=seed,
        timing=timing,
        burst_loss=burst_loss,
        hours=hours,
        crashes=scene.crashes,
        joins=scene.joins,
        mean_live=round(mean_live, 1),
        lookups=scene.lookups.figures(),
        breaks=dict(world.checks.breaks),
        control_per_s=round(sum(by_kind.values()), 4),
        control_by_kind={kind: round(rate, 4) for kind, rate in by_kind.items()},
        detection=scene.detection.figures(),
        digest=world.digest,
        events=world.steps,
        events_per_s=round(world.events_per_s),
    )
