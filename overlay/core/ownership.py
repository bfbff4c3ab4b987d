"""Ownership of keys: the peers closest to the keys that the layer above watches, and notice of changes.

The coordinator of a topic and its shadows are the S+1 peers closest to the topic's key. By these notices they learn
their role, and its end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from sortedcontainers import SortedDict

from ringmq.overlay.core.compact import is_roomy
from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id, nearness
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import OverlayError

MAX_OWNERS: Final = 16
"""One side of the leaf set: farther out it does not know the closest peers."""

KEYS_AT_ONCE: Final = 4000
PAUSE_S: Final = 0.02
"""Keys checked in one iteration, which takes a tenth of a second, and the pause before the next keys. A peer that
checked 200,000 at once would send nothing meanwhile, and others would declare it dead."""

Change = Callable[[Id, tuple[Peer, ...]], None]


class Watch:
    """A watched key, with the peers that were closest to it last."""

    __slots__ = ("count", "owners")

    def __init__(self, count: int, owners: tuple[Peer, ...]) -> None:
        self.count = count
        self.owners = owners


class Ownership:
    """Answers `owners` for any key near this peer, and notifies of changes for the watched keys."""

    __slots__ = ("_due", "_on_change", "_state", "_waiting", "_watched", "_widest")

    def __init__(self, state: RingContext, on_change: Change) -> None:
        self._state = state
        self._on_change = on_change
        self._watched: SortedDict[Id, Watch] = SortedDict()
        self._widest = 0
        self._due: dict[Id, None] = {}
        """Keys to check, since the leaf set has changed."""
        self._waiting = False

    def owners(self, key: Id, count: int) -> tuple[Peer, ...]:
        """The peers closest to the key, the owner first, as far as this peer knows.

        True for keys that it or one of its direct neighbours owns. Raises OverlayError for more than MAX_OWNERS.
        """
        if not 1 <= count <= MAX_OWNERS:
            raise OverlayError(f"the number of owners must be 1 to {MAX_OWNERS}, got {count}")
        state = self._state
        nearest = state.leaves.nearest(key, count)
        return tuple(sorted((*nearest, state.me), key=lambda peer: nearness(key, peer.id))[:count])

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        """Notify of changes among the `count` closest peers from now on. Returns these peers."""
        owners = self.owners(key, count)
        self._watched[key] = Watch(count, owners)
        # It never shrinks: a range that is too wide costs only more checks.
        self._widest = max(self._widest, count)
        return owners

    def unwatch(self, key: Id) -> None:
        self._watched.pop(key, None)
        if is_roomy(self._watched):
            self._watched = SortedDict(self._watched)

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        """The new owners of a watched key if their notice is still due, which this replaces. None: no change."""
        if key not in self._due:
            return None
        del self._due[key]
        watch = self._watched.get(key)
        return None if watch is None else self._new_owners(key, watch)

    def changed(self, entered: Peer | None, left: Peer | None) -> None:
        """These peers entered and left the leaf set: check the keys near them."""
        if not self._watched:
            return
        for peer in (entered, left):
            if peer is not None:
                self._due.update(dict.fromkeys(self._keys_near(peer)))
        if not self._waiting:
            self._check_due_keys()

    def _check_due_keys(self) -> None:
        """Check KEYS_AT_ONCE keys now, and the others soon."""
        for key in list(islice(self._due, KEYS_AT_ONCE)):
            # A callback may have asked for the news of this key meanwhile.
            if key in self._due:
                del self._due[key]
                self._check(key)
        if not self._due:
            # A new dict: an emptied one keeps the memory of its former entries.
            self._due = {}
        elif not self._waiting:
            self._waiting = True
            self._state.timers.at(self._state.now + PAUSE_S, self._continue)

    def _continue(self, now: float, _: object) -> None:
        self._waiting = False
        self._check_due_keys()

    def _check(self, key: Id) -> None:
        watch = self._watched.get(key)
        owners = None if watch is None else self._new_owners(key, watch)
        if owners is not None:
            self._on_change(key, owners)

    def _new_owners(self, key: Id, watch: Watch) -> tuple[Peer, ...] | None:
        """The closest peers now; None if they have not changed."""
        owners = self.owners(key, watch.count)
        if owners == watch.owners:
            return None
        watch.owners = owners
        return owners

    def _keys_near(self, peer: Peer) -> Iterator[Id]:
        """The watched keys that may have this peer among their owners: at most `_widest` peers away."""
        peer_ids = sorted({self._state.me.id, peer.id, *(member.id for member in self._state.leaves)})
        if len(peer_ids) <= 2 * self._widest:
            yield from self._watched
            return
        index = peer_ids.index(peer.id)
        low = peer_ids[index - self._widest]
        high = peer_ids[(index + self._widest) % len(peer_ids)]
        if low < high:
            yield from self._watched.irange(low, high)
        else:
            yield from self._watched.irange(low, None)
            yield from self._watched.irange(None, high)
