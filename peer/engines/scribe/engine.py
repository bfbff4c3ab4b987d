"""The Scribe engine of one peer: assembles its parts and dispatches messages to them. A baseline for experiments.

Plain calls, which `peer/messaging/engine.py` explains.

**The trees.** Each place of filters (`peer.messaging.partitions`) has a tree. Its root is the owner of the place's key;
another peer is in it because filters of its clients live at the place, or because it accepted the JOIN of another peer
(Castro et al. 2002). A publication goes to the roots of its topic and of all its literal prefixes, as wildcard filters
live there, unless their trees are empty; and from each root to its whole tree. A peer in a wildcard's tree gets all
messages below the prefix, and drops those that its filters do not match (`unwanted`), since a tree knows no filters.

**What is promised**, while the tree does not change:

- After `done` of `subscribe`, every message published anywhere arrives.
- QoS 0 at most once, QoS 1 and 2 exactly once. Of one publisher, topic and kind of QoS, in order.
- `done` of a publication with QoS 1 or 2 is called when all peers that were in its trees hold it: each reports to its
  parent when it has delivered it to its clients and all its children have reported. The reason is SUCCESS if a filter
  matched anywhere.
- The next owner replaces a root that dies, and has its children table; the publisher sends the publications that the
  old root had not reported to the new one.

**What is not, though RingMQ's own protocol does.** These are Scribe's own limits (it promises best effort):

- When a peer in a tree dies, the peers below it get nothing until they have noticed (`silence_s`) and joined elsewhere:
  messages published meanwhile, and messages it had acknowledged and not passed on, are lost to them with any QoS.
  `done` is called all the same, when the dead child's lease has expired. The same happens when a parent is wrongly
  taken for dead, and when a peer changes its parent: messages from the old parent come too late, and are dropped to
  keep the order.
- A peer whose filters live at several places gets a message through several trees, and delivers it once. While it
  enters another tree, a later message may come through that tree first; then the earlier message is dropped.
- Publishers that were told that a tree is empty believe it for at most `trust_s`, also if its root is replaced.
- A forwarder without room (`max_waiting_bytes`) passes nothing on.
- Retained messages are kept by the root of their topic and its copies, without waiting for the copies; new subscribers
  to exactly that topic get them. **Wildcard filters get retained messages** only if they are published while the filter
  is in force. A client that subscribes while a retained message is on its way to its root may miss it. The clocks of
  the two peers decide whether a fetched message is also on its way to another filter of the same peer.
- **No shared filters**: `subscribe` raises SharedFilterError; ask `serves` first. A root could pick one child for each
  message (Scribe's anycast), but a root that takes over picks another child for a repeated message, and a group would
  get it twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.iteration import Clock
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timers import TimerQueue
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.scribe.codec import decode, is_tree
from ringmq.peer.engines.scribe.config import LAN, TreeConfig
from ringmq.peer.engines.scribe.context import TreeContext, TreeCounters
from ringmq.peer.engines.scribe.messages import (
    Beat,
    Gone,
    Join,
    Leave,
    Reached,
    RootCopy,
    RootFetch,
    RootFetched,
    RootQuery,
    RootReply,
    Stay,
    TreeMessage,
)
from ringmq.peer.engines.scribe.multicast import Spread
from ringmq.peer.engines.scribe.publisher import RENEWALS, ScribePublisher
from ringmq.peer.engines.scribe.roots import Roots
from ringmq.peer.engines.scribe.send_window import LOOKS, Carrier
from ringmq.peer.engines.scribe.subscriber import ScribeSubscriber
from ringmq.peer.engines.scribe.trees import STAYS, Trees
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.engine import EngineLoad, LocalClients, Overlay
from ringmq.peer.messaging.messages import Held
from ringmq.peer.messaging.publication import Publication, Trace
from ringmq.peer.messaging.receive_window import ReceiveWindows
from ringmq.peer.messaging.retained_cache import RetainedCache
from ringmq.peer.messaging.shared_filters import is_shared
from ringmq.peer.messaging.tracing import Tracing


class ScribeEngine:
    """One per peer."""

    def __init__(
        self,
        overlay: Overlay,
        clients: LocalClients,
        config: PubSubConfig,
        trees: TreeConfig = LAN,
        clock: Clock | None = None,
        owing: Callable[[], None] | None = None,
        clock_us: Callable[[], int] | None = None,
    ) -> None:
        """`owing` as `CoordinatedEngine` explains it."""
        self._state = state = TreeContext(overlay, clients, config, trees, clock, owing, clock_us)
        self._retained_cache = RetainedCache(state)
        self.carrier = Carrier(state)
        # Trees calls parts that are made later, with it: `_attached` and `_vacant_until` look them up at the call.
        self.trees = Trees(state, self.carrier, self._attached, self._vacant_until)
        self.roots = Roots(state, self.trees)
        self.subscriber = ScribeSubscriber(state, self.trees, self._retained_cache)
        self.spread = Spread(state, self.trees, self.roots, self.carrier, self.subscriber, self._retained_cache)
        self.publisher = ScribePublisher(state, self.carrier, self.spread)
        self._receive_windows = ReceiveWindows(state, self.spread.take, self.spread.repeated, self.serves)
        self._handlers = self._handlers_of_parts()
        self.acknowledges_later = owing is not None
        """Whether `acknowledge` is called by the shell, once the clients' messages are safe."""
        self._inside = False
        self._started = False

    @property
    def counters(self) -> TreeCounters:
        return self._state.counters

    @property
    def clock(self) -> Clock:
        return self._state.clock

    @property
    def timers(self) -> TimerQueue:
        return self._state.timers

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all messages here that wait for a root, for a window or for an acknowledgement."""
        return self._state.waiting_bytes

    @property
    def clients(self) -> LocalClients:
        return self._state.clients

    @clients.setter
    def clients(self, clients: LocalClients) -> None:
        """Before anything happens."""
        self._state.clients = clients

    @property
    def tracing(self) -> Tracing:
        return self._state.tracing

    @staticmethod
    def serves(topic_filter: str) -> bool:
        """Whether a filter can be subscribed to here."""
        return not is_shared(topic_filter)

    def publish(
        self,
        topic: str,
        body: bytes,
        qos: int,
        matched: bool = False,
        retain: bool = False,
        clears: bool = False,
        done: Done | None = None,
        trace: Trace | None = None,
    ) -> int:
        """`done` of a message with QoS 0 is called at once, or when the roots are known."""
        state = self._state
        state.counters.published += 1
        state.seq += 1
        stamp = state.stamp() if retain else 0
        publication = Publication(state.me.boot, state.seq, qos, topic, body, retain, stamp, clears=clears, trace=trace)
        state.tracing.begins(state.me, publication)
        # `Spread` delivers nothing to the peer of its publisher. Without this call, an older message of another
        # publisher that comes later would replace this message.
        if retain and self.subscriber.wants(topic):
            self._retained_cache.live(state.me.id, publication)
        self._do(lambda: self.publisher.publish(publication, matched, done))
        return publication.seq

    @staticmethod
    def publish_fast(topic: str, body: bytes) -> bool:
        """Scribe has no fast path: every message goes in an envelope."""
        return False

    def subscribe(self, topic_filter: str, done: Done, lasting: bool = False, restored: bool = False) -> None:
        """Trees know no lasting filters: they are in memory alone. Raises SharedFilterError."""
        self._do(lambda: self.subscriber.add(topic_filter, done))

    def unsubscribe(self, topic_filter: str) -> None:
        self._do(lambda: self.subscriber.remove(topic_filter))

    @staticmethod
    def is_refused(topic_filter: str) -> bool:
        """Scribe bounds neither the filters nor the retained messages of a place: it refuses none."""
        return False

    def deliver(self, origin: Peer, payload: bytes) -> None:
        """A routed payload names its origin itself: it counts only if it is of a kind that is routed."""
        with contextlib.suppress(ProtocolError):
            if isinstance(decode(payload), Join | RootQuery | RootFetch):
                self.receive(origin, payload)
                return
        self._state.counters.unreadable += 1

    def receive(self, sender: Peer, payload: bytes) -> None:
        try:
            message = decode(payload)
        except ProtocolError:
            self._state.counters.unreadable += 1
            return
        if isinstance(message, Publication):
            self._state.counters.came += 1
            self._do(lambda: self._receive_windows.take(sender, message))
        elif isinstance(message, Held):
            self._do(lambda: self.carrier.send_windows.held(sender, message))
        elif not isinstance(message, TreeMessage):
            self._state.counters.unreadable += 1
        elif self._inside:
            # The overlay delivers a message routed to a key of this peer within the call of `route`: the part that
            # routes it is in the middle of a change.
            self._state.said.append((sender, message))
        else:
            self._do(lambda: self._handlers[type(message)](sender, message))

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        """A JOIN that passes through here ends here, if this peer accepts its sender as a child."""
        if not is_tree(payload):
            return True
        try:
            message = decode(payload)
        except ProtocolError:
            return True
        # The overlay asks the origin of a routed message too: a peer must not become its own child.
        # A direct JOIN has failed at the peers on its route before: only the root may accept it.
        if not isinstance(message, Join) or message.direct or message.child.id == self._state.me.id:
            return True
        taken = False

        def take() -> None:
            nonlocal taken
            taken = self.trees.take(message.place, message.child)

        self._do(take)
        return not taken

    def unsent(self, payload: bytes) -> None:
        """Nothing to do: peers below a parent that is gone find another parent."""

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self._do(lambda: self.roots.owners_changed(key, owners))

    def leaves_changed(self) -> None:
        """Nothing to do: the ring watches the key of each root (`owners_changed`)."""

    def activity_changed(self, active: bool) -> None:
        """A peer that does not serve keys is no root."""
        # A peer that was paused is inactive for a while and then active again: its periods must not run twice.
        if active and not self._started:
            self._started = True
            self._do(self._start)
        self._do(self.roots.review_all)

    def link_lost(self, peer: Peer) -> None:
        """Repair the trees at once, which would otherwise wait for `silence_s`."""
        self._do(lambda: self._lost(peer))

    def _lost(self, peer: Peer) -> None:
        self.trees.lost(peer)
        self.publisher.lost(peer)

    @property
    def owes(self) -> bool:
        return self._receive_windows.owes or self.spread.owes

    def acknowledge(self) -> None:
        self._receive_windows.acknowledge()
        self.spread.report()

    def tick(self) -> None:
        self._do(lambda: self._state.timers.run(self._state.clock.now))

    def deadline(self) -> float:
        return self._state.timers.next_at

    def _start(self) -> None:
        trees, every = self._state.trees, self._state.every
        every(trees.heartbeat_s, self.trees.beat_all)
        every(trees.heartbeat_s, self.roots.look)
        every(trees.child_s / STAYS, self.trees.stay_all)
        every(trees.trust_s / RENEWALS, self.publisher.renew)
        every(trees.overdue_s / LOOKS, self.carrier.look)

    @property
    def kind(self) -> str:
        return "scribe"

    def status(self, now: float, counted: Mapping[str, int]) -> dict[str, Any]:
        return self.counters.as_dict()

    @staticmethod
    def topic_status(topic: str, towards: Callable[[Id], Peer | None]) -> dict[str, Any] | None:
        return None

    def load(self, own_topic: str) -> EngineLoad:
        topics = self.publisher.topics
        others = len(topics) - (own_topic in topics)
        unacknowledged = self.carrier.send_windows.waiting
        return EngineLoad(others, len(topics), len(self.subscriber), self.waiting_bytes, unacknowledged)

    def partitions(self) -> tuple[int, int]:
        roots = sum([seat.root for seat in self.roots])
        return roots, len(self.roots) - roots

    def _attached(self, place: str) -> None:
        self.subscriber.attached(place)

    def _vacant_until(self, place: str) -> float:
        return self.roots.vacant_until(place)

    def _do(self, call: Callable[[], None]) -> None:
        """Call a part, and then handle the messages of this peer to itself."""
        if self._inside:
            call()
            return
        self._inside = True
        try:
            call()
            said = self._state.said
            while said:
                sender, message = said.popleft()
                self._handlers[type(message)](sender, message)
            if not self.acknowledges_later:
                self.acknowledge()
        finally:
            # An exception must not leave it set: all later messages of the trees would only be queued.
            self._inside = False

    def _gone(self, sender: Peer, message: Gone) -> None:
        # A Gone does not say whether its sender refuses a child or a publisher, and this peer may be both at one place.
        self.trees.gone(sender, message.places)
        self.publisher.gone(sender, message.places)

    def _handlers_of_parts(self) -> dict[type, Callable[..., None]]:
        handlers: dict[type, Callable[..., None]] = {
            Join: lambda sender, message: self.roots.join(message),
            Beat: self.trees.beat,
            Stay: self.trees.stay,
            Leave: self.trees.leave,
            Gone: self._gone,
            RootQuery: self.roots.where,
            RootReply: self.publisher.here,
            RootCopy: self.roots.copy,
            Reached: self.carrier.reached,
            RootFetch: self.roots.fetch,
            RootFetched: lambda sender, message: self.subscriber.fetched(message),
        }
        return handlers
