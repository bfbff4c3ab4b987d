"""Rings for the start of a scenario: grown by the join protocol, or at full size at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.simulator.world import Node, World

Progress = Callable[[float], None]
"""Receives the share of the work that is done, from 0 to 1."""

CONTACTS: Final = 3
"""Contacts of a joining peer: some may be dead by the time they are asked."""

GROWTH: Final = 0.25
"""Peers that join at once when a ring is grown, as a share of its members."""


def silent(_: float) -> None:
    """Ignore the progress."""


def join_somewhere(world: World, node: Node) -> None:
    """Let a peer join through some random active peers."""
    for _ in range(CONTACTS):
        contact = world.nodes[world.checks.pick(world.random)]
        if contact is not node:
            world.join(node, contact)


def joined_ring(world: World, nodes: int, progress: Progress = silent) -> None:
    """Grow a ring to `nodes` peers by joins, a batch at a time. Raises AssertionError if it does not become whole."""
    if not world.nodes:
        world.found(world.add())
    while len(world.nodes) < nodes:
        count = len(world.nodes)
        for _ in range(min(nodes - count, max(1, int(count * GROWTH)))):
            join_somewhere(world, world.add())
        if not world.run(world.now + 60, world.checks.whole, world.timing.heartbeat_s):
            raise AssertionError(f"{len(world.nodes)} peers did not become one ring\n{world.trace()}")
        progress(len(world.nodes) / nodes)


def settled_ring(world: World, nodes: int, progress: Progress = silent) -> None:
    """Add a ring of `nodes` peers that have known each other for a long time."""
    filled = FilledRing(nodes, world.seed, world.half)
    for peer_id in filled.ids:
        world.add(peer_id)
    with world.checks.suspended():
        _settle_all(world, filled, progress)
    if not world.checks.whole():
        raise AssertionError("a filled ring is not whole")


def _settle_all(world: World, filled: FilledRing, progress: Progress) -> None:
    peers = {peer_id: world.nodes[peer_id].peer for peer_id in filled.ids}
    for position, peer_id in enumerate(filled.ids):
        leaves = [peers[peer.id] for peer in filled.leaves(position)]
        entries = [peers[peer.id] for peer in filled.entries(position)]
        world.settle(world.nodes[peer_id], leaves, entries)
        if position % 100 == 0:
            progress(position / len(filled))
