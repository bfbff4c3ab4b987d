"""The places whose key this peer owns, or may own next: their roots, and the copies of their state.

The root of a place is the owner of its key. It copies its children table and the retained message of its topic to the
next owners, so that its successor takes over the children, which need not notice and join again. A root that a newcomer
replaces hands over in the same way, and stays in the tree if it is needed there.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.context import TreeContext
from ringmq.peer.engines.scribe.messages import (
    Gone,
    Join,
    RootCopy,
    RootFetch,
    RootFetched,
    RootQuery,
    RootReply,
    RootState,
)
from ringmq.peer.engines.scribe.places import key_of_place
from ringmq.peer.engines.scribe.trees import Trees
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import stamp_of
from ringmq.peer.replication.record import RecordKind, SharedRecord


class Seat:
    """The state of one place at its root, or at a peer that may become the root."""

    __slots__ = (
        "copied", "key", "owners", "place", "retained", "retained_at", "root", "spare", "spare_until", "vacant_until",
    )  # fmt: skip

    def __init__(self, place: str) -> None:
        self.place = place
        self.key = key_of_place(place)
        self.owners: tuple[Peer, ...] = ()
        self.root = False
        # A removed message stays for a while as a tombstone, so that an old copy does not bring it back.
        self.retained: SharedRecord | None = None
        self.retained_at = 0.0
        self.spare: tuple[Peer, ...] = ()
        """The children of the root, as it reported them."""
        self.spare_until = 0.0
        self.vacant_until = 0.0
        """Publishers may believe until then that the tree is empty."""
        self.copied: tuple[tuple[Peer, ...], float] = ((), 0.0)
        """The children that were last copied to the other owners, and when."""

    def belongs_to(self, owners: tuple[Peer, ...]) -> None:
        self.owners = owners

    def take_over(self, now: float) -> tuple[Peer, ...]:
        """This peer is the root from now on: the children that the root before it reported, if that is not too old."""
        self.root = True
        return self.spare if self.spare_until > now else ()

    def hand_over(self) -> None:
        """Another peer is the root from now on."""
        self.root = False

    def report_vacant(self, until: float) -> None:
        """A publisher gets the answer that the tree is empty."""
        self.vacant_until = until

    def keep(self, record: SharedRecord | None, now: float) -> bool:
        """Take over a retained message if it is later than the known one: whether it is."""
        if record is None or (self.retained is not None and self.retained.number >= record.number):
            return False
        self.retained, self.retained_at = record, now
        return True

    def expire(self, before: float) -> None:
        """Forget a tombstone that is older than this."""
        if self.retained is not None and self.retained.gone and self.retained_at < before:
            self.retained = None

    def back_up(self, children: tuple[Peer, ...], until: float) -> None:
        """The root reported its children, which this peer takes over if it becomes the root until then."""
        self.spare, self.spare_until = children, until

    def copy(self, children: tuple[Peer, ...], now: float, old: bool) -> bool:
        """Whether the children must be copied to the other owners: they have changed, or the last copy is old."""
        if children == self.copied[0] and not old:
            return False
        self.copied = (children, now)
        return True

    def copy_soon(self) -> None:
        """Other peers are owners, which have no copy."""
        self.copied = ((), 0.0)


class Roots:
    """One per engine. Call `look` every `heartbeat_s`."""

    __slots__ = ("_by_key", "_seats", "_state", "_trees")

    def __init__(self, state: TreeContext, trees: Trees) -> None:
        self._state = state
        self._trees = trees
        self._seats: dict[str, Seat] = {}
        self._by_key: dict[Id, dict[str, Seat]] = {}

    def __len__(self) -> int:
        return len(self._seats)

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._seats.values()))

    def get(self, place: str) -> Seat | None:
        return self._seats.get(place)

    def reigns(self, place: str) -> bool:
        seat = self._seats.get(place)
        return seat is not None and seat.root

    def vacant_until(self, place: str) -> float:
        """How long publishers may believe that a tree is empty of which this peer is the root."""
        seat = self._seats.get(place)
        return 0.0 if seat is None else seat.vacant_until

    def _open(self, place: str) -> Seat:
        seat = self._seats.get(place)
        if seat is not None:
            return seat
        seat = self._seats[place] = Seat(place)
        # Two places of one prefix share a key. The ring watches a key once, and one `unwatch` ends that.
        at_key = self._by_key.setdefault(seat.key, {})
        if at_key:
            seat.belongs_to(next(iter(at_key.values())).owners)
        else:
            seat.belongs_to(self._state.overlay.watch(seat.key, self._state.config.shadows + 1))
        at_key[place] = seat
        self._review(seat)
        return seat

    def _close(self, seat: Seat) -> None:
        del self._seats[seat.place]
        at_key = self._by_key[seat.key]
        del at_key[seat.place]
        if not at_key:
            del self._by_key[seat.key]
            self._state.overlay.unwatch(seat.key)

    def _reigning(self, place: str) -> Seat | None:
        """The seat of a place if this peer is its root."""
        seat = self._open(place)
        if seat.root:
            return seat
        self._close_unless_needed(seat)
        return None

    def _first(self, seat: Seat) -> bool:
        overlay = self._state.overlay
        # After a pause another peer may have replaced this peer, which is no root until its leaf set has answered.
        return overlay.active and bool(seat.owners) and seat.owners[0].id == overlay.me.id

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        for seat in list(self._by_key.get(key, {}).values()):
            seat.belongs_to(owners)
            self._review(seat)

    def review_all(self) -> None:
        for seat in self:
            self._review(seat)

    def _review(self, seat: Seat) -> None:
        """Take the place over, or hand it over."""
        state = self._state
        if self._first(seat) and not seat.root:
            state.counters.reigns += 1
            spare = seat.take_over(state.clock.now)
            # `where` answers that a place without a tree is empty: a tree without members would draw messages.
            if spare or self._trees.get(seat.place) is not None:
                self._trees.crown(seat.place, spare)
        elif seat.root and not self._first(seat):
            seat.hand_over()
            state.counters.handed_over += 1
            if seat.owners and seat.owners[0].id != state.me.id:
                state.tell(seat.owners[0], RootCopy(seat.place, self._children(seat), seat.retained))
            self._trees.uncrown(seat.place)
        elif seat.root:
            seat.copy_soon()

    def _children(self, seat: Seat) -> tuple[Peer, ...]:
        tree = self._trees.get(seat.place)
        return () if tree is None else tree.peers()

    def join(self, message: Join) -> None:
        """A JOIN that no peer on its route has accepted."""
        seat = self._reigning(message.place)
        own = message.child.id == self._state.me.id
        # If this peer has left the tree since its own JOIN, `crown` would open a tree without members.
        if seat is None or (own and self._trees.get(message.place) is None):
            return
        self._trees.crown(message.place)
        if not own:
            self._trees.take(message.place, message.child)

    def where(self, sender: Peer, message: RootQuery) -> None:
        state, found, strange = self._state, [], []
        for place in message.places:
            seat = self._reigning(place)
            if seat is None:
                strange.append(place)
                continue
            empty = self._trees.get(place) is None
            if empty:
                # The publisher sends nothing to this tree for `trust_s`, so no child may be notified before that ends.
                seat.report_vacant(state.clock.now + state.trees.void_s)
            found.append(RootState(place, empty))
        if found:
            state.tell(sender, RootReply(tuple(found), message.asked_at, state.hybrid_clock))
        if strange:
            state.tell(sender, Gone(tuple(strange)))

    def fetch(self, sender: Peer, message: RootFetch) -> None:
        seat = self._reigning(message.topic)
        # No other peer answers: the subscriber repeats its request, which the ring routes to the present owner.
        if seat is not None:
            self._state.tell(sender, RootFetched(message.topic, seat.retained))

    def retain(self, place: str, origin: Peer, publication: Publication) -> None:
        """A retained message for the topic of which this peer is the root."""
        seat = self._seats.get(place)
        # Roots of wildcard places get the message too and do not keep it: no filter with wildcards fetches it.
        if seat is None or not seat.root or place != publication.topic:
            return
        number = stamp_of(publication.stamp, origin.id)
        body = b"" if publication.clears else publication.body
        record = SharedRecord(RecordKind.RETAINED, publication.topic, None, number, publication.clears, body=body)
        if self._keep(seat, record):
            self._tell_others(seat, RootCopy(place, None, record))

    def _keep(self, seat: Seat, record: SharedRecord | None) -> bool:
        """Whether a retained message is later than the known one."""
        if record is None or self._state.is_far(record.number[0]):
            self._state.counters.false_records += record is not None
            return False
        if not seat.keep(record, self._state.clock.now):
            return False
        # The next retained message published here must get a higher number, even if the wall clock is behind.
        self._state.observe(record.number[0])
        return True

    def copy(self, sender: Peer, message: RootCopy) -> None:
        state, seat = self._state, self._open(message.place)
        news = self._keep(seat, message.retained)
        known, theirs = seat.retained, message.retained
        if known is not None and (theirs is None or known.number > theirs.number):
            # The sender has missed a message or its removal, and would give a wrong answer as the root.
            state.tell(sender, RootCopy(seat.place, None, known))
        elif news and seat.root:
            self._tell_others(seat, RootCopy(seat.place, None, known))
        if message.children is None:
            return
        if not seat.root:
            seat.back_up(message.children, state.clock.now + state.trees.replica_s)
        elif any(peer.id != state.me.id for peer in message.children):
            self._trees.crown(seat.place, message.children)

    def _tell_others(self, seat: Seat, message: RootCopy) -> None:
        for peer in seat.owners:
            if peer.id != self._state.me.id:
                self._state.tell(peer, message)

    def look(self) -> None:
        """Copy seats that have changed, and all periodically; forget seats that are not needed any more."""
        state = self._state
        for seat in self:
            seat.expire(state.clock.now - state.config.tomb_s)
            if not seat.root:
                self._close_unless_needed(seat)
                continue
            children = self._children(seat)
            # Nobody acknowledges a copy, so it is repeated well within its lifetime: one lost copy does no harm.
            old = self._holds(seat) and seat.copied[1] + state.trees.replica_s / 3 < state.clock.now
            if seat.copy(children, state.clock.now, old):
                self._tell_others(seat, RootCopy(seat.place, children, seat.retained))
            self._close_unless_needed(seat)

    def _holds(self, seat: Seat) -> bool:
        return seat.retained is not None or self._trees.get(seat.place) is not None

    def _close_unless_needed(self, seat: Seat) -> None:
        now, me = self._state.clock.now, self._state.me.id
        if seat.root:
            # If the seat were closed before, `vacant_until` would be lost, and a child would be notified too early.
            needed = self._holds(seat) or seat.vacant_until > now
        else:
            belongs = any(peer.id == me for peer in seat.owners)
            needed = (belongs and seat.retained is not None) or (bool(seat.spare) and seat.spare_until > now)
        if not needed:
            self._close(seat)
