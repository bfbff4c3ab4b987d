"""The leaf set: the neighbours of a peer on the ring, 16 clockwise and 16 counterclockwise (Pastry §2.2).

It alone decides the owner of a key. It holds any peer that it is given: the membership adds only peers that have been
heard, and removes the dead.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from sortedcontainers import SortedDict

from ringmq.overlay.core.ids import MASK, SPACE, Id, nearness
from ringmq.overlay.core.messages import Peer

HALF: Final = 16
"""Members a side. With 30 % of 10^5 peers dead at once, 8 a side would leave 4.6 peers with a side wiped out; 16
leave .0003: N(1-f)f^(L/2)."""


OPPOSITE: Final = SPACE >> 1
"""Offsets below it are on the clockwise side of the centre, the others on the counterclockwise side."""


def split(ordered: list[int], half: int) -> int:
    """Number of the offsets that belong to the clockwise side.

    Each side has at least half of `half` offsets, wherever they are: when a peer has most of a half circle to itself,
    as happens while many join, its neighbours are in the other half, and it must know more than one of them.
    """
    fewest = min(max(1, half // 2), len(ordered) // 2)
    return min(max(bisect_left(ordered, OPPOSITE), fewest), len(ordered) - fewest)


def kept(ordered: list[int], half: int) -> tuple[int, int]:
    """Numbers of offsets, from the start and from the end, that make a leaf set: the nearest `half` of each side.

    Positions that one side cannot fill go to the other, so in a ring of up to twice `half` others all are members.
    """
    clockwise = split(ordered, half)
    counterclockwise = len(ordered) - clockwise
    if len(ordered) <= 2 * half:
        return clockwise, counterclockwise
    first = min(clockwise, max(half, 2 * half - counterclockwise))
    return first, 2 * half - first


class LeafSet:
    """Members in clockwise order, by their distance from the centre. The order of additions does not matter."""

    __slots__ = ("_by_offset", "_gap", "_offsets", "_right", "_ring", "center", "half", "ids")

    def __init__(self, center: Id, half: int = HALF) -> None:
        self.center = center
        self.half = half
        self._by_offset: SortedDict[int, Peer] = SortedDict()
        self._offsets: list[int] = []
        self._ring: tuple[Peer, ...] = ()
        self._right = 0
        """Number of members on the clockwise side; they come first in all lists."""
        self._gap: tuple[int, int] | None = None
        self.ids: set[Id] = set()
        """The ids of the members; for reading."""

    def __len__(self) -> int:
        return len(self._ring)

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._ring)

    def __contains__(self, peer_id: int) -> bool:
        return peer_id in self.ids

    def get(self, peer_id: int) -> Peer | None:
        return self._by_offset.get((peer_id - self.center) & MASK)

    @property
    def peers(self) -> tuple[Peer, ...]:
        """All members, clockwise from the centre, as a snapshot."""
        return self._ring

    @property
    def full(self) -> bool:
        return len(self._ring) >= 2 * self.half

    @property
    def successor(self) -> Peer | None:
        return self._ring[0] if self._ring else None

    @property
    def predecessor(self) -> Peer | None:
        return self._ring[-1] if self._ring else None

    @property
    def clockwise(self) -> tuple[Peer, ...]:
        """The next members clockwise, the nearest first; past the opposite peer_id too when the ring is small."""
        return self._ring[: self.half]

    @property
    def counterclockwise(self) -> tuple[Peer, ...]:
        """The next members counterclockwise, the nearest first."""
        return self._ring[: -self.half - 1 : -1]

    def admits(self, peer_id: int) -> bool:
        """Whether a peer with this id belongs here and is not here yet."""
        offset = (peer_id - self.center) & MASK
        if offset == 0 or offset in self._by_offset:
            return False
        offsets, right, half = self._offsets, self._right, self.half
        if len(offsets) < 2 * half:
            return True
        if right == half:
            return offset < offsets[right - 1] or offset > offsets[right]
        ordered = sorted((*offsets, offset))
        first, last = kept(ordered, half)
        return not ordered[first - 1] < offset < ordered[-last]

    def rivals(self, candidates: list[Peer], others: Iterable[Id]) -> list[Peer]:
        """The candidates that would belong here if all candidates and all others were added."""
        center = self.center
        offsets = {(other - center) & MASK for other in others}
        offsets.update(self._offsets)
        offsets.update((peer.id - center) & MASK for peer in candidates)
        if len(offsets) <= 2 * self.half:
            return candidates
        ordered = sorted(offsets)
        first, last = kept(ordered, self.half)
        low, high = ordered[first - 1], ordered[-last]
        return [peer for peer in candidates if not low < ((peer.id - center) & MASK) < high]

    def add(self, peer: Peer) -> Peer | None:
        """Put in a peer that the set admits, or replace the address of a member.

        Returns the member that it pushed out. Raises ValueError for a peer that does not belong here.
        """
        offset = (peer.id - self.center) & MASK
        if offset not in self._by_offset and not self.admits(peer.id):
            raise ValueError(f"{peer} does not belong into the leaf set of {self.center.short()}")
        self._by_offset[offset] = peer
        self.ids.add(peer.id)
        pushed_out: Peer | None = None
        if len(self._by_offset) > 2 * self.half:
            first, _ = kept(list(self._by_offset), self.half)
            # One member too many, so it is the member right behind the share of the clockwise side.
            _, pushed_out = self._by_offset.popitem(first)
            self.ids.discard(pushed_out.id)
        self._refresh()
        return pushed_out

    def fill(self, peers: Iterable[Peer]) -> None:
        """Add all peers that belong here, at once: faster than `add` for each."""
        for peer in peers:
            if peer.id != self.center:
                self._by_offset[(peer.id - self.center) & MASK] = peer
        ordered = list(self._by_offset)
        first, last = kept(ordered, self.half)
        for offset in ordered[first : len(ordered) - last]:
            del self._by_offset[offset]
        self._refresh()
        self.ids = {peer.id for peer in self._ring}

    def remove(self, peer_id: int) -> Peer | None:
        peer = self._by_offset.pop((peer_id - self.center) & MASK, None)
        if peer is not None:
            self.ids.discard(peer.id)
            self._refresh()
        return peer

    def _refresh(self) -> None:
        self._offsets = list(self._by_offset)
        self._ring = tuple(self._by_offset.values())
        self._right = split(self._offsets, self.half)
        self._gap = None

    def ragged_ends(self) -> tuple[Peer, ...]:
        """The last members of the sides that are too short: further peers may be next to them.

        In a small ring both sides are always short, without further peers.
        """
        ring, right = self._ring, self._right
        ends = []
        if 0 < right < self.half:
            ends.append(ring[right - 1])
        if 0 < len(ring) - right < self.half:
            ends.append(ring[right])
        return tuple(ends)

    def _find_gap(self) -> tuple[int, int]:
        """The gap of the ring whose keys may belong to others: behind both sides if they are full, else the widest."""
        if self.full:
            return self._offsets[self._right - 1], self._offsets[self._right]
        stops = [0, *self._offsets, SPACE]
        return max(itertools.pairwise(stops), key=lambda gap: gap[1] - gap[0])

    def covers(self, key: int) -> bool:
        """Whether the owner of this key must be a member or the centre.

        A set that is not full covers all keys outside its widest gap. In a small ring that gap has no peers; in a large
        ring it has the peers that were not found yet after many members were lost.
        """
        gap = self._gap
        if gap is None:
            # Kept until the members change: this is asked for every routed message, and for each of 4,096 partitions.
            gap = self._gap = self._find_gap()
        return not gap[0] < (key - self.center) & MASK < gap[1]

    def closest(self, key: int, without: Collection[Id] = ()) -> Peer | None:
        """The member nearest to the key, except `without`; None when the centre itself is nearer."""
        ring: tuple[Peer, ...] | list[Peer] = self._ring
        offsets = self._offsets
        if without:
            ring = [peer for peer in ring if peer.id not in without]
            offsets = [(peer.id - self.center) & MASK for peer in ring]
        offset = (key - self.center) & MASK
        above = bisect_right(offsets, offset)
        # The centre is at both ends of the list: before the first member and after the last.
        low = offsets[above - 1] if above else 0
        high = offsets[above] if above < len(offsets) else SPACE
        if high - offset < offset - low:
            return ring[above] if above < len(ring) else None
        return ring[above - 1] if above else None

    def nearest(self, key: int, count: int) -> list[Peer]:
        """The members nearest to a key, the nearest first; the centre is not among them."""
        return sorted(self._ring, key=lambda peer: nearness(key, peer.id))[:count]

    def before(self, peer_id: int) -> Peer | None:
        """The next member counterclockwise of an id; None when that is the centre."""
        offset = (peer_id - self.center) & MASK
        index = bisect_right(self._offsets, offset - 1)
        return self._ring[index - 1] if index else None

    def reach(self) -> tuple[int, int]:
        """Reach of the centre's own keys, counterclockwise and clockwise."""
        if not self._offsets:
            return SPACE >> 1, (SPACE >> 1) - 1
        return (SPACE - self._offsets[-1] - 1) >> 1, self._offsets[0] >> 1
