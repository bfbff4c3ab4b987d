"""A publication in a tree: to the clients here, to all children, and back up the word that all have it.

A message goes on only if it is later than the last of its publisher and topic in this tree: so it does not go in
circles, and stays in order. What a publisher sends to the root goes on in any case: a root that has just taken over
cannot know whom the one before had reached.
"""

from __future__ import annotations

from functools import partial

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.scribe.codec import Way, unwrap
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.engines.scribe.context import MOST_AT_ONCE, Orders, TreeContext
from ringmq.peer.engines.scribe.messages import Arrived, Gone, Leave, Reached
from ringmq.peer.engines.scribe.roots import Roots
from ringmq.peer.engines.scribe.send_window import Carrier, Then
from ringmq.peer.engines.scribe.subscriber import ScribeSubscriber
from ringmq.peer.engines.scribe.tree import Tree
from ringmq.peer.engines.scribe.trees import Trees
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import RetainedCache

Name = tuple[str, Id, int, int]
"""A place, and a publisher with the life and number of a message."""


class Pending:
    """A message that some children have not reported as reached."""

    __slots__ = ("matched", "missing", "tell")

    def __init__(self, matched: bool) -> None:
        self.matched = matched
        self.missing = 1
        """One more while it is being given out."""
        self.tell: list[Then] = []


class Spread:
    """One per core. After each turn call `report`."""

    __slots__ = (
        "_carrier",
        "_due",
        "_orders",
        "_pending",
        "_retained_cache",
        "_roots",
        "_state",
        "_subscriber",
        "_trees",
    )  # fmt: skip

    def __init__(
        self,
        state: TreeContext,
        trees: Trees,
        roots: Roots,
        carrier: Carrier,
        subscriber: ScribeSubscriber,
        retained_cache: RetainedCache,
    ) -> None:
        self._state = state
        self._trees = trees
        self._roots = roots
        self._carrier = carrier
        self._subscriber = subscriber
        self._retained_cache = retained_cache
        self._pending: dict[Name, Pending] = {}
        self._orders = Orders(state.config.max_orders)
        self._due: dict[tuple[Peer, int], dict[int, bool]] = {}

    def __len__(self) -> int:
        """Messages that some children have not reported as reached."""
        return len(self._pending)

    def take(self, sender: Peer, envelope: Publication) -> None:
        """An envelope from another peer, each once and in order."""
        try:
            way, publication = unwrap(envelope.body)
        except ProtocolError:
            self._state.counters.unreadable += 1
            return
        then = partial(self._owe, (sender, envelope.boot), envelope.seq) if publication.qos else _nobody
        self._state.tracing.comes(sender, publication)
        self._spread(sender, envelope.topic, way, publication, then)
        self._state.tracing.ends(way.origin, publication, SCRIBE)

    def _spread(self, sender: Peer, place: str, way: Way, publication: Publication, then: Then) -> None:
        if way.up:
            if not self.from_publisher(place, way.origin, publication, then):
                self._state.tell(sender, Gone((place,)))
            return
        tree = self._trees.get(place)
        if tree is None:
            self._state.tell(sender, Leave((place,)))
            then(False)
            return
        self._trees.heard(tree, sender)
        self._multicast(tree, way.origin, publication, sender.id, then)

    def from_publisher(self, place: str, origin: Peer, publication: Publication, then: Then) -> bool:
        """Multicast a message; False if this peer is not the root."""
        if not self._roots.reigns(place):
            return False
        if publication.retain:
            self._roots.retain(place, origin, publication)
        tree = self._trees.get(place)
        if tree is None:
            then(False)
        else:
            self._multicast(tree, origin, publication, None, then)
        return True

    def _multicast(self, tree: Tree, origin: Peer, one: Publication, sender: Id | None, then: Then) -> None:
        name = (tree.place, origin.id, one.boot, one.seq)
        pending = self._pending.get(name)
        if pending is not None:
            pending.tell.append(then)
            _repeats(one)
            return
        fresh = tree.orders.fresh((origin.id, one.topic, one.qos > 0), (one.boot, one.seq))
        if not fresh and sender is not None:
            self._state.counters.duplicates += 1
            _repeats(one)
            then(True)
            return
        matched = self._deliver(tree.place, origin, one)
        children = [child for point, child in tree.children.items() if point != sender]
        if not children or (one.qos and not self._room_for(one)):
            then(matched)
            return
        state = self._state
        state.counters.forwarded += len(children)
        if one.trace is not None:
            one.trace.sends += len(children)
        parcel = self._carrier.pack(tree.place, origin, False, one)
        for child in children:
            child.told_at = state.clock.now
        if not one.qos:
            self._carrier.send_once([child.peer for child in children], parcel)
            return
        pending = self._pending[name] = Pending(matched)
        pending.tell.append(then)
        pending.missing += len(children)
        for child in children:
            self._carrier.send(child.peer, parcel, partial(self._reached, name, pending))
        self._reached(name, pending, False)

    def _room_for(self, one: Publication) -> bool:
        """A peer that has no room for what its children have not acknowledged passes on nothing more."""
        state = self._state
        if state.waiting_bytes + len(one.body) <= state.config.max_waiting_bytes:
            return True
        state.counters.refused += 1
        return False

    def _reached(self, name: Name, pending: Pending, matched: bool) -> None:
        pending.matched |= matched
        pending.missing -= 1
        if not pending.missing:
            del self._pending[name]
            for then in pending.tell:
                then(pending.matched)

    def _deliver(self, place: str, origin: Peer, one: Publication) -> bool:
        """To the clients here, if a filter of theirs that lives at this place matches; whether any does."""
        state = self._state
        if origin.id == state.me.id:
            if one.trace is not None and one.trace.sender != origin.id:
                _repeats(one)
            return False
        if not self._subscriber.wants_by(place, one.topic):
            return False
        if not self._orders.fresh((origin.id, one.topic, one.qos > 0), (one.boot, one.seq)):
            state.counters.duplicates += 1
            _repeats(one)
            return True
        if one.retain:
            if self._retained_cache.repeats(origin.id, one):
                state.counters.duplicates += 1
                _repeats(one)
                return True
            self._retained_cache.live(origin.id, one)
        state.counters.received += 1
        clients = state.clients.deliver(one)
        if one.trace is not None:
            one.trace.clients += clients
        return True

    # Reports

    def _owe(self, to: tuple[Peer, int], number: int, matched: bool) -> None:
        if not self._due:
            self._state.owing()
        self._due.setdefault(to, {})[number] = matched

    @property
    def owes(self) -> bool:
        return bool(self._due)

    def report(self) -> None:
        """Tell those who sent something what all below here have."""
        due, self._due = self._due, {}
        for (peer, boot), numbers in due.items():
            items = [Arrived(number, matched) for number, matched in numbers.items()]
            for start in range(0, len(items), MOST_AT_ONCE):
                self._state.tell(peer, Reached(boot, tuple(items[start : start + MOST_AT_ONCE])))


def _repeats(one: Publication) -> None:
    if one.trace is not None:
        one.trace.duplicate = True


def _nobody(_: bool) -> None:
    """Nobody waits for QoS 0."""
