"""Invariants of a ring, checked after every step that changed a leaf set or the activity of a peer.

- At most one deliverer per key: the key ranges that neighbouring active peers claim do not overlap.
- Leaf sets of active peers are symmetric: a peer is in the leaf set of each of its members, unless it is farther away
  than a full side. After a failure, two peers that lost the same member may learn of each other one after the other, so
  an asymmetry may last for `grace_s`, no longer.
- One ring: each active peer knows the next active peer.
- A message is delivered by an active peer, and by the active peer that is closest to the key.

The invariants hold at every step unless a live peer is declared dead, which only loss, a partition or a pause can
cause. In worlds with these faults the breaks are counted instead, and the ring must be exact again once it is quiet.
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

MOST_TEXTS: Final = 20
"""Breaks whose texts are kept; all breaks are counted."""


class InvariantBrokenError(AssertionError):
    """An invariant is broken. The simulator adds the seed and the last events as a note."""


class Checks:
    """Knows which peers are live and active, and compares the cores with that."""

    def __init__(self, strict: bool, grace_s: float) -> None:
        self.strict = strict
        self.failed = False
        """Whether any peer has failed; before that, no asymmetry is excused."""
        self._grace_s = grace_s
        self._lopsided: dict[tuple[Id, Id], float] = {}
        """Asymmetries (a peer, and a member that does not have it) with the end of their grace, in ascending order."""
        self.breaks: Counter[str] = Counter()
        self.break_texts: list[str] = []
        self.checked = 0
        self._active: SortedDict[Id, Ring] = SortedDict()
        self._live: dict[Id, Ring] = {}

    def _broken(self, kind: str, text: str) -> None:
        if self.strict:
            raise InvariantBrokenError(f"{kind}: {text}")
        self.breaks[kind] += 1
        if len(self.break_texts) < MOST_TEXTS:
            self.break_texts.append(f"{kind}: {text}")

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Suspend the checks while a ring is assembled by hand: its intermediate states break them."""
        strict, self.strict = self.strict, False
        yield
        self.strict = strict
        self.breaks.clear()
        self.break_texts.clear()
        self._lopsided.clear()

    @property
    def active(self) -> int:
        return len(self._active)

    def pick(self, random: Random) -> Id:
        """A random active peer; there must be one."""
        return self._active.peekitem(random.randrange(len(self._active)))[0]

    def started(self, ring: Ring) -> None:
        self._live[ring.me.id] = ring

    def stopped(self, peer_id: Id) -> None:
        """Count out a peer that crashed, left, or was paused: it cannot act, even if its core is still active."""
        self.failed = True
        self._live.pop(peer_id, None)
        self._active.pop(peer_id, None)

    def step(self, ring: Ring, now: float) -> None:
        """Check a ring after a change of its leaf set or activity."""
        self.checked += 1
        self.end_of_grace(now)
        peer_id = ring.me.id
        if not ring.active:
            self._active.pop(peer_id, None)
            return
        if peer_id not in self._active:
            self._active[peer_id] = ring
        successor, predecessor = self._neighbours(peer_id)
        if successor is None or predecessor is None:
            return
        self._check_disjoint(ring, successor)
        self._check_disjoint(predecessor, ring)
        self._check_symmetry(ring, now)
        self._check_successor(ring, successor)

    def _neighbours(self, peer_id: Id) -> tuple[Ring | None, Ring | None]:
        rings = self._active
        if len(rings) < 2:
            return None, None
        position = rings.index(peer_id)
        return rings.peekitem((position + 1) % len(rings))[1], rings.peekitem(position - 1)[1]

    def _check_disjoint(self, low: Ring, high: Ring) -> None:
        forward, backward = low.leaves.reach()[1], high.leaves.reach()[0]
        if forward + backward >= (clockwise(low.me.id, high.me.id) or SPACE):
            self._broken("two owners", f"{low.me} and {high.me} both claim keys between them")

    def _check_symmetry(self, ring: Ring, now: float) -> None:
        peer_id, active, lopsided = ring.me.id, self._active, self._lopsided
        if lopsided:
            self._forget_mended(ring)
        for member in ring.leaves.ids:
            other = active.get(member)
            if other is not None and peer_id not in other.leaves.ids and other.leaves.admits(peer_id):
                if not self.failed and self.strict:
                    self._not_symmetric(ring, other)
                lopsided.setdefault((peer_id, other.me.id), now + self._grace_s)

    def _forget_mended(self, ring: Ring) -> None:
        """Forget asymmetries that have ended: only an asymmetry that lasts for the whole grace without a gap counts."""
        peer_id, members, lopsided = ring.me.id, ring.leaves.ids, self._lopsided
        for pair in [pair for pair in lopsided if peer_id in pair]:
            holder, member = pair
            if (holder == peer_id and member not in members) or (member == peer_id and not ring.leaves.admits(holder)):
                del lopsided[pair]

    def end_of_grace(self, now: float) -> None:
        """Check each asymmetry whose grace has ended. Call it as time passes."""
        while self._lopsided:
            pair, until = next(iter(self._lopsided.items()))
            if until > now:
                return
            del self._lopsided[pair]
            ring, other = self._active.get(pair[0]), self._active.get(pair[1])
            if ring is not None and other is not None and pair[1] in ring.leaves and other.leaves.admits(pair[0]):
                self._not_symmetric(ring, other)

    def _not_symmetric(self, ring: Ring, other: Ring) -> None:
        self._broken("not symmetric", f"{ring.me} has {other.me}, which would admit it and does not have it")

    def _check_successor(self, ring: Ring, successor: Ring) -> None:
        nearest = next((peer for peer in ring.leaves if peer.id in self._active), None)
        if nearest is None or nearest.id != successor.me.id:
            self._broken("not one ring", f"the next active peer of {ring.me} is {successor.me}, but it has {nearest}")

    def owner(self, key: Id) -> Id | None:
        """The active peer that is closest to the key."""
        rings = self._active
        if not rings:
            return None
        position = rings.bisect_left(key)
        around = (rings.peekitem(position % len(rings))[0], rings.peekitem(position - 1)[0])
        return min(around, key=lambda peer_id: nearness(key, peer_id))

    def delivered(self, ring: Ring, key: Id) -> bool:
        """Check a delivery. Returns whether the deliverer was active and the owner of the key."""
        if not ring.active:
            self._broken("delivered by an inactive peer", f"{ring.me}, key {key:032x}")
            return False
        # A peer may become active and deliver held messages in one step, before `step` is called for it.
        self._active.setdefault(ring.me.id, ring)
        owner = self.owner(key)
        if owner != ring.me.id:
            self._broken("wrong delivery", f"{ring.me} delivered {key:032x}, whose owner is {owner:032x}")
            return False
        return True

    def faults(self, half: int) -> list[str]:
        """Differences between the live peers and one ring with exact leaf sets."""
        live: SortedDict[Id, Ring] = SortedDict(self._live)
        ids = list(live)
        count = len(ids)
        faults = []
        for position, (peer_id, ring) in enumerate(live.items()):
            if not ring.active:
                faults.append(f"{ring.me} is not active")
            exact = LeafSet(peer_id, half)
            reach = min(count - 1, 2 * half)
            around = {ids[(position + step) % count] for step in range(-reach, reach + 1)} - {peer_id}
            exact.fill(live[other].me for other in around)
            if ring.leaves.ids != exact.ids:
                missing, extra = len(exact.ids - ring.leaves.ids), len(ring.leaves.ids - exact.ids)
                faults.append(f"{ring.me}: {missing} missing and {extra} too many in its leaf set")
        return faults

    def whole(self) -> bool:
        """Whether the live peers are one ring: each is active and knows its true neighbours."""
        if len(self._active) != len(self._live):
            return False
        ids = list(self._active)
        count = len(ids)
        for position, ring in enumerate(self._active.values()):
            successor, predecessor = ring.leaves.successor, ring.leaves.predecessor
            if count == 1:
                return successor is None
            if successor is None or successor.id != ids[(position + 1) % count]:
                return False
            if predecessor is None or predecessor.id != ids[position - 1]:
                return False
        return True
