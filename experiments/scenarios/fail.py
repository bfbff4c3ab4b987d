"""A large share of the ring dies silently at one moment: time until the remaining peers are one ring again."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Final

from ringmq.experiments.scenarios.building import Progress, settled_ring, silent
from ringmq.experiments.scenarios.workload import LookupFigures, Lookups
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.world import World
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.core.timing import PRESETS

BEFORE_S: Final = 2.0
"""Time that the ring runs before the crash."""
PATIENCE_S: Final = 120.0
"""Time after which a ring that has not become one is given up."""
LOOKUPS_PER_S: Final = 200.0
"""Lookups a second in the whole ring."""


@dataclass(frozen=True, slots=True)
class FailFigures:
    """Figures of a run. `one_ring_after_s` counts from the crash until each live peer knows its true neighbours."""

    nodes: int
    seed: int
    timing: str
    fraction: float
    one_ring_after_s: float | None
    inexact_leaf_sets: int
    messages_per_death: float
    lookups: LookupFigures
    events: int
    events_per_s: float


def fail_at_once(nodes: int, seed: int, fraction: float, timing: str, progress: Progress = silent) -> FailFigures:
    """Let a share of the peers die. Raises InvariantBrokenError at a wrong delivery, or a key with two owners."""
    world = World(seed, PRESETS[timing], Weather(delay_s=DELAYS_S[timing]))
    settled_ring(world, nodes, lambda done: progress(0.3 * done))
    lookups = Lookups(world, LOOKUPS_PER_S)
    _run_with(world, lookups, BEFORE_S)
    victims = world.random.sample(list(world.nodes.values()), int(nodes * fraction))
    for node in victims:
        world.crash(node)
    crashed_at, sent_before = world.now, _upkeep(world)
    one_ring_after_s = None
    while world.now < crashed_at + PATIENCE_S:
        _run_with(world, lookups, 0.5)
        progress(0.3 + 0.7 * min(1.0, (world.now - crashed_at) / 30.0))
        if one_ring_after_s is None and world.checks.whole():
            one_ring_after_s = round(world.now - crashed_at, 3)
        if one_ring_after_s is not None and world.now > crashed_at + max(30.0, one_ring_after_s):
            break
    took_s = world.now - crashed_at
    # Without a death, each live peer sends one heartbeat to one neighbour in each `heartbeat_s`.
    idle_per_s = (nodes - len(victims)) / world.timing.heartbeat_s
    lookups.next_at = float("inf")
    # After this time the last lookups are delivered or lost: a sender has given up.
    world.run(world.now + world.timing.receipt_s * world.timing.receipt_tries)
    return FailFigures(
        nodes=nodes,
        seed=seed,
        timing=timing,
        fraction=fraction,
        one_ring_after_s=one_ring_after_s,
        inexact_leaf_sets=len(world.checks.faults(world.half)),
        messages_per_death=round((_upkeep(world) - sent_before - idle_per_s * took_s) / max(1, len(victims)), 1),
        lookups=lookups.figures(),
        events=world.steps,
        events_per_s=round(world.events_per_s),
    )


def _upkeep(world: World) -> int:
    """Messages sent so far to maintain the ring, without the messages of lookups."""
    return world.messages - sum(world.sent[kind] for kind in ("Lookup", "Receipt", "RouteAck"))


def _run_with(world: World, lookups: Lookups, span_s: float) -> None:
    end = world.now + span_s
    while lookups.next_at <= end:
        world.run(lookups.next_at)
        lookups.issue()
    world.run(end)


@dataclass(frozen=True, slots=True)
class DetourFigures:
    """Mean hops over perfect tables, before and after a share of the peers died, without repairs."""

    nodes: int
    fraction: float
    lookups: int
    mean_before: float
    mean_after: float
    growth: float
    wrong: int


def detours(nodes: int, seed: int, fraction: float, lookups: int, progress: Progress = silent) -> DetourFigures:
    """Send lookups between live peers. A dead next hop is avoided, as after the timeout of a hop."""
    ring = FilledRing(nodes, seed)
    random = Random(seed)
    dead = frozenset(random.sample(ring.ids, int(nodes * fraction)))
    live = [position for position, peer_id in enumerate(ring.ids) if peer_id not in dead]
    before = after = wrong = 0
    for number in range(lookups):
        key, start = Id(random.getrandbits(ID_BITS)), random.choice(live)
        before += ring.walk(start, key)[1]
        end, hops = ring.walk(start, key, dead)
        after += hops
        wrong += end != ring.owner(key, dead)
        if number % 1000 == 0:
            progress(number / lookups)
    return DetourFigures(
        nodes=nodes,
        fraction=fraction,
        lookups=lookups,
        mean_before=round(before / lookups, 4),
        mean_after=round(after / lookups, 4),
        growth=round(after / before - 1, 4),
        wrong=wrong,
    )
