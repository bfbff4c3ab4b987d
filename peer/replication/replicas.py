"""The replicas of this peer, by place, and the owners of their keys.

Owns the watching of keys: a key is watched while this peer has a replica with that key. Places from the disk are opened
in batches, or when a request needs them, like the places of any peer that was away. Places whose owners have changed,
perhaps all at once, are reviewed in batches too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from math import inf
from typing import Final

from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Kind, Record
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.replica import Replica

SPARE: Final = 2
"""Owners asked beside the shadows in a takeover: former shadows, which newcomers have just replaced."""
REVIEWED_AT_ONCE: Final = 800
REVIEW_S: Final = 0.1
"""Time between batches of reviews; a batch takes half of it. A peer that reviewed 100,000 places at once would be
silent meanwhile and be declared dead."""
LASTING: Final = (Kind.RETAINED, Kind.NOTE)
"""Records stored on the disk. Subscribers and publishers renew all others."""


class ReplicaTable:
    """All replicas of this peer, by place."""

    __slots__ = (
        "_by_key",
        "_due",
        "_left",
        "_look_at",
        "_places",
        "_refilled_at",
        "_rested_at",
        "_resting",
        "_review",
        "_state",
        "_waiting",
    )  # fmt: skip

    def __init__(
        self, state: MessagingContext, review: Callable[[Replica], None], look: Callable[[Replica], None]
    ) -> None:
        """`review` is called when the owners of a replica's key have changed, `look` when a look at it is due."""
        self._state = state
        self._review = review
        self._look_at = look
        self._places: dict[str, Replica] = {}
        self._by_key: dict[Id, tuple[Replica, ...]] = {}
        self._resting: dict[str, list[Record]] = {}
        self._rested_at = 0.0
        self._due: dict[Replica, None] = {}
        """Replicas that wait for a review."""
        self._left = 0
        self._refilled_at = -inf
        self._waiting = False

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Replica]:
        return iter(list(self._places.values()))

    def get(self, place: str) -> Replica | None:
        replica = self._places.get(place)
        if replica is None and place in self._resting:
            return self.open(place)
        if replica is not None:
            self._catch_up(replica)
        return replica

    def _catch_up(self, replica: Replica) -> None:
        """A requested place is reviewed at once: the ring routes by the present owners, and answers must agree."""
        self._ask_for_news(replica.key)
        if replica in self._due:
            del self._due[replica]
            self._review(replica)

    def _ask_for_news(self, key: Id) -> None:
        owners = self._state.overlay.news(key)
        if owners is not None:
            self._belongs_to(key, owners)
            self._review_later()

    def open(self, place: str) -> Replica:
        """The replica of a place, created if there is none."""
        replica = self._places.get(place)
        if replica is not None:
            return replica
        replica = self._places[place] = Replica(place, self._state.me.id)
        # The topic `a` and the place `a/#` have one key, and share one watch of it.
        at_key = self._by_key.get(replica.key, ())
        if at_key:
            self._ask_for_news(replica.key)
            replica.owners = at_key[0].owners
        else:
            replica.owners = self._state.overlay.watch(replica.key, self._state.config.shadows + 1 + SPARE)
        self._by_key[replica.key] = (*at_key, replica)
        for record in self._resting.pop(place, ()):
            replica.take(record, self._rested_at, self._state.config)
        self.look_soon(replica, self._state.config.look_s)
        return replica

    def restore(self, records: dict[str, list[Record]]) -> None:
        """Set the records of each place from the disk. Call it before anything else."""
        self._resting = records
        self._rested_at = self._state.clock.now
        stamps = [record.number[0] for kept in records.values() for record in kept if record.kind is Kind.RETAINED]
        self._state.observe(max(stamps, default=0))

    def rests(self, place: str) -> bool:
        return place in self._resting

    def rest(self, record: Record) -> None:
        """Add a retained message of this peer that the ring has not seen. Call it before anything else."""
        self._resting[record.name] = [record]
        self._state.keep(record.name, record)

    def wake(self) -> bool:
        """Open some places from the disk; returns whether there are more."""
        for place in list(islice(reversed(self._resting), self._state.config.restored_at_once)):
            self._review(self.open(place))
        return bool(self._resting)

    def close(self, replica: Replica) -> None:
        """Forget a replica."""
        if any(record.kind in LASTING and not record.gone for record in replica.book):
            self._state.leave(replica.place)
        del self._places[replica.place]
        self._due.pop(replica, None)
        at_key = tuple([other for other in self._by_key.pop(replica.key) if other is not replica])
        if at_key:
            self._by_key[replica.key] = at_key
        else:
            self._state.overlay.unwatch(replica.key)

    def sweep(self) -> None:
        """Release the memory of closed replicas. Call it periodically."""
        self._places = slimmed(self._places)
        self._by_key = slimmed(self._by_key)
        self._due = slimmed(self._due)
        self._resting = slimmed(self._resting)

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self._belongs_to(key, owners)
        self._review_some()

    def _belongs_to(self, key: Id, owners: tuple[Peer, ...]) -> None:
        for replica in self._by_key.get(key, ()):
            replica.owners = owners
            # New owners are reminded at short intervals again: the growing waits were for the former owners.
            replica.doubts = 0
            self._due[replica] = None

    def review_all(self) -> None:
        self._due.update(dict.fromkeys(self._places.values()))
        self._review_some()

    def _review_some(self) -> None:
        """Review the replicas that there is time for now, and the others later."""
        state = self._state
        if self._refilled_at + REVIEW_S <= state.clock.now:
            self._left, self._refilled_at = REVIEWED_AT_ONCE, state.clock.now
        while self._due and self._left:
            self._left -= 1
            replica, _ = self._due.popitem()
            self._review(replica)
        self._review_later()

    def _review_later(self) -> None:
        if self._due and not self._waiting:
            self._waiting = True
            self._state.after(max(0.0, self._refilled_at + REVIEW_S - self._state.clock.now), self._go_on)

    def _go_on(self) -> None:
        self._waiting = False
        self._review_some()

    def first(self, replica: Replica) -> bool:
        """Whether this peer must coordinate the place."""
        state = self._state
        return state.overlay.active and bool(replica.owners) and replica.owners[0].id == state.me.id

    def shadows(self, replica: Replica) -> tuple[Peer, ...]:
        """The peers that must have copies while this peer coordinates."""
        return replica.owners[1 : self._state.config.shadows + 1]

    def belongs(self, replica: Replica) -> bool:
        """Whether this peer must have a replica at all."""
        me = self._state.me.id
        return any(peer.id == me for peer in replica.owners[: self._state.config.shadows + 1])

    def look_soon(self, replica: Replica, delay_s: float) -> None:
        """Look at a replica after a delay, unless a look is planned before that. Infinite: plan no look."""
        replica.look_at = min(replica.look_at, self._state.clock.now + delay_s)
        self._plan(replica)

    def _plan(self, replica: Replica) -> None:
        """Set a timer, unless an earlier timer is set, whose look plans the next."""
        if replica.look_at < inf and not any(at <= replica.look_at for at in replica.looks):
            replica.looks += (replica.look_at,)
            self._state.timers.at(replica.look_at, self._look, replica)

    def _look(self, now: float, subject: object) -> None:
        assert isinstance(subject, Replica)
        replica = subject
        replica.looks = tuple([at for at in replica.looks if at > now])
        if self._places.get(replica.place) is not replica:
            return
        if replica.look_at > now:
            self._plan(replica)
        else:
            replica.look_at = inf
            self._catch_up(replica)
            self._look_at(replica)
