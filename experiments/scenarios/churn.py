"""Peers come and go for hours: what is delivered wrongly or not at all, and what keeping the ring costs.

Sessions are Weibull, with a shape below 1: a stable majority and a fast-turning minority, as measured in real
networks; exponential sessions would be kinder. Every end is a silent crash. Half of those who went come back under
their old id, half of the places are taken by new peers.
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
"""Weibull's k; fits to measured BitTorrent sessions gave .34 to .59."""
ABSENCE_S: Final = 60.0
"""The mean time until somebody takes the place of a peer that went."""
LOOKUPS_PER_S: Final = 0.01
"""By each peer."""
WORKLOAD: Final = frozenset({"Lookup", "Receipt"})
"""Kinds of messages that are not control traffic; acknowledgements of hops are."""


@dataclass(frozen=True, slots=True)
class ChurnFigures:
    """`control_per_s` are messages a second and peer: all but lookups and their receipts."""

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
        """Let it all happen for so long; returns the mean number of live peers."""
        world, lookups, due = self.world, self.lookups, self._due
        end, told, area, live = world.now + span_s, 0.0, 0.0, len(world.live())
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
                live += self._turn(heappop(due)[2])
            if moment - told > span_s / 500:
                told = moment
                progress(1 - (end - moment) / span_s)

    def _turn(self, node: Node) -> int:
        """A session ends, or somebody takes the place of one that ended."""
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
    """Without loss, raises InvariantBrokenError at the first thing that must never happen; with loss, counts them."""
    scene = Churn(nodes, seed, timing, burst_loss, median_s)
    world = scene.world
    mean_live = scene.run(hours * 3600, progress)
    per_peer_s = mean_live * hours * 3600
    by_kind = {kind: sent / per_peer_s for kind, sent in world.sent.most_common() if kind not in WORKLOAD}
    scene.lookups.next_at = float("inf")
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
