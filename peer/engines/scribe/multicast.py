"""A publication in a tree: to the clients here, to all children, and the report that all have it back to the sender.

A message is passed on only if it is later than the last of its publisher and topic in this tree, so it makes no loops
and stays in order. A root passes on every message of a publisher: after a takeover it cannot know which peers its
predecessor had reached.
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
"""A place, and a publisher with its boot and the sequence of a message."""


class Pending:
    """A message that some children have not reported as reached."""

    __slots__ = ("_callbacks", "_matched", "_missing")

    def __init__(self, matched: bool, children: int, then: Then) -> None:
        self._matched = matched
        # One more than there are children, until all were sent to: a send may end with `reached` at once.
        self._missing = children + 1
        self._callbacks = [then]

    def call(self, then: Then) -> None:
        """Another sender of the same message waits for its report."""
        self._callbacks.append(then)

    def reached(self, matched: bool) -> bool:
        """A child has reported, or all were sent to: whether nothing is missing any more."""
        self._matched |= matched
        self._missing -= 1
        return not self._missing

    def report(self) -> None:
        for then in self._callbacks:
            then(self._matched)


class Spread:
    """One per engine. At the end of each iteration call `report`."""

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
        # The report names `seq`: an envelope that is sent again as overdue has another `number` in the send window.
        then = partial(self._owe, (sender, envelope.boot), envelope.seq) if publication.qos else _nobody
        self._state.tracing.comes(sender, publication)
        self._spread(sender, envelope.topic, way, publication, then)
        self._state.tracing.ends(way.origin, publication, SCRIBE)

    def _spread(self, sender: Peer, place: str, way: Way, publication: Publication, then: Then) -> None:
        if way.up:
            if not self.from_publisher(place, way.origin, publication, then):
                # A report would end the publisher's wait, but the publisher must send the message to the root.
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

    def _multicast(self, tree: Tree, origin: Peer, publication: Publication, sender: Id | None, then: Then) -> None:
        # One message spreads in several trees at once, and each tree has its own reports.
        name = (tree.place, origin.id, publication.boot, publication.seq)
        pending = self._pending.get(name)
        if pending is not None:
            # A report now would say that all peers below have the message, which some of them have not.
            pending.call(then)
            _repeats(publication)
            return
        # QoS 0 overtakes publications in send windows, so it has a sequence of its own: in a common sequence, the
        # overtaken messages with QoS 1 and 2 would be dropped.
        fresh = tree.orders.fresh(
            (origin.id, publication.topic, publication.qos > 0), (publication.boot, publication.seq)
        )
        # Without a sender it comes from its publisher, perhaps again after a takeover: it is passed on in any case.
        if not fresh and sender is not None:
            self._state.counters.duplicates += 1
            _repeats(publication)
            then(True)
            return
        matched = self._deliver(tree.place, origin, publication)
        children = [child for peer_id, child in tree.children.items() if peer_id != sender]
        if not children or (publication.qos and not self._room_for(publication)):
            then(matched)
            return
        state = self._state
        state.counters.forwarded += len(children)
        if publication.trace is not None:
            publication.trace.sends += len(children)
        parcel = self._carrier.pack(tree.place, origin, False, publication)
        for child in children:
            child.message(state.clock.now)
        if not publication.qos:
            self._carrier.send_once([child.peer for child in children], parcel)
            return
        pending = self._pending[name] = Pending(matched, len(children), then)
        for child in children:
            self._carrier.send(child.peer, parcel, partial(self._reached, name, pending))
        self._reached(name, pending, False)

    def _room_for(self, publication: Publication) -> bool:
        """Whether there is room for the message until all children have acknowledged it."""
        state = self._state
        if state.waiting_bytes + len(publication.body) <= state.config.max_waiting_bytes:
            return True
        state.counters.refused += 1
        return False

    def _reached(self, name: Name, pending: Pending, matched: bool) -> None:
        if pending.reached(matched):
            del self._pending[name]
            pending.report()

    def _deliver(self, place: str, origin: Peer, publication: Publication) -> bool:
        """Deliver to the clients here, if a filter of theirs that lives at this place matches: whether any does."""
        state = self._state
        # The clients of its publisher's peer got it before it was sent.
        if origin.id == state.me.id:
            if publication.trace is not None and publication.trace.sender != origin.id:
                _repeats(publication)
            return False
        if not self._subscriber.wants_by(place, publication.topic):
            return False
        # The order of one tree does not suffice: a message may come through several trees.
        if not self._orders.fresh(
            (origin.id, publication.topic, publication.qos > 0), (publication.boot, publication.seq)
        ):
            state.counters.duplicates += 1
            _repeats(publication)
            return True
        if publication.retain:
            if self._retained_cache.repeats(origin.id, publication):
                state.counters.duplicates += 1
                _repeats(publication)
                return True
            self._retained_cache.live(origin.id, publication)
        state.counters.received += 1
        clients = state.clients.deliver(publication)
        if publication.trace is not None:
            publication.trace.clients += clients
        return True

    def repeated(self, sender: Peer, envelope: Publication) -> None:
        """A dropped envelope. It has no trace: the publication in it was recorded when the first copy came."""

    def _owe(self, to: tuple[Peer, int], number: int, matched: bool) -> None:
        if not self._due:
            self._state.owing()
        self._due.setdefault(to, {})[number] = matched

    @property
    def owes(self) -> bool:
        return bool(self._due)

    def report(self) -> None:
        """Report to each sender the messages that this peer and all peers below it have."""
        due, self._due = self._due, {}
        for (peer, boot), numbers in due.items():
            items = [Arrived(number, matched) for number, matched in numbers.items()]
            for start in range(0, len(items), MOST_AT_ONCE):
                self._state.tell(peer, Reached(boot, tuple(items[start : start + MOST_AT_ONCE])))


def _repeats(publication: Publication) -> None:
    if publication.trace is not None:
        publication.trace.duplicate = True


def _nobody(_: bool) -> None:
    """Nobody waits for QoS 0."""
