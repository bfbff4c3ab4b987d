"""What must never happen in a ring, looked at after every step that changed something.

- At most one deliverer per key: what neighbouring active peers take for theirs does not overlap.
- Leaf sets of active peers are symmetric: who has a member is a member there, or stands farther away than a full side.
  Once something has failed, two peers that lose the same member may learn of each other one after the other; then
  an asymmetry may last `grace_s`, no longer.
- One ring: each active peer knows the next live active one.
- Nothing is delivered by a peer that is not active, or while another active one is closer to the key.

They hold at every step as long as no live peer is taken for dead, which only loss, a partition or a pause can bring
about. Where those are injected the breaks are counted instead, and the state must be right again once it is quiet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

from sortedcontainers import SortedDict

from ringmq.overlay.core.ids import SPACE, Id, clockwise, nearness
from ringmq.overlay.core.leaf_set import LeafSet
from ringmq.overlay.core.ring import Ring

TOLD: Final = 20
"""Breaks kept as text; all are counted."""


class InvariantBrokenError(AssertionError):
    """The ring did what it must never do; the simulator adds the seed and the last events."""


class Checks:
    """Holds the truth about who is live and active, and compares the cores with it."""

    def __init__(self, strict: bool, grace_s: float) -> None:
        self.strict = strict
        self.failed = False
        """Whether anything has failed yet: before that, no asymmetry is excused."""
        self._grace_s = grace_s
        self._lopsided: dict[tuple[Id, Id], float] = {}
        self.breaks: Counter[str] = Counter()
        self.told: list[str] = []
        self.checked = 0
        self._active: SortedDict[Id, Ring] = SortedDict()
        self._live: dict[Id, Ring] = {}

    def _broken(self, kind: str, text: str) -> None:
        if self.strict:
            raise InvariantBrokenError(f"{kind}: {text}")
        self.breaks[kind] += 1
        if len(self.told) < TOLD:
            self.told.append(f"{kind}: {text}")

    @contextmanager
    def looking_away(self) -> Iterator[None]:
        """While a ring is being put together by hand, nothing holds."""
        strict, self.strict = self.strict, False
        yield
        self.strict = strict
        self.breaks.clear()
        self.told.clear()
        self._lopsided.clear()

    @property
    def active(self) -> int:
        return len(self._active)

    def pick(self, random: Random) -> Id:
        """Any active peer; there must be one."""
        return self._active.peekitem(random.randrange(len(self._active)))[0]

    def started(self, ring: Ring) -> None:
        self._live[ring.me.id] = ring

    def stopped(self, point: Id) -> None:
        """Crashed, left, or paused: it can do nothing, whatever it believes of itself."""
        self.failed = True
        self._live.pop(point, None)
        self._active.pop(point, None)

    def step(self, ring: Ring, now: float) -> None:
        """The ring's leaf set or activity has changed."""
        self.checked += 1
        self.end_of_grace(now)
        point = ring.me.id
        if not ring.active:
            self._active.pop(point, None)
            return
        if point not in self._active:
            self._active[point] = ring
        successor, predecessor = self._neighbours(point)
        if successor is None or predecessor is None:
            return
        self._disjoint(ring, successor)
        self._disjoint(predecessor, ring)
        self._symmetric(ring, now)
        self._one_ring(ring, successor)

    def _neighbours(self, point: Id) -> tuple[Ring | None, Ring | None]:
        rings = self._active
        if len(rings) < 2:
            return None, None
        place = rings.index(point)
        return rings.peekitem((place + 1) % len(rings))[1], rings.peekitem(place - 1)[1]

    def _disjoint(self, low: Ring, high: Ring) -> None:
        forward, backward = low.leaves.reach()[1], high.leaves.reach()[0]
        if forward + backward >= (clockwise(low.me.id, high.me.id) or SPACE):
            self._broken("two owners", f"{low.me} and {high.me} both take keys between them for theirs")

    def _symmetric(self, ring: Ring, now: float) -> None:
        point, active, lopsided = ring.me.id, self._active, self._lopsided
        if lopsided:
            self._forget_mended(ring)
        for member in ring.leaves.ids:
            other = active.get(member)
            if other is not None and point not in other.leaves.ids and other.leaves.admits(point):
                if not self.failed and self.strict:
                    self._lopsided_for_good(ring, other)
                lopsided.setdefault((point, other.me.id), now + self._grace_s)

    def _forget_mended(self, ring: Ring) -> None:
        """Only what stays lopsided without a break for all of its time counts."""
        point, members, lopsided = ring.me.id, ring.leaves.ids, self._lopsided
        for pair in [pair for pair in lopsided if point in pair]:
            one, other = pair
            if (one == point and other not in members) or (other == point and not ring.leaves.admits(one)):
                del lopsided[pair]

    def end_of_grace(self, now: float) -> None:
        """To be called as time passes: looks at each asymmetry, in the order of their time, when it is over."""
        while self._lopsided:
            pair, until = next(iter(self._lopsided.items()))
            if until > now:
                return
            del self._lopsided[pair]
            ring, other = self._active.get(pair[0]), self._active.get(pair[1])
            if ring is not None and other is not None and pair[1] in ring.leaves and other.leaves.admits(pair[0]):
                self._lopsided_for_good(ring, other)

    def _lopsided_for_good(self, ring: Ring, other: Ring) -> None:
        self._broken("not symmetric", f"{ring.me} has {other.me}, which has room for it and does not have it")

    def _one_ring(self, ring: Ring, successor: Ring) -> None:
        nearest = next((peer for peer in ring.leaves if peer.id in self._active), None)
        if nearest is None or nearest.id != successor.me.id:
            self._broken("not one ring", f"{ring.me} takes {nearest} for the next active peer, it is {successor.me}")

    def owner(self, key: Id) -> Id | None:
        """The active peer that is really closest to the key."""
        rings = self._active
        if not rings:
            return None
        place = rings.bisect_left(key)
        around = (rings.peekitem(place % len(rings))[0], rings.peekitem(place - 1)[0])
        return min(around, key=lambda point: nearness(key, point))

    def delivered(self, ring: Ring, key: Id) -> bool:
        """A message has been delivered; whether that was right."""
        if not ring.active:
            self._broken("delivered by an inactive peer", f"{ring.me}, key {key:032x}")
            return False
        self._active.setdefault(ring.me.id, ring)
        owner = self.owner(key)
        if owner != ring.me.id:
            self._broken("wrong delivery", f"{ring.me} delivered {key:032x}, whose owner is {owner:032x}")
            return False
        return True

    def faults(self, half: int) -> list[str]:
        """What still separates the live peers from one perfect ring; empty when they are one."""
        live: SortedDict[Id, Ring] = SortedDict(self._live)
        points = list(live)
        count = len(points)
        faults = []
        for place, (point, ring) in enumerate(live.items()):
            if not ring.active:
                faults.append(f"{ring.me} is not active")
            exact = LeafSet(point, half)
            reach = min(count - 1, 2 * half)
            around = {points[(place + step) % count] for step in range(-reach, reach + 1)} - {point}
            exact.fill(live[other].me for other in around)
            if ring.leaves.ids != exact.ids:
                missing, extra = len(exact.ids - ring.leaves.ids), len(ring.leaves.ids - exact.ids)
                faults.append(f"{ring.me}: {missing} missing and {extra} too many in its leaf set")
        return faults

    def whole(self) -> bool:
        """Whether each live peer is active and knows its true neighbours: one ring that visits all."""
        if len(self._active) != len(self._live):
            return False
        points = list(self._active)
        count = len(points)
        for place, ring in enumerate(self._active.values()):
            successor, predecessor = ring.leaves.successor, ring.leaves.predecessor
            if count == 1:
                return successor is None
            if successor is None or successor.id != points[(place + 1) % count]:
                return False
            if predecessor is None or predecessor.id != points[place - 1]:
                return False
        return True
