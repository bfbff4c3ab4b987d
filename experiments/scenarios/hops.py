"""How many hops a message takes: perfect tables against Pastry's Figure 5, and the tables that joining really makes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Final

from experiments.scenarios.building import Progress, joined_ring, silent
from experiments.simulator.filled import FilledRing
from experiments.simulator.network import DELAYS_S, Weather
from experiments.simulator.world import World
from overlay.hops import next_hop
from overlay.ids import ID_BITS, Id
from overlay.timing import LAN

FIGURE_5: Final = (0.0, 0.0006, 0.0156, 0.1643, 0.6449, 0.1745)
"""Shares of lookups with 0, 1, … hops: 10^5 nodes, b = 4, leaf set 16 (Rowstron and Druschel 2001, Figure 5)."""

GOSSIP_S: Final = 60.0
"""How long a grown ring exchanges rows of its tables before they are looked at."""


@dataclass(frozen=True, slots=True)
class HopFigures:
    """The distribution of hops of one kind of tables. `unlike_figure_5` is the largest difference of a share."""

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
    if nodes == 100_000 and leaf_set == 16:
        expected = (*FIGURE_5, *(0.0 for _ in shares[len(FIGURE_5) :]))
        unlike = round(max(abs(a - b) for a, b in zip(shares, expected, strict=True)), 4)
    mean = sum(hops * count for hops, count in counts.items()) / lookups
    return HopFigures(tables, nodes, leaf_set, lookups, round(mean, 4), maximum, shares, unlike, wrong)


def hops_filled(nodes: int, seed: int, half: int, lookups: int, progress: Progress = silent) -> HopFigures:
    """Lookups over perfect tables. `wrong` counts those that did not end at the owner."""
    ring = FilledRing(nodes, seed, half)
    random = Random(seed)
    counts: Counter[int] = Counter()
    wrong = 0
    for number in range(lookups):
        key = Id(random.getrandbits(ID_BITS))
        end, hops = ring.walk(random.randrange(nodes), key)
        counts[hops] += 1
        wrong += end != ring.owner(key)
        if number % 1000 == 0:
            progress(number / lookups)
    return _figures("filled", nodes, 2 * half, counts, wrong)


def hops_joined(nodes: int, seed: int, half: int, lookups: int, progress: Progress = silent) -> HopFigures:
    """Lookups over the tables of a ring that was grown by the join protocol, and has gossiped for a minute."""
    world = World(seed, LAN, Weather(delay_s=DELAYS_S["lan"]), half=half)
    joined_ring(world, nodes, lambda done: progress(0.6 * done))
    for second in range(int(GOSSIP_S)):
        world.run(world.now + 1.0)
        progress(0.6 + 0.3 * second / GOSSIP_S)
    points = list(world.nodes)
    counts: Counter[int] = Counter()
    wrong = 0
    for _ in range(lookups):
        key = Id(world.random.getrandbits(ID_BITS))
        node, hops = world.nodes[world.random.choice(points)], 0
        while (peer := next_hop(node.ring.leaves, node.ring.table, key)) is not None:
            node, hops = world.nodes[peer.id], hops + 1
        counts[hops] += 1
        wrong += node.peer.id != world.checks.owner(key)
    return _figures("joined", nodes, 2 * half, counts, wrong)
