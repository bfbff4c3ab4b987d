"""Whose a key is: the peers closest to the keys that the layer above watches, and word when they change.

The coordinator of a topic and its shadows are the S+1 peers closest to the topic's key; this is how they learn that
they are, or no longer are.
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
"""One side of the leaf set: farther out the leaf set cannot tell who is closest."""

LOOKED_AT_ONCE: Final = 4000
GO_ON_S: Final = 0.02
"""So many keys are looked at in one turn, which takes a tenth of a second, and the others in later turns. A peer that
goes through 200,000 at once would not be heard meanwhile, and taken for dead."""

Change = Callable[[Id, tuple[Peer, ...]], None]


class Watch:
    """A watched key and who was closest to it last."""

    __slots__ = ("count", "owners")

    def __init__(self, count: int, owners: tuple[Peer, ...]) -> None:
        self.count = count
        self.owners = owners


class Ownership:
    """Answers `owners` for any key near this peer, and tells of changes for the watched ones."""

    __slots__ = ("_due", "_on_change", "_state", "_waiting", "_watched", "_widest")

    def __init__(self, state: RingContext, on_change: Change) -> None:
        self._state = state
        self._on_change = on_change
        self._watched: SortedDict[Id, Watch] = SortedDict()
        self._widest = 0
        self._due: dict[Id, None] = {}
        """Keys to be looked at, since the leaf set has changed."""
        self._waiting = False

    def owners(self, key: Id, count: int) -> tuple[Peer, ...]:
        """The peers closest to the key, the owner first, as far as this peer knows.

        True for keys that it or one of its direct neighbours owns. Raises OverlayError for more than MAX_OWNERS.
        """
        if not 1 <= count <= MAX_OWNERS:
            raise OverlayError(f"owners of a key: {count} asked for, 1 to {MAX_OWNERS} can be told")
        state = self._state
        nearest = state.leaves.nearest(key, count)
        return tuple(sorted((*nearest, state.me), key=lambda peer: nearness(key, peer.id))[:count])

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        """From now on tell of changes among the `count` closest; returns who they are."""
        owners = self.owners(key, count)
        self._watched[key] = Watch(count, owners)
        self._widest = max(self._widest, count)
        return owners

    def unwatch(self, key: Id) -> None:
        self._watched.pop(key, None)
        if is_roomy(self._watched):
            self._watched = SortedDict(self._watched)

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        """Who is closest to a watched key, if that is to be told yet; it is told with this. None: no others."""
        if key not in self._due:
            return None
        del self._due[key]
        watch = self._watched.get(key)
        return None if watch is None else self._others(key, watch)

    def changed(self, entered: Peer | None, left: Peer | None) -> None:
        """The leaf set has changed by these: look at the keys that may care."""
        if not self._watched:
            return
        for peer in (entered, left):
            if peer is not None:
                self._due.update(dict.fromkeys(self._keys_near(peer)))
        if not self._waiting:
            self._look_at_some()

    def _look_at_some(self) -> None:
        """As many as there is time for now, and the others soon."""
        for key in list(islice(self._due, LOOKED_AT_ONCE)):
            if key in self._due:  # nobody has asked meanwhile
                del self._due[key]
                self._look_at(key)
        if not self._due:
            self._due = {}  # which takes less room than one that was emptied
        elif not self._waiting:
            self._waiting = True
            self._state.timers.at(self._state.now + GO_ON_S, self._go_on)

    def _go_on(self, now: float, _: object) -> None:
        self._waiting = False
        self._look_at_some()

    def _look_at(self, key: Id) -> None:
        watch = self._watched.get(key)
        owners = None if watch is None else self._others(key, watch)
        if owners is not None:
            self._on_change(key, owners)

    def _others(self, key: Id, watch: Watch) -> tuple[Peer, ...] | None:
        """Who is closest now; None if that is known."""
        owners = self.owners(key, watch.count)
        if owners == watch.owners:
            return None
        watch.owners = owners
        return owners

    def _keys_near(self, peer: Peer) -> Iterator[Id]:
        """The watched keys to which this peer can be among the closest: those up to as many peers away as are asked."""
        points = sorted({self._state.me.id, peer.id, *(member.id for member in self._state.leaves)})
        if len(points) <= 2 * self._widest:
            yield from self._watched
            return
        place = points.index(peer.id)
        low = points[place - self._widest]
        high = points[(place + self._widest) % len(points)]
        if low < high:
            yield from self._watched.irange(low, high)
        else:
            yield from self._watched.irange(low, None)
            yield from self._watched.irange(None, high)
