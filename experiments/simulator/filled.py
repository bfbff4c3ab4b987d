"""A ring at full size from the start: leaf sets are exact and routing tables complete, as if all had met long ago.

The tables of a peer are made at their first use, so that a ring of a million peers fits into memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator
from random import Random
from typing import Final

from ringmq.overlay.core.ids import BASE, DIGIT_BITS, DIGITS, ID_BITS, Id, digit, nearness
from ringmq.overlay.core.leaf_set import HALF, LeafSet
from ringmq.overlay.core.messages import MAX_HOPS, Peer
from ringmq.overlay.core.routing import RoutingTable, next_hop

KEPT_VIEWS: Final = 120_000
"""Most peers whose tables are kept for later messages; they take about 10 kB each."""

NOWHERE: Final = "nowhere"
"""Host of the peers, which are never contacted."""

View = tuple[LeafSet, RoutingTable]


class LostWayError(AssertionError):
    """A message took more than MAX_HOPS hops."""


def _two_of(start: int, end: int, random: Random) -> tuple[int, ...]:
    """Two different numbers of a range, or all numbers of a shorter range."""
    count = end - start
    if count < 2:
        return tuple(range(start, end))
    first, second = int(random.random() * count), int(random.random() * (count - 1))
    return start + first, start + second + (second >= first)


class FilledRing:
    """`nodes` random ids and the tables of their peers; `walk` follows a message with the peers' routing function."""

    def __init__(self, nodes: int, seed: int, half: int = HALF, entries: int = 2) -> None:
        # Another sequence than the world's: the ids that a world draws later must differ from these.
        random = Random(f"ids {seed}")
        self.ids: list[Id] = sorted({Id(random.getrandbits(ID_BITS)) for _ in range(nodes)})
        """Ids in the order of the ring. A peer is named by its position in it."""
        self.half = half
        self._per_slot = entries
        self._seed = seed
        self._views: dict[int, View] = {}

    def __len__(self) -> int:
        return len(self.ids)

    def peer(self, position: int) -> Peer:
        return Peer(self.ids[position], NOWHERE, 4883, 0)

    def leaves(self, position: int) -> list[Peer]:
        """The exact leaf set of the peer at a position."""
        count = len(self.ids)
        reach = self.half if count > 4 * self.half else count - 1
        leaves = LeafSet(self.ids[position], self.half)
        leaves.fill(self.peer((position + step) % count) for step in range(-reach, reach + 1))
        return list(leaves)

    def entries(self, position: int) -> Iterator[Peer]:
        """Random peers for each slot of its routing table, as many as the slot holds or as fit into it."""
        ids = self.ids
        own_id = ids[position]
        random = Random(self._seed ^ own_id)
        low, high = 0, len(ids)
        # `low` and `high` enclose the ids that share the first `row` digits with this peer.
        for row in range(DIGITS):
            if high - low <= 1:
                return
            shift = ID_BITS - DIGIT_BITS * (row + 1)
            first = own_id >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS)
            bounds = [low, *(bisect_left(ids, first + (d << shift), low, high) for d in range(1, BASE)), high]
            own_digit = digit(own_id, row)
            for column in range(BASE):
                if column != own_digit:
                    start, end = bounds[column], bounds[column + 1]
                    for choice in _two_of(start, end, random)[: self._per_slot]:
                        yield self.peer(choice)
            low, high = bounds[own_digit], bounds[own_digit + 1]

    def view(self, position: int) -> View:
        """The leaf set and the routing table of the peer at a position."""
        view = self._views.get(position)
        if view is None:
            if len(self._views) >= KEPT_VIEWS:
                self._views.clear()
            leaves, table = LeafSet(self.ids[position], self.half), RoutingTable(self.ids[position])
            leaves.fill(self.leaves(position))
            for peer in self.entries(position):
                table.offer(peer)
            view = self._views[position] = leaves, table
        return view

    def position(self, peer_id: Id) -> int:
        return bisect_left(self.ids, peer_id)

    def owner(self, key: int, dead: Collection[Id] = ()) -> Id:
        """The live peer whose id is numerically closest to the key."""
        ids, count = self.ids, len(self.ids)
        start = bisect_left(ids, key)
        above = next(ids[step % count] for step in range(start, start + count) if ids[step % count] not in dead)
        down = range(start - 1, start - 1 - count, -1)
        below = next(ids[step % count] for step in down if ids[step % count] not in dead)
        return min(above, below, key=lambda peer_id: nearness(key, peer_id))

    def walk(self, start: int, key: Id, dead: Collection[Id] = ()) -> tuple[Id, int]:
        """Route a message from a position. Returns the peer where it ends and the hops; dead peers are avoided."""
        position, hops = start, 0
        while hops <= MAX_HOPS:
            leaves, table = self.view(position)
            peer = next_hop(leaves, table, key, dead)
            if peer is None:
                return leaves.center, hops
            position, hops = self.position(peer.id), hops + 1
        raise LostWayError(f"{key!r} from {self.ids[start]!r} is still on its way after {hops} hops")
