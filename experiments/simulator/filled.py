"""A ring at full size from the start: leaf sets exact and routing tables complete, as if all had met long ago.

Peers are made when they are first looked at, so that a ring of a million fits into memory.
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
"""Tables kept for the next message that comes by; about 10 kB each."""

NOWHERE: Final = "nowhere"
"""The host of peers that are only looked at."""

View = tuple[LeafSet, RoutingTable]


class LostWayError(AssertionError):
    """A message went round and round."""


def _two_of(start: int, end: int, random: Random) -> tuple[int, ...]:
    """Two different numbers out of a range, or as many as it has."""
    count = end - start
    if count < 2:
        return tuple(range(start, end))
    one, other = int(random.random() * count), int(random.random() * (count - 1))
    return start + one, start + other + (other >= one)


class FilledRing:
    """`nodes` random ids and what each would know; `walk` follows a message by the peers' own routing function."""

    def __init__(self, nodes: int, seed: int, half: int = HALF, entries: int = 2) -> None:
        random = Random(f"ids {seed}")  # not the world's sequence, whose new ids must be others
        points = sorted({Id(random.getrandbits(ID_BITS)) for _ in range(nodes)})
        self.points: list[Id] = points
        self.half = half
        self._per_slot = entries
        self._seed = seed
        self._views: dict[int, View] = {}

    def __len__(self) -> int:
        return len(self.points)

    def peer(self, place: int) -> Peer:
        return Peer(self.points[place], NOWHERE, 4883, 0)

    def leaves(self, place: int) -> list[Peer]:
        """The exact leaf set of the peer at this place."""
        count = len(self.points)
        reach = self.half if count > 4 * self.half else count - 1
        leaves = LeafSet(self.points[place], self.half)
        leaves.fill(self.peer((place + step) % count) for step in range(-reach, reach + 1))
        return list(leaves)

    def entries(self, place: int) -> Iterator[Peer]:
        """Random peers for each slot of its routing table, as many as it takes or as there are."""
        points = self.points
        point = points[place]
        random = Random(self._seed ^ point)
        low, high = 0, len(points)
        for row in range(DIGITS):
            if high - low <= 1:
                return
            shift = ID_BITS - DIGIT_BITS * (row + 1)
            first = point >> (shift + DIGIT_BITS) << (shift + DIGIT_BITS)
            bounds = [low, *(bisect_left(points, first + (d << shift), low, high) for d in range(1, BASE)), high]
            own = digit(point, row)
            for column in range(BASE):
                if column != own:
                    start, end = bounds[column], bounds[column + 1]
                    for choice in _two_of(start, end, random)[: self._per_slot]:
                        yield self.peer(choice)
            low, high = bounds[own], bounds[own + 1]

    def view(self, place: int) -> View:
        """What the peer at this place knows."""
        view = self._views.get(place)
        if view is None:
            if len(self._views) >= KEPT_VIEWS:
                self._views.clear()
            leaves, table = LeafSet(self.points[place], self.half), RoutingTable(self.points[place])
            leaves.fill(self.leaves(place))
            for peer in self.entries(place):
                table.offer(peer)
            view = self._views[place] = leaves, table
        return view

    def place(self, point: Id) -> int:
        return bisect_left(self.points, point)

    def owner(self, key: int, dead: Collection[Id] = ()) -> Id:
        """The live peer whose id is numerically closest to the key."""
        points, count = self.points, len(self.points)
        place = bisect_left(points, key)
        above = next(points[step % count] for step in range(place, place + count) if points[step % count] not in dead)
        down = range(place - 1, place - 1 - count, -1)
        below = next(points[step % count] for step in down if points[step % count] not in dead)
        return min(above, below, key=lambda point: nearness(key, point))

    def walk(self, start: int, key: Id, dead: Collection[Id] = ()) -> tuple[Id, int]:
        """Who gets a message from there, and after how many hops; the dead do not answer and are gone around."""
        place, hops = start, 0
        while hops <= MAX_HOPS:
            leaves, table = self.view(place)
            peer = next_hop(leaves, table, key, dead)
            if peer is None:
                return leaves.center, hops
            place, hops = self.place(peer.id), hops + 1
        raise LostWayError(f"{key!r} from {self.points[start]!r} is still on its way after {hops} hops")
