"""Hops of a message: perfect tables against Pastry's Figure 5, and the tables that result from joins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from ringmq.experiments.scenarios.building import Progress, joined_ring, silent
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.world import World
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.core.routing import next_hop
from ringmq.overlay.core.timing import LAN

FIGURE_5: Final = (0.0, 0.0006, 0.0156, 0.1643, 0.6449, 0.1745)
"""Shares of messages with 0, 1, … hops between two random nodes of 10^5: b = 4, leaf set 16, one entry in each slot
(Rowstron and Druschel 2001, Figure 5)."""

PASTRY: Final = "as in Pastry"
FILLED: Final = "filled"
JOINED: Final = "joined"

PASTRY_HALF: Final = 8
"""Leaves on each side in Pastry's evaluation."""

GOSSIP_S: Final = 60.0
"""Time in which the peers of a grown ring exchange rows of their tables before the measurement."""


@dataclass(frozen=True, slots=True)
class HopFigures:
    """Distribution of hops over one kind of tables. `unlike_figure_5` is the largest difference of a share."""

    tables: str
    nodes: int
    leaf_set: int
    lookups: int
    mean: float
    maximum: int
    shares: tuple[float, ...]
    unlike_figure_5: float | None
    wrong: int


def _figures(tables: str, nodes: int, leaf_set: int, counts: Counter[int], wrong: int) -> HopFigures:
    lookups = counts.total()
    maximum = max(counts)
    shares = tuple(round(counts[hops] / lookups, 5) for hops in range(max(maximum + 1, len(FIGURE_5))))
    unlike = None
    if tables == PASTRY and nodes == 100_000:
        expected = (*FIGURE_5, *(0.0 for _ in shares[len(FIGURE_5) :]))
        unlike = round(max(abs(a - b) for a, b in zip(shares, expected, strict=True)), 4)
    mean = sum(hops * count for hops, count in counts.items()) / lookups
    return HopFigures(tables, nodes, leaf_set, lookups, round(mean, 4), maximum, shares, unlike, wrong)


def hops_as_in_pastry(nodes: int, seed: int, lookups: int, progress: Progress = silent) -> HopFigures:
    """Send messages to ids of random peers, over tables with one entry in each slot and small leaf sets."""
    ring = FilledRing(nodes, seed, PASTRY_HALF, entries=1)
    return _walks(PASTRY, ring, seed, lookups, lambda random: random.choice(ring.ids), progress)


def hops_filled(nodes: int, seed: int, half: int, lookups: int, progress: Progress = silent) -> HopFigures:
    """Look up random keys, like the keys of topics, over perfect tables."""
    ring = FilledRing(nodes, seed, half)
    return _walks(FILLED, ring, seed, lookups, lambda random: Id(random.getrandbits(ID_BITS)), progress)


def _walks(
    tables: str, ring: FilledRing, seed: int, lookups: int, key_from: Callable[[Random], Id], progress: Progress
) -> HopFigures:
    """Follow lookups and count their hops. `wrong` counts the lookups that did not end at the owner."""
    random = Random(seed)
    counts: Counter[int] = Counter()
    wrong = 0
    for number in range(lookups):
        key = key_from(random)
        end, hops = ring.walk(random.randrange(len(ring)), key)
        counts[hops] += 1
        wrong += end != ring.owner(key)
        if number % 1000 == 0:
            progress(number / lookups)
    return _figures(tables, len(ring), 2 * ring.half, counts, wrong)


def hops_joined(nodes: int, seed: int, half: int, lookups: int, progress: Progress = silent) -> HopFigures:
    """Look up random keys over the tables of a ring that was grown by joins and exchanged rows for a minute."""
    world = World(seed, LAN, Weather(delay_s=DELAYS_S["lan"]), half=half)
    joined_ring(world, nodes, lambda done: progress(0.6 * done))
    for second in range(int(GOSSIP_S)):
        world.run(world.now + 1.0)
        progress(0.6 + 0.3 * second / GOSSIP_S)
    ids = list(world.nodes)
    counts: Counter[int] = Counter()
    wrong = 0
    for _ in range(lookups):
        key = Id(world.random.getrandbits(ID_BITS))
        node, hops = world.nodes[world.random.choice(ids)], 0
        while (peer := next_hop(node.ring.leaves, node.ring.table, key)) is not None:
            node, hops = world.nodes[peer.id], hops + 1
        counts[hops] += 1
        wrong += node.peer.id != world.checks.owner(key)
    return _figures(JOINED, nodes, 2 * half, counts, wrong)
