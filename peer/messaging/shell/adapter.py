"""The shell of the roles: joins a front, whose `Cluster` it is, to an overlay, whose `Application` it is.

Owns the roles' clock and their one timer. Plain calls: what a client publishes goes to the links within the call that
read it from its socket, and what comes from a link goes to the clients in the same turn of the loop.

`EngineAdapter` serves roles of any kind, `CoordinatedAdapter` those of this folder.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Final, Generic, Protocol, TypeVar

import structlog

from ringmq.logger.recorder import is_of_the_log
from ringmq.mqtt_front.amqtt.server import AmqttServer
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.iteration import Clock
from ringmq.mqtt_front.matching.topics import is_of_the_server
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timers import TimerQueue
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.node import Node
from ringmq.overlay.timer import SOONEST_S, Timer
from ringmq.peer.engines.coordinated.engine import CoordinatedEngine
from ringmq.peer.engines.coordinated.shell.retained_store import RetainedStore, StoreError
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.body import PLAIN_HEAD, encode_body
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.context import NO_DISK, LocalClients
from ringmq.peer.messaging.partitions import inner_of
from ringmq.peer.messaging.publication import Trace
from ringmq.peer.messaging.shell.local_clients import AdapterClients, NoClients, clients_of
from ringmq.peer.messaging.tracing import Tracing, Witness

CHANCE_BITS: Final = 63
"""As many as tell publishers apart in the number of a retained message."""

log = structlog.get_logger("pubsub")


class Core(Protocol):
    """The roles of one peer, of whatever kind, as `CoordinatedEngine` explains them."""

    clients: LocalClients

    @property
    def clock(self) -> Clock: ...
    @property
    def timers(self) -> TimerQueue: ...
    @property
    def tracing(self) -> Tracing: ...
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
    ) -> int: ...
    def publish_plain(self, topic: str, body: bytes) -> bool: ...
    def subscribe(self, topic_filter: str, done: Callable[[], None]) -> None: ...
    def unsubscribe(self, topic_filter: str) -> None: ...
    def receive(self, sender: Peer, payload: bytes) -> None: ...
    def unsent(self, payload: bytes) -> None: ...
    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None: ...
    def activity_changed(self, active: bool) -> None: ...
    @property
    def owes(self) -> bool: ...
    def acknowledge(self) -> None: ...
    def tick(self) -> None: ...


C = TypeVar("C", bound=Core)


class EngineAdapter(ABC, Generic[C]):
    """Create inside a running event loop and hand it to a Node and a Front; `attach` both; `begin` once the node has
    started; at the end `stop`.
    """

    serves_groups = True
    keeps_retained = True
    me: Peer
    """This peer; known once the node has its address."""
    _node: Node

    def __init__(self, iteration: Iteration, on_activity: Callable[[bool], None]) -> None:
        self._iteration = iteration
        self._on_activity = on_activity
        self._clients: AdapterClients = NoClients()
        self._early: list[Callable[[], None]] | None = []
        """What the clients want before there is a ring. None: there is one."""
        self.fault: str | None = None
        """Why nothing can be promised to other peers any more: the disk takes nothing."""
        self.on_fault: Callable[[], None] | None = None
        self._timer = Timer(self._tick)
        self._enlisted = False
        """Whether this iteration ends with a commit and acknowledgements."""
        self._stopped = False
        self.unsendable = 0
        """Payloads that no frame can hold."""
        self._chooses: Callable[[], bool] = _never
        """Whether the message that is being published is to be recorded."""
        self.core = self._new_core(self._clients)
        iteration.loop_timers.append((self.core.timers, self._timer))

    @abstractmethod
    def _new_core(self, clients: LocalClients) -> C: ...

    def attach(self, node: Node, front: MqttServer | AmqttServer | None = None) -> None:
        """Before the node starts, and before the front restores anything or listens."""
        self._node = node
        self._clients = self.core.clients = clients_of(front, self._iteration)

    def record(self, chooses: Callable[[], bool], witness: Witness) -> None:
        """Have messages recorded that are chosen here, or were elsewhere. Before anything happens."""
        self._chooses = chooses
        self.core.tracing.witness, self.core.tracing.wall_ns = witness, time.time_ns

    def begin(self) -> None:
        """The node has started: do what the clients wanted meanwhile, such as those that were restored."""
        self._iteration.begin()
        early, self._early = self._early or [], None
        for call in early:
            call()
        self._leave()

    def stop(self) -> None:
        """The last call: nothing is done any more."""
        self._stopped = True
        self._timer.stop()

    # The ports of the front

    def published(self, message: Message, receivers_here: int, done: Done | None) -> None:
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
        body = PLAIN_HEAD + payload
        if self._chooses():  # what is of the log comes by `published`
            trace = Trace(time.time_ns(), clients=receivers_here)
            self.core.publish(topic, body, 0, receivers_here > 0, trace=trace)
        elif not self.core.publish_plain(topic, body):
            self.core.publish(topic, body, 0, receivers_here > 0)

    def serves(self, topic_filter: str) -> bool:
        return True

    def filter_added(self, topic_filter: str, done: Callable[[], None]) -> None:
        if is_of_the_server(inner_of(topic_filter)):
            done()
            return
        if self._early is not None:
            self._early.append(partial(self.filter_added, topic_filter, done))
            return
        self._iteration.begin()
        self.core.subscribe(topic_filter, done)

    def filter_removed(self, topic_filter: str) -> None:
        if self._early is not None:
            self._early.append(partial(self.filter_removed, topic_filter))
            return
        self._iteration.begin()
        self.core.unsubscribe(topic_filter)

    def take_over(self, messages: list[Message]) -> bool:
        """They stay where they are."""
        return False

    # The application of the overlay

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        self.receive(origin, payload)
        self._leave()

    def started(self, me: Peer) -> None:
        self.me = me

    def read_done(self) -> None:
        self._clients.read_done()

    def link_lost(self, peer: Peer) -> None:
        """The roles hear of a death by the owners of their keys."""

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return True

    def receive(self, sender: Peer, payload: bytes) -> None:
        """More may follow in the same go: what it leads to is sent after that."""
        self.core.receive(sender, payload)

    def undeliverable(self, key: Id, payload: bytes) -> None:
        """Whoever asked asks again by himself."""

    def unsent(self, payload: bytes) -> None:
        self.core.unsent(payload)
        self._leave()

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self.core.owners_changed(key, owners)
        self._leave()

    def activity_changed(self, active: bool) -> None:
        self.core.activity_changed(active)
        self._leave()
        self._on_activity(active)

    # The overlay of the roles

    @property
    def active(self) -> bool:
        return self._node.active

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

    def owner(self, key: Id) -> Peer | None:
        return self._node.ring.owner(key)

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        return self._node.ring.watch(key, count)

    def unwatch(self, key: Id) -> None:
        self._node.ring.unwatch(key)

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        return self._node.ring.news(key)

    # The end of an iteration

    def _leave(self) -> None:
        """Let the front send what has gathered."""
        self._clients.leave()

    def _owing(self) -> None:
        """The core owes other peers something, or has something for the disk."""
        if not self._enlisted and self.fault is None:
            self._enlisted = True
            self._iteration.commits.append(self._commit)
            self._iteration.acknowledgements.append(self._acknowledge)

    def _commit(self) -> None:
        """Put on the disk what other peers are told next. If it takes no more, `fault` says so."""

    def _acknowledge(self) -> None:
        """What the clients were given is on the disk of the front by now, and what is kept for others on that of the
        roles. Publications are not taken in here, so that nothing is acknowledged that was not committed.
        """
        safe = self._clients.safe
        if safe is None or self._stopped or self.fault is not None:
            self._enlisted = False
            return
        if safe:
            self.core.acknowledge()
        self._enlisted = False
        self._clients.leave()
        if not safe or self.core.owes:
            self._owing()

    def _tick(self) -> None:
        now = self._iteration.begin()
        deadline = self.core.timers.next_at
        try:
            if deadline <= now + SOONEST_S:
                self._iteration.advance(deadline)
                self.core.tick()
        except Exception:
            log.exception("the roles failed at their deadline")
            raise
        finally:
            self._leave()


class CoordinatedAdapter(EngineAdapter[CoordinatedEngine]):
    """The shell of the roles of this folder. Its core keeps for others what they retain."""

    def __init__(
        self,
        config: PubSubConfig,
        iteration: Iteration,
        on_activity: Callable[[bool], None] = lambda active: None,
        store: RetainedStore | None = None,
    ) -> None:
        """With a store, what this peer keeps for others outlives it; `stop` closes it. Raises StoreError."""
        self._config = config
        self._store = store
        super().__init__(iteration, on_activity)
        if store is not None:
            self.core.restore(*store.load())

    def _new_core(self, clients: LocalClients) -> CoordinatedEngine:
        disk = NO_DISK if self._store is None else self._store
        core = CoordinatedEngine(self, clients, self._config, disk, self._iteration, self._owing)
        core.publisher.clock_us = clock_us
        return core

    def stop(self) -> None:
        if self._stopped:
            return
        self._commit()
        super().stop()
        if self._store is not None:
            self._store.close()

    def take_over(self, messages: list[Message]) -> bool:
        """Without a store they stay where they are."""
        if self._store is None:
            return False
        for message in messages:
            body = encode_body(message, self._iteration.now)
            self.core.take_over(message.topic, body, secrets.randbits(CHANCE_BITS))
        self._commit()
        return self.fault is None

    def _commit(self) -> None:
        if self._store is not None and self.fault is None and not self._stopped:
            try:
                self._store.commit()
            except StoreError as error:
                self.fault = str(error)
                if self.on_fault is not None:
                    self.on_fault()


def _never() -> bool:
    return False


def clock_us() -> int:
    return time.time_ns() // 1000
