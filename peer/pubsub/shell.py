"""The shell of the roles: joins a front, whose `Ports` it is, to an overlay, whose `Application` it is.

Owns the roles' clock and their one timer. Plain calls: what a client publishes goes to the links within the call that
read it from its socket, and what comes from a link goes to the clients in the same turn of the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from math import inf
from typing import Final

import structlog

from mqtt_front.front import Front
from mqtt_front.message import Message
from mqtt_front.plain import give_plain
from mqtt_front.ports import Done
from mqtt_front.reasons import Reason
from mqtt_front.retained import Retained
from mqtt_front.topics import is_of_the_server
from overlay.errors import OverlayError, ProtocolError
from overlay.ids import Id
from overlay.messages import Peer
from overlay.node import Node
from peer.pubsub.config import PubSubConfig
from peer.pubsub.core import PubSub
from peer.pubsub.mqtt import PLAIN_HEAD, decode_body, encode_body
from peer.pubsub.places import inner_of
from peer.pubsub.wire import Publication

MIN_TIMER_S: Final = 0.001

log = structlog.get_logger("pubsub")


class RingRetained(Retained):
    """What is retained, as far as the clients here want it. What they publish is kept by the coordinators instead."""

    __slots__ = ()

    def set(self, message: Message) -> bool:
        """The front's own messages about itself are no business of the ring's."""
        return super().set(message) if is_of_the_server(message.topic) else True

    def keep(self, message: Message) -> bool:
        return super().set(message)


class FrontClients:
    """The clients of this peer, as the roles see them."""

    def __init__(self, front: Front) -> None:
        self.front = front
        self.retained_store = RingRetained(front.config.max_retained, front.config.max_retained_bytes)
        for message in front.broker.retained:
            self.retained_store.set(message)
        front.broker.retained = self.retained_store
        self.unreadable = 0
        self._last: tuple[bytes, Message] | None = None
        """So that what is kept and what is given out live are one and the same object."""

    def deliver(self, publication: Publication) -> None:
        one = publication
        if one.body.startswith(PLAIN_HEAD) and not (one.qos or one.retain or one.shared) and one.plain:
            give_plain(self.front.broker, one.topic, one.body[len(PLAIN_HEAD) :])
            return
        message = self._message(publication.topic, publication.body, publication.qos, publication.retain)
        if message is None:
            return
        if publication.plain:
            self.front.broker.distribute_plain(message)
        if publication.shared:
            self.front.broker.distribute_shared(message, publication.shared)

    def retained(self, topic: str, body: bytes) -> None:
        if not body:
            self.retained_store.keep(Message(topic, b""))
            return
        message = self._message(topic, body, None, True)
        if message is not None and not self.retained_store.keep(message):
            self.front.broker.counters.not_retained += 1

    def publishing(self, body: bytes, message: Message) -> None:
        """A client here published this, and its body is that."""
        self._last = (body, message)

    def _message(self, topic: str, body: bytes, qos: int | None, retain: bool) -> Message | None:
        if self._last is not None and self._last[0] is body:
            return self._last[1]
        try:
            message = decode_body(topic, body, qos, retain, self.front.broker.now)
        except ProtocolError:
            self.unreadable += 1
            return None
        if retain:
            self._last = (body, message)
        return message


class NoClients:
    """Of a peer without listeners."""

    def deliver(self, publication: Publication) -> None: ...
    def retained(self, topic: str, body: bytes) -> None: ...


class RingPorts:
    """Create inside a running event loop; hand it to a Node and to a Front, and `attach` both; at the end `stop`."""

    serves_groups = True

    def __init__(self, config: PubSubConfig, on_activity: Callable[[bool], None] = lambda active: None) -> None:
        self._config = config
        self._on_activity = on_activity
        self._loop = asyncio.get_running_loop()
        self._node: Node | None = None
        self._front: Front | None = None
        self._clients: FrontClients | None = None
        self._core = PubSub(self, NoClients(), config)
        self._timer: asyncio.TimerHandle | None = None
        self._armed = inf
        self._acknowledging = False
        self._stopped = False
        self.unsendable = 0
        """Payloads that no frame can hold."""

    @property
    def core(self) -> PubSub:
        return self._core

    def attach(self, node: Node, front: Front | None = None) -> None:
        """Before the node starts, and before the front listens."""
        self._node, self._front = node, front
        self._clients = None if front is None else FrontClients(front)
        self._core = PubSub(self, self._clients or NoClients(), self._config)
        self._core.acknowledges_later = True
        self._core.publisher.clock_us = lambda: time.time_ns() // 1000
        self._core.now = self._loop.time()

    def stop(self) -> None:
        """The last call: nothing is done any more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    # The ports of the front

    def published(self, message: Message, receivers_here: int, done: Done | None) -> None:
        if is_of_the_server(message.topic):
            if done is not None:
                done(Reason.SUCCESS)
            return
        self._enter()
        body = encode_body(message, self._core.now)
        if message.retain and self._clients is not None:
            self._clients.publishing(body, message)
        clears = message.retain and not message.payload
        matched = receivers_here > 0
        self._core.publish(message.topic, body, message.qos, matched, message.retain, clears, done)
        self._leave()

    def plain_published(self, topic: str, payload: bytes, receivers_here: int) -> None:
        self._enter()
        self._core.publish(topic, PLAIN_HEAD + payload, 0, receivers_here > 0)
        self._leave()

    def filter_added(self, topic_filter: str, done: Callable[[], None]) -> None:
        if is_of_the_server(inner_of(topic_filter)):
            done()
            return
        self._enter()
        self._core.subscribe(topic_filter, done)
        self._leave()

    def filter_removed(self, topic_filter: str) -> None:
        self._enter()
        self._core.unsubscribe(topic_filter)
        self._leave()

    # The application of the overlay

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        self.receive(origin, payload)

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return True

    def receive(self, sender: Peer, payload: bytes) -> None:
        self._enter()
        self._core.receive(sender, payload)
        self._leave()

    def undeliverable(self, key: Id, payload: bytes) -> None:
        """Whoever asked asks again by himself."""

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self._enter()
        self._core.owners_changed(key, owners)
        self._leave()

    def activity_changed(self, active: bool) -> None:
        self._enter()
        self._core.activity_changed(active)
        self._leave()
        self._on_activity(active)

    # The overlay of the roles

    @property
    def _overlay(self) -> Node:
        assert self._node is not None, "attach a node before anything happens"
        return self._node

    @property
    def me(self) -> Peer:
        return self._overlay.ring.me

    @property
    def active(self) -> bool:
        return self._overlay.active

    def send(self, peer: Peer, payload: bytes) -> bool:
        try:
            return self._overlay.send(peer, payload)
        except OverlayError:
            self.unsendable += 1
            return False

    def route(self, key: Id, payload: bytes) -> bool:
        return self._overlay.route(key, payload)

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        return self._overlay.ring.watch(key, count)

    def unwatch(self, key: Id) -> None:
        self._overlay.ring.unwatch(key)

    # The clock

    def _enter(self) -> None:
        now = self._loop.time()
        self._core.now = now
        if self._front is not None:
            self._front.broker.now = now

    def _leave(self) -> None:
        """Let the front send what has gathered; acknowledge to others after that, as it commits to the disk first."""
        if self._front is not None:
            self._front.turn()
        if self._core.owes and not self._acknowledging:
            self._acknowledging = True
            self._loop.call_soon(self._acknowledge)
        deadline = self._core.deadline()
        if deadline < self._armed and not self._stopped:
            if self._timer is not None:
                self._timer.cancel()
            self._armed = max(deadline, self._loop.time() + MIN_TIMER_S)
            self._timer = self._loop.call_at(self._armed, self._tick)

    def _acknowledge(self) -> None:
        self._acknowledging = False
        if self._stopped or (self._front is not None and self._front.fault is not None):
            return
        self._enter()
        self._core.acknowledge()
        self._leave()

    def _tick(self) -> None:
        self._armed, self._timer = inf, None
        if self._stopped:
            return
        self._enter()
        try:
            if self._core.deadline() <= self._core.now + MIN_TIMER_S:
                self._core.now = max(self._core.now, self._core.deadline())
                self._core.tick()
        except Exception:
            log.exception("the roles failed at their deadline")
            raise
        finally:
            self._leave()
