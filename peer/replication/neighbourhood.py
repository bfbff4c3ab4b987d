"""The owners of partitions, computed from the peers near this one: the nearest coordinates, the next are its shadows.

True for partitions that this peer or one of its neighbours owns; farther away the leaf set does not know the nearest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import combinations
from typing import Final

from ringmq.overlay.core.ids import SPACE, Id, clockwise, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.peer.replication.space import NUMBERS, PARTITIONS, Runs, key_of_partition, partition_of_key, runs_of

SPARE: Final = 2
"""Owners asked beside the shadows in a takeover: former shadows, which newcomers have just replaced."""


class Neighbourhood:
    """One per engine."""

    __slots__ = (
        "_between", "_ids", "_known", "_me", "_middles", "_mine", "_owned_runs", "_owners", "_shadows", "_silent",
        "departures", "version",
    )  # fmt: skip

    def __init__(self, me: Callable[[], Peer], shadows: int) -> None:
        """`me` is called at the first use: a peer that listens on any port has no address before its start."""
        self._me = me
        self._shadows = shadows
        self._known: dict[Id, Peer] = {}
        self._ids: list[Id] = []
        self._middles: list[int] = []
        """Twice the points that are equally far from two peers, sorted: the order of the peers changes there alone."""
        self._between: dict[int, tuple[Peer, ...]] = {}
        """The owners between two such points, by the index of the second."""
        self._owners: list[tuple[Peer, ...] | None] = [None] * PARTITIONS
        """Of each partition that was asked for: each change of the ring asks for all of them, several times."""
        self.version = 0
        """Grows with each change."""
        self._silent: frozenset[Id] = frozenset()
        # Both take a look at each partition while a peer is silent, and questions come by the thousand then.
        self._mine: list[int] | None = None
        self._owned_runs: Runs | None = None
        self.departures = 0
        """Grows with each peer that is not there any more, or has started again."""

    def _begin(self) -> None:
        me = self._me()
        self._known = {me.id: me}
        self._ids = [me.id]

    def update(self, peers: Iterable[Peer]) -> bool:
        """These are the members of the leaf set now. Returns whether anything changed: a restart changes a boot."""
        if not self._ids:
            self._begin()
        known = {peer.id: peer for peer in peers}
        me = self._me()
        known[me.id] = me
        if known == self._known:
            return False
        self.departures += sum(known.get(peer_id) != peer for peer_id, peer in self._known.items())
        self._known = known
        self._ids = sorted(known)
        # Thousands of partitions lie between two of these points, and owners are computed once for all of them.
        middles = set()
        for first, second in combinations(self._ids, 2):
            middle = first + second
            middles.add(middle)
            middles.add((middle + SPACE) % (2 * SPACE))
        self._middles = sorted(middles)
        self._between = {}
        self._owners = [None] * PARTITIONS
        self._mine = self._owned_runs = None
        self.version += 1
        return True

    @property
    def silent(self) -> frozenset[Id]:
        """Members of the ring that leave this peer without answers."""
        return self._silent

    @silent.setter
    def silent(self, silent: frozenset[Id]) -> None:
        if silent != self._silent:
            self._silent = silent
            self._mine = self._owned_runs = None

    def __contains__(self, peer_id: Id) -> bool:
        return peer_id in self._known

    def find(self, peer_id: Id) -> Peer | None:
        return self._known.get(peer_id)

    def knows(self, peer: Peer) -> bool:
        """Whether this very start of a peer is there."""
        return self._known.get(peer.id) == peer

    @property
    def ids(self) -> Collection[Id]:
        return self._known.keys()

    def owners(self, partition: int) -> tuple[Peer, ...]:
        """The nearest peers to the key of a partition, the nearest first: the coordinator, shadows and spare owners."""
        owners = self._owners[partition]
        if owners is None:
            owners = self._owners[partition] = self._owners_of(key_of_partition(partition))
        return owners

    def _owners_of(self, key: int) -> tuple[Peer, ...]:
        if not self._ids:
            self._begin()
        middles = self._middles
        index = bisect_left(middles, 2 * key)
        if index < len(middles) and middles[index] == 2 * key:
            # The tie rule decides for this key alone.
            return self._nearest(key)
        owners = self._between.get(index)
        if owners is None:
            owners = self._between[index] = self._nearest(key)
        return owners

    def _nearest(self, key: int) -> tuple[Peer, ...]:
        ids, known = self._ids, self._known
        count = min(len(ids), self._shadows + 1 + SPARE)
        at = bisect_left(ids, key)
        # The nearest `count` are among as many on each side.
        near = {ids[index % len(ids)] for index in range(at - count, at + count)}
        return tuple([known[peer_id] for peer_id in sorted(near, key=lambda peer_id: nearness(key, peer_id))[:count]])

    def first(self, partition: int) -> bool:
        """Whether this peer should coordinate a partition: it is the nearest, or acts for the nearest."""
        return self.coordinator(partition).id == self._me().id

    def coordinator(self, partition: int) -> Peer:
        """The nearest peer. If it is silent, and all other owners answer, the next one acts for it: their answers
        prove that none of its shadows obeys it any more, so it can grant nothing. Without shadows it would not need
        them."""
        owners = self.owners(partition)
        if not self._silent or owners[0].id not in self._silent or not self._shadows or len(owners) == 1:
            return owners[0]
        return owners[0] if any(peer.id in self._silent for peer in owners[1:]) else owners[1]

    def silent_first(self, partition: int) -> Peer | None:
        """The nearest peer, if this peer acts for it."""
        first = self.owners(partition)[0]
        return first if first.id != self._me().id and self.first(partition) else None

    def shadows(self, partition: int) -> tuple[Peer, ...]:
        """The peers that must have copies while this peer coordinates the partition: the nearest that answer. If no
        other owner does, this peer cannot go on alone, as a successor may have their word; unless it acts for one."""
        owners = self.owners(partition)
        if not self._silent:
            return owners[1 : self._shadows + 1]
        # With several silent owners this peer may be the one that is cut off: a successor has their word, and never
        # asked a newcomer that this peer would count as a shadow instead.
        if sum(peer.id in self._silent for peer in owners) != 1:
            return owners[1 : self._shadows + 1]
        me = self._me().id
        others = [peer for peer in owners if peer.id not in self._silent and peer.id != me]
        if others or (owners[0].id != me and owners[0].id in self._silent):
            return tuple(others[: self._shadows])
        return owners[1 : self._shadows + 1]

    def belongs(self, partition: int) -> bool:
        """Whether this peer must have a copy at all."""
        return self._me().id in [peer.id for peer in self.owners(partition)[: self._shadows + 1]]

    def mine(self) -> Sequence[int]:
        """The partitions that this peer is the nearest to, a contiguous range of the circle, and those of silent peers
        that it acts for; unsorted."""
        if self._mine is None:
            self._mine = self._find_mine()
        return self._mine

    def _find_mine(self) -> list[int]:
        if not self._ids:
            self._begin()
        ids, me = self._ids, self._me().id
        if len(ids) == 1:
            return list(NUMBERS)
        middle = partition_of_key(me)
        at = ids.index(me)
        found = [middle] if self._nearest_to(middle) else []
        # A peer may own the partitions on one side of its id only, so both sides are looked at in any case. Between it
        # and the next peer, the partitions that it owns come first.
        for step, neighbour in ((1, ids[(at + 1) % len(ids)]), (-1, ids[at - 1])):
            way = clockwise(me, neighbour) if step == 1 else clockwise(neighbour, me)
            low, high = 0, min(partition_of_key(way) + 1, PARTITIONS - 1)
            while low < high:
                between = (low + high + 1) // 2
                if self._nearest_to((middle + step * between) % PARTITIONS):
                    low = between
                else:
                    high = between - 1
            found += [NUMBERS[(middle + step * distance) % PARTITIONS] for distance in range(1, low + 1)]
        if self._silent:
            found += [partition for partition in NUMBERS if self.silent_first(partition) is not None]
        return found

    def _nearest_to(self, partition: int) -> bool:
        return self.owners(partition)[0].id == self._me().id

    def beside(self, peer: Peer) -> tuple[Peer, ...]:
        """The neighbours of a peer on both sides."""
        ids, known = self._ids, self._known
        if len(ids) < 2 or peer.id not in known:
            return ()
        at = ids.index(peer.id)
        return tuple([known[peer_id] for peer_id in sorted({ids[at - 1], ids[(at + 1) % len(ids)]})])

    def owned_runs(self) -> Runs:
        if self._owned_runs is None:
            self._owned_runs = runs_of(self.mine())
        return self._owned_runs
