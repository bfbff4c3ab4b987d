"""Routing: the table of far peers (Pastry §2.2), and the rule that picks the next hop of a message (Pastry §2.3).

The table has peers for each length of common prefix and each next digit. Its entries are hints for long distances; it
never decides the owner of a key. Each slot holds a second peer, so a dead entry costs no detour: with a tenth of the
peers dead, a table of single entries takes 8 % more hops (Pastry Fig. 10).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import chain

from ringmq.overlay.core.ids import BASE, DIGIT_BITS, ID_BITS, Id, nearness, shared_digits
from ringmq.overlay.core.leaf_set import LeafSet
from ringmq.overlay.core.messages import Peer


class RoutingTable:
    """Slots by row and digit; empty ones take no memory."""

    __slots__ = ("_first", "_rotation", "_second", "center")

    def __init__(self, center: Id) -> None:
        self.center = center
        self._first: dict[int, Peer] = {}
        self._second: dict[int, Peer] = {}
        self._rotation = 0

    def __len__(self) -> int:
        return len(self._first) + len(self._second)

    def __iter__(self) -> Iterator[Peer]:
        yield from self._first.values()
        yield from self._second.values()

    def __contains__(self, peer_id: int) -> bool:
        if peer_id == self.center:
            return False
        slot = self._slot(peer_id)
        return any(
            entry is not None and entry.id == peer_id for entry in (self._first.get(slot), self._second.get(slot))
        )

    def _slot(self, peer_id: int) -> int:
        row = (ID_BITS - (peer_id ^ self.center).bit_length()) // DIGIT_BITS
        return row << DIGIT_BITS | (peer_id >> (ID_BITS - DIGIT_BITS - DIGIT_BITS * row)) & (BASE - 1)

    def offer(self, peer: Peer) -> bool:
        """Add the peer if its slot has space, or replace its own older address. True if the table changed."""
        peer_id = peer.id
        if peer_id == self.center:
            return False
        slot = self._slot(peer_id)
        first = self._first.get(slot)
        if first is None:
            self._first[slot] = peer
            return True
        if first.id == peer_id:
            return self._renew(self._first, slot, first, peer)
        second = self._second.get(slot)
        if second is None:
            self._second[slot] = peer
            return True
        return second.id == peer_id and self._renew(self._second, slot, second, peer)

    @staticmethod
    def _renew(entries: dict[int, Peer], slot: int, old: Peer, new: Peer) -> bool:
        # Hearsay of an earlier incarnation must not bring back an address that is no longer served.
        if new.boot <= old.boot:
            return False
        entries[slot] = new
        return True

    def remove(self, peer_id: int) -> Peer | None:
        """Remove a peer; the second entry of its slot, if any, moves up."""
        if peer_id == self.center:
            return None
        slot = self._slot(peer_id)
        first, second = self._first.get(slot), self._second.get(slot)
        if second is not None and second.id == peer_id:
            return self._second.pop(slot)
        if first is None or first.id != peer_id:
            return None
        if second is None:
            del self._first[slot]
        else:
            self._first[slot] = self._second.pop(slot)
        return first

    def towards(self, key: int, without: Collection[Id] = ()) -> Peer | None:
        """An entry that shares at least one more digit with the key than the centre does."""
        if key == self.center:
            return None
        slot = self._slot(key)
        first = self._first.get(slot)
        # The second entry stands in for a first that does not answer.
        if first is None or first.id not in without:
            return first
        second = self._second.get(slot)
        return None if second is None or second.id in without else second

    def row(self, number: int) -> tuple[Peer, ...]:
        """The first entries of a row, in the order of their digits."""
        first = self._first
        slots = range(number << DIGIT_BITS, (number + 1) << DIGIT_BITS)
        return tuple(first[slot] for slot in slots if slot in first)

    def rows_for(self, peer_id: int, start: int) -> tuple[Peer, ...]:
        """The rows from `start` on that a peer with this id can use: up to the common prefix."""
        if peer_id == self.center:
            return ()
        last = shared_digits(peer_id, self.center)
        return tuple(peer for number in range(start, last + 1) for peer in self.row(number))

    def next_in_turn(self) -> tuple[int, Peer] | None:
        """The next entry in rotation, with its row; for probing all of them."""
        slots = list(self._first)
        if not slots:
            return None
        self._rotation = (self._rotation + 1) % len(slots)
        slot = slots[self._rotation]
        return slot >> DIGIT_BITS, self._first[slot]


def next_hop(leaves: LeafSet, table: RoutingTable, key: Id, without: Collection[Id] = ()) -> Peer | None:
    """The next peer on the way to the key, except `without`; None when this peer is the nearest known.

    Each hop shares a longer prefix with the key, or the same and is nearer, or is the nearest of the leaf set.
    """
    nearest = leaves.closest(key, without)
    if nearest is None or leaves.covers(key):
        return nearest
    ahead = table.towards(key, without)
    if ahead is not None:
        return ahead
    # The rare case: no known peer has the next digit. Any peer serves that shares the prefix and is nearer (§2.3).
    center = leaves.center
    prefix = shared_digits(center, key)
    best, best_nearness = nearest, nearness(key, nearest.id)
    for peer in chain(leaves, table):
        if peer.id not in without and shared_digits(peer.id, key) >= prefix:
            near = nearness(key, peer.id)
            if near < best_nearness:
                best, best_nearness = peer, near
    return best
