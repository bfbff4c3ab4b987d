"""The network is split in two halves, each half becomes a ring of its own, and then the network heals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ringmq.experiments.scenarios.building import Progress, settled_ring, silent
from ringmq.experiments.scenarios.workload import LookupFigures, Lookups
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.world import World
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.timing import PRESETS

PATIENCE_S: Final = 120.0
"""Time after which two halves that are not one ring are given up."""
LOOKUPS: Final = 1000
"""Lookups issued once the halves are one ring again; each must be delivered to the right peer."""


@dataclass(frozen=True, slots=True)
class SplitFigures:
    """Figures of a run. `halves_after_s` counts from the split, the other times count from the healing."""

    nodes: int
    seed: int
    timing: str
    apart_s: float
    halves_after_s: float | None
    one_ring_after_s: float | None
    exact_after_s: float | None
    lookups_after: LookupFigures
    events: int
    events_per_s: float


def split_and_heal(
    nodes: int, seed: int, timing: str, apart_s: float = 300.0, progress: Progress = silent
) -> SplitFigures:
    """Split a ring and heal it. During the split each key has two owners, so breaks of invariants are only counted."""
    world = World(seed, PRESETS[timing], Weather(delay_s=DELAYS_S[timing]), strict=False)
    settled_ring(world, nodes)
    world.run(2.0)
    ids = list(world.nodes)
    world.random.shuffle(ids)
    side = frozenset(ids[: nodes // 2])
    world.network.split(dict.fromkeys(side, 1))
    cut_at = world.now
    halves_after_s = None
    while world.now < cut_at + apart_s:
        world.run(min(world.now + 1.0, cut_at + apart_s))
        progress((world.now - cut_at) / apart_s)
        if halves_after_s is None and _halves(world, side):
            halves_after_s = round(world.now - cut_at, 3)
    world.network.heal()
    healed_at = world.now
    one_ring = world.run(healed_at + PATIENCE_S, world.checks.whole, 0.1)
    one_ring_after_s = round(world.now - healed_at, 3)
    exact = world.run(healed_at + PATIENCE_S, lambda: not world.checks.faults(world.half), 0.5)
    exact_after_s = round(world.now - healed_at, 3)
    lookups = Lookups(world, 100.0)
    for _ in range(LOOKUPS):
        world.run(lookups.next_at)
        lookups.issue()
    # After this time the last lookups are delivered or lost: a sender has given up.
    world.run(world.now + world.timing.receipt_s * world.timing.receipt_tries)
    return SplitFigures(
        nodes=nodes,
        seed=seed,
        timing=timing,
        apart_s=apart_s,
        halves_after_s=halves_after_s,
        one_ring_after_s=one_ring_after_s if one_ring else None,
        exact_after_s=exact_after_s if exact else None,
        lookups_after=lookups.figures(),
        events=world.steps,
        events_per_s=round(world.events_per_s),
    )


def _halves(world: World, side: frozenset[Id]) -> bool:
    """Whether every leaf set has only peers of its own side."""
    leaf_pairs = [(peer_id, leaf.id) for peer_id, node in world.nodes.items() for leaf in node.ring.leaves]
    return all((leaf_id in side) == (peer_id in side) for peer_id, leaf_id in leaf_pairs)
