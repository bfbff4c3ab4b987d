"""Rings to begin with: grown by the join protocol, or at full size at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.simulator.world import Node, World

Progress = Callable[[float], None]
"""Told how much of the work is done, from 0 to 1."""

CONTACTS: Final = 3
"""Addresses a joining peer is given: one may be dead by the time it is asked."""

GROWTH: Final = 0.25
"""When a ring is grown, so many join at once as a share of those who are there."""


def silent(_: float) -> None:
    """For who does not want to know how far it is."""


def join_somewhere(world: World, node: Node) -> None:
    """Join through some random active peers."""
    for _ in range(CONTACTS):
        contact = world.nodes[world.checks.pick(world.random)]
        if contact is not node:
            world.join(node, contact)


def joined_ring(world: World, nodes: int, progress: Progress = silent) -> None:
    """Grow a ring of so many peers by joins, a batch at a time; raises when it does not become one."""
    if not world.nodes:
        world.found(world.add())
    while len(world.nodes) < nodes:
        count = len(world.nodes)
        for _ in range(min(nodes - count, max(1, int(count * GROWTH)))):
            join_somewhere(world, world.add())
        if not world.run(world.now + 60, world.checks.whole, world.timing.heartbeat_s):
            raise AssertionError(f"{len(world.nodes)} peers did not become one ring\n{world.story()}")
        progress(len(world.nodes) / nodes)


def settled_ring(world: World, nodes: int, progress: Progress = silent) -> None:
    """A ring of so many peers that have known each other for long."""
    filled = FilledRing(nodes, world.seed, world.half)
    for point in filled.points:
        world.add(point)
    with world.checks.looking_away():
        _settle_all(world, filled, progress)
    if not world.checks.whole():
        raise AssertionError("a filled ring is not whole")


def _settle_all(world: World, filled: FilledRing, progress: Progress) -> None:
    by_point = {point: world.nodes[point].peer for point in filled.points}
    for place, point in enumerate(filled.points):
        leaves = [by_point[peer.id] for peer in filled.leaves(place)]
        entries = [by_point[peer.id] for peer in filled.entries(place)]
        world.settle(world.nodes[point], leaves, entries)
        if place % 100 == 0:
            progress(place / len(filled))
