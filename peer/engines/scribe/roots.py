"""The places whose key this peer owns, or may own next: their roots, and the copies of them.

The root of a place is the owner of its key. It copies its children table and the retained message of its topic to the
peers next to it, so that the one that owns the key after it takes the children over; they need not find out and join
again. A root that is followed by a newcomer hands over in the same way, and stays in the tree if it is needed there.
"""

from __future__ import annotations

from collections.abc import Iterator

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Kind, Record
from ringmq.peer.engines.scribe.context import TreeContext
from ringmq.peer.engines.scribe.messages import Found, Gone, Here, Join, RootCopy, RootFetch, RootFetched, Where
from ringmq.peer.engines.scribe.trees import Trees
from ringmq.peer.messaging.partitions import key_of_place
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import stamp_of


class Seat:
    """What this peer keeps of a place as its root, or as one who may be."""

    __slots__ = (
        "copied", "key", "owners", "place", "retained", "retained_at", "root", "spare", "spare_until", "vacant_until",
    )  # fmt: skip

    def __init__(self, place: str) -> None:
        self.place = place
        self.key = key_of_place(place)
        self.owners: tuple[Peer, ...] = ()
        self.root = False
        self.retained: Record | None = None
        """Also one that is gone, for a while, so that an old copy does not bring it back."""
        self.retained_at = 0.0
        self.spare: tuple[Peer, ...] = ()
        """The children of the root, as it told."""
        self.spare_until = 0.0
        self.vacant_until = 0.0
        """Publishers were told that nobody is there, and may believe it so long."""
        self.copied: tuple[tuple[Peer, ...], float] = ((), 0.0)
        """Which children the others have been told, and when."""


class Roots:
    """One per core. Call `look` every `heartbeat_s`."""

    __slots__ = ("_by_key", "_seats", "_state", "_trees")

    def __init__(self, state: TreeContext, trees: Trees) -> None:
        self._state = state
        self._trees = trees
        self._seats: dict[str, Seat] = {}
        self._by_key: dict[Id, dict[str, Seat]] = {}
        trees.vacant_until = self._vacant_until

    def __len__(self) -> int:
        return len(self._seats)

    def __iter__(self) -> Iterator[Seat]:
        return iter(list(self._seats.values()))

    def get(self, place: str) -> Seat | None:
        return self._seats.get(place)

    def reigns(self, place: str) -> bool:
        seat = self._seats.get(place)
        return seat is not None and seat.root

    def _vacant_until(self, place: str) -> float:
        seat = self._seats.get(place)
        return 0.0 if seat is None else seat.vacant_until

    # Seats

    def _open(self, place: str) -> Seat:
        seat = self._seats.get(place)
        if seat is not None:
            return seat
        seat = self._seats[place] = Seat(place)
        at_key = self._by_key.setdefault(seat.key, {})
        if at_key:
            seat.owners = next(iter(at_key.values())).owners
        else:
            seat.owners = self._state.overlay.watch(seat.key, self._state.config.shadows + 1)
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
        return overlay.active and bool(seat.owners) and seat.owners[0].id == overlay.me.id

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        for seat in list(self._by_key.get(key, {}).values()):
            seat.owners = owners
            self._review(seat)

    def review_all(self) -> None:
        for seat in self:
            self._review(seat)

    def _review(self, seat: Seat) -> None:
        """Take the place over, or hand it over."""
        state = self._state
        if self._first(seat) and not seat.root:
            seat.root = True
            state.counters.reigns += 1
            spare = seat.spare if seat.spare_until > state.clock.now else ()
            if spare or self._trees.get(seat.place) is not None:
                self._trees.crown(seat.place, spare)
        elif seat.root and not self._first(seat):
            seat.root = False
            state.counters.handed_over += 1
            if seat.owners and seat.owners[0].id != state.me.id:
                state.tell(seat.owners[0], RootCopy(seat.place, self._children(seat), seat.retained))
            self._trees.uncrown(seat.place)
        elif seat.root:
            seat.copied = ((), 0.0)

    def _children(self, seat: Seat) -> tuple[Peer, ...]:
        tree = self._trees.get(seat.place)
        return () if tree is None else tree.peers()

    # What others ask

    def join(self, message: Join) -> None:
        """A JOIN that nobody on its way has taken."""
        seat = self._reigning(message.place)
        own = message.child.id == self._state.me.id
        if seat is None or (own and self._trees.get(message.place) is None):
            return
        self._trees.crown(message.place)
        if not own:
            self._trees.take(message.place, message.child)

    def where(self, sender: Peer, message: Where) -> None:
        state, found, strange = self._state, [], []
        for place in message.places:
            seat = self._reigning(place)
            if seat is None:
                strange.append(place)
                continue
            empty = self._trees.get(place) is None
            if empty:
                seat.vacant_until = state.clock.now + state.trees.void_s
            found.append(Found(place, empty))
        if found:
            state.tell(sender, Here(tuple(found), message.asked_at, state.hybrid_clock))
        if strange:
            state.tell(sender, Gone(tuple(strange)))

    def fetch(self, sender: Peer, message: RootFetch) -> None:
        seat = self._reigning(message.topic)
        if seat is not None:
            self._state.tell(sender, RootFetched(message.topic, seat.retained))

    # Retained messages

    def retain(self, place: str, origin: Peer, one: Publication) -> None:
        """A retained message for the topic of which this peer is the root."""
        seat = self._seats.get(place)
        if seat is None or not seat.root or place != one.topic:
            return
        number = stamp_of(one.stamp, origin.id)
        record = Record(Kind.RETAINED, one.topic, None, number, one.clears, body=b"" if one.clears else one.body)
        if self._keep(seat, record):
            self._tell_others(seat, RootCopy(place, None, record))

    def _keep(self, seat: Seat, record: Record | None) -> bool:
        """Whether it is later than what was there."""
        known = seat.retained
        if record is None or (known is not None and known.number >= record.number):
            return False
        self._state.hybrid_clock = max(self._state.hybrid_clock, record.number[0])
        seat.retained, seat.retained_at = record, self._state.clock.now
        return True

    # Copies

    def copy(self, sender: Peer, message: RootCopy) -> None:
        state, seat = self._state, self._open(message.place)
        news = self._keep(seat, message.retained)
        known, told = seat.retained, message.retained
        if known is not None and (told is None or known.number > told.number):
            state.tell(sender, RootCopy(seat.place, None, known))
        elif news and seat.root:
            self._tell_others(seat, RootCopy(seat.place, None, known))
        if message.children is None:
            return
        if not seat.root:
            seat.spare, seat.spare_until = message.children, state.clock.now + state.trees.replica_s
        elif any(peer.id != state.me.id for peer in message.children):
            self._trees.crown(seat.place, message.children)

    def _tell_others(self, seat: Seat, message: RootCopy) -> None:
        for peer in seat.owners:
            if peer.id != self._state.me.id:
                self._state.tell(peer, message)

    # Time

    def look(self) -> None:
        """Copy what has changed, and all now and then; forget what is of no use any more."""
        state = self._state
        for seat in self:
            record = seat.retained
            if record is not None and record.gone and seat.retained_at + state.config.tomb_s < state.clock.now:
                seat.retained = None
            if not seat.root:
                self._close_unless_needed(seat)
                continue
            children, (told, at) = self._children(seat), seat.copied
            if children != told or (self._holds(seat) and at + state.trees.replica_s / 3 < state.clock.now):
                seat.copied = (children, state.clock.now)
                self._tell_others(seat, RootCopy(seat.place, children, seat.retained))
            self._close_unless_needed(seat)

    def _holds(self, seat: Seat) -> bool:
        return seat.retained is not None or self._trees.get(seat.place) is not None

    def _close_unless_needed(self, seat: Seat) -> None:
        now, me = self._state.clock.now, self._state.me.id
        if seat.root:
            needed = self._holds(seat) or seat.vacant_until > now
        else:
            belongs = any(peer.id == me for peer in seat.owners)
            needed = (belongs and seat.retained is not None) or (bool(seat.spare) and seat.spare_until > now)
        if not needed:
            self._close(seat)
