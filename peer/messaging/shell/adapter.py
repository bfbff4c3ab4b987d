"""The shell of a dissemination engine: it is the `Cluster` of a front and the `Application` of a node.

Owns the engine's clock and its one timer. Calls are plain: a message of a client goes to the links within the call that
read it from its socket, and a message from a link goes to the clients in the same iteration of the loop. Knows engines
only by `Engine`; the adapters in `peer/engines/` create them and own their disks.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

import structlog

from ringmq.logger.recorder import is_of_the_log
from ringmq.mqtt_front.amqtt.server import AmqttServer
from ringmq.mqtt_front.cluster import Done, Enrolment, Settled, Standing
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.matching.topics import is_of_the_server
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.sessions.moving_session import NO_ORIGIN, Origin
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.node import Node
from ringmq.overlay.timer import SOONEST_S, Timer
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.engine import Engine, LocalClients
from ringmq.peer.messaging.fast_path import FAST_HEAD
from ringmq.peer.messaging.publication import Trace
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.messaging.shell.local_clients import AdapterClients, NoClients, clients_of
from ringmq.peer.messaging.shell.refusals import RefusalLog
from ringmq.peer.messaging.tracing import Witness

log = structlog.get_logger("pubsub")

E = TypeVar("E", bound=Engine)


class EngineAdapter(ABC, Generic[E]):
    """Create it inside a running event loop, pass it to a node and a front, and `attach` both. Call `begin` when the
    node has started, and `stop` at the end.
    """

    serves_groups = True
    keeps_retained = True
    _has_disk = False
    """Whether `_commit` has something to do."""
    me: Peer
    """This peer; set as soon as the node has its address."""
    _node: Node

    def __init__(self, iteration: Iteration, on_activity: Callable[[bool], None] | None) -> None:
        self._iteration = iteration
        self._on_activity = on_activity
        self._clients: AdapterClients = NoClients()
        self._early: list[Callable[[], None]] | None = []
        """Calls of the clients from before the node has started. None: it has started."""
        self.fault: str | None = None
        """The reason why this peer cannot acknowledge anything any more: its disk fails."""
        self._timer = Timer(self._tick)
        self._enlisted = False
        """Whether this iteration ends with a commit and acknowledgements."""
        self._stopped = False
        self.on_leaves: Callable[[], None] = _nothing
        """Called when the known peers have changed."""
        self._refusals = RefusalLog()
        self.unsendable = 0
        """Payloads too large for a frame."""
        self._chooses: Callable[[], bool] = _never
        """Whether the message that is being published must be recorded."""
        self.core = self._new_engine(self._clients)
        iteration.loop_timers.append((self.core.timers, self._timer))

    @abstractmethod
    def _new_engine(self, clients: LocalClients) -> E: ...

    def attach(self, node: Node, front: MqttServer | AmqttServer | None = None) -> None:
        """Call this before the node starts, and before the front restores sessions or listens."""
        self._node = node
        self._clients = self.core.clients = clients_of(front, self._iteration)

    def record(self, chooses: Callable[[], bool], witness: Witness) -> None:
        """Record the messages that `chooses` selects here, and the messages selected by other peers. Call this before
        `attach`."""
        self._chooses = chooses
        self.core.tracing.begin(witness, time.time_ns)

    def begin(self) -> None:
        """The node has started: make the calls that were deferred, such as subscriptions of restored sessions."""
        self._iteration.begin()
        # `_early` is None before the calls are made: otherwise they would be deferred again.
        early, self._early = self._early or [], None
        for call in early:
            call()
        self._leave()

    def stop(self) -> None:
        """The last call: neither timers nor acknowledgements follow."""
        self._stopped = True
        self._timer.stop()

    def published(self, message: Message, receivers_here: int, done: Done | None) -> None:
        # Topics below `$SYS` describe this peer alone, so they stay here.
        if is_of_the_server(message.topic):
            if done is not None:
                done(Reason.SUCCESS)
            return
        if self._early is not None:
            self._early.append(partial(self.published, message, receivers_here, done))
            return
        body = encode_body(message, self._iteration.now)
        if message.retain:
            self._clients.publishing(body, message)
        clears = message.retain and not message.payload
        matched = receivers_here > 0
        trace = None
        if not is_of_the_log(message.topic) and self._chooses():
            trace = Trace(time.time_ns(), clients=receivers_here)
        self.core.publish(message.topic, body, message.qos, matched, message.retain, clears, done, trace)

    def published_fast(self, topic: str, payload: bytes, receivers_here: int) -> None:
        if self._early is not None:
            self._early.append(partial(self.published_fast, topic, payload, receivers_here))
            return
        body = FAST_HEAD + payload
        # No test for log topics here: the front publishes to them by `published`, so that it can count them apart.
        if self._chooses():
            trace = Trace(time.time_ns(), clients=receivers_here)
            self.core.publish(topic, body, 0, receivers_here > 0, trace=trace)
        elif not self.core.publish_fast(topic, body):
            self.core.publish(topic, body, 0, receivers_here > 0)

    def serves(self, topic_filter: str) -> bool:
        return self.core.serves(topic_filter)

    def filter_added(self, topic_filter: str, done: Done, lasting: bool = False) -> None:
        # A restored session may still have a filter that this engine does not serve: it gets no messages for it.
        if is_of_the_server(inner_of(topic_filter)) or not self.core.serves(topic_filter):
            done(Reason.SUCCESS)
            return
        if self._early is not None:
            # No client is served yet: it is a filter of a restored session.
            self._early.append(partial(self.core.subscribe, topic_filter, done, lasting, restored=True))
            return
        self._iteration.begin()
        self.core.subscribe(topic_filter, done, lasting)

    def is_refused(self, topic_filter: str) -> bool:
        return self.core.is_refused(topic_filter)

    def filter_removed(self, topic_filter: str) -> None:
        if self._early is not None:
            self._early.append(partial(self.filter_removed, topic_filter))
            return
        self._iteration.begin()
        self.core.unsubscribe(topic_filter)

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        """An engine without a registry of client ids leaves each peer its own."""
        settled(Standing.CURRENT)

    def discharge(self, client_id: str) -> None:
        """See `enrol`."""

    def arrived(self, client_id: str) -> None:
        """See `enrol`."""

    def next_origin(self) -> Origin:
        """See `enrol`."""
        return NO_ORIGIN

    def take_over(self, messages: list[Message]) -> bool:
        """Retained messages from before this peer had a ring: False leaves them with the front."""
        return False

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        if self._early is None:
            self.core.deliver(origin, payload)
        self._leave()

    def started(self, me: Peer) -> None:
        self.me = me

    def read_done(self) -> None:
        self._clients.read_done()

    def link_lost(self, peer: Peer) -> None:
        self.core.link_lost(peer)
        self._leave()

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        on_its_way = self.core.forward(key, payload, next_hop)
        self._leave()
        return on_its_way

    def receive(self, sender: Peer, payload: bytes) -> None:
        # Does not end with `_leave`: more payloads may follow from the same read, and clients get all of them in one
        # write, after `read_done`.
        if self._early is None:
            self.core.receive(sender, payload)
        # Otherwise the engine does not know the filters of restored sessions yet: it would take their messages for
        # unwanted, and acknowledge them. What is not acknowledged comes again.

    def undeliverable(self, key: Id, payload: bytes) -> None:
        """Every request is repeated by its sender until it is answered."""

    def unsent(self, payload: bytes) -> None:
        self.core.unsent(payload)
        self._leave()

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self.core.owners_changed(key, owners)
        self._leave()

    def leaves_changed(self) -> None:
        self.core.leaves_changed()
        self._leave()
        self.on_leaves()

    def activity_changed(self, active: bool) -> None:
        self.core.activity_changed(active)
        self._leave()
        if self._on_activity is not None:
            self._on_activity(active)

    @property
    def active(self) -> bool:
        return self._node.active

    @property
    def leaves(self) -> Sequence[Peer]:
        return self._node.ring.leaves.peers

    @property
    def sees_all(self) -> bool:
        return not self._node.ring.leaves.full

    def send(self, peer: Peer, payload: bytes) -> bool:
        try:
            return self._node.send(peer, payload)
        except OverlayError:
            self.unsendable += 1
            return False

    def route(self, key: Id, payload: bytes) -> bool:
        return self._node.route(key, payload)

    def doubts(self, peer: Peer) -> bool:
        return self._node.ring.doubts(peer)

    def find_way(self, peer: Peer) -> None:
        self._node.find_way(peer)

    def owner(self, key: Id) -> Peer | None:
        return self._node.ring.owner(key)

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        return self._node.ring.watch(key, count)

    def unwatch(self, key: Id) -> None:
        self._node.ring.unwatch(key)

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        return self._node.ring.news(key)

    def _leave(self) -> None:
        """Let the front flush its connections."""
        self._clients.leave()

    def _owing(self) -> None:
        """The engine owes acknowledgements to other peers, or changed its disk."""
        if not self._enlisted and self.fault is None:
            self._enlisted = True
            if self._has_disk:
                self._iteration.commits.append(self._commit)
            self._iteration.acknowledgements.append(self._acknowledge)

    def _commit(self) -> None:
        """Commit the disk before acknowledgements are sent. If it fails, `fault` is set."""

    def _acknowledge(self) -> None:
        """Both journals have committed: that of the front, with the deliveries to its clients, and that of the engine.

        No publication is received in here, so nothing is acknowledged that was not committed.
        """
        safe = self._clients.safe
        if safe is None or self._stopped or self.fault is not None:
            self._enlisted = False
            return
        if safe:
            self.core.acknowledge()
        self._enlisted = False
        self._clients.leave()
        # A change since the commits of this iteration must be committed before it can be acknowledged.
        if not safe or self.core.owes:
            self._owing()

    def _tick(self) -> None:
        now = self._iteration.begin()
        self._refusals.look(self.core.counters, now)
        deadline = self.core.timers.next_at
        try:
            # A timer may come a little early. Its deadline then counts as the time: otherwise nothing would be due yet.
            if deadline <= now + SOONEST_S:
                self._iteration.advance(deadline)
                self.core.tick()
        except Exception:
            log.exception("unhandled error in a pub/sub timer")
            raise
        finally:
            self._leave()


def _never() -> bool:
    return False


def _nothing() -> None:
    pass


def clock_us() -> int:
    """The wall clock in microseconds, which orders retained messages of different publishers."""
    return time.time_ns() // 1000
