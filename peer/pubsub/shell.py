"""The shell of the roles: joins a front, whose `Ports` it is, to an overlay, whose `Application` it is.

Owns the roles' clock and their one timer. Plain calls: what a client publishes goes to the links within the call that
read it from its socket, and what comes from a link goes to the clients in the same turn of the loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

import structlog

from mqtt_front.amqtt_front import AmqttFront
from mqtt_front.front import Front
from mqtt_front.message import Message
from mqtt_front.ports import Done
from mqtt_front.reasons import Reason
from mqtt_front.topics import is_of_the_server
from overlay.errors import OverlayError
from overlay.ids import Id
from overlay.messages import Peer
from overlay.node import Node
from peer.pubsub.clients import LocalClients, NoClients, clients_of
from peer.pubsub.config import PubSubConfig
from peer.pubsub.core import PubSub
from peer.pubsub.mqtt import PLAIN_HEAD, encode_body
from peer.pubsub.places import inner_of

MIN_TIMER_S: Final = 0.001

log = structlog.get_logger("pubsub")


class RingPorts:
    """Create inside a running event loop and hand it to a Node and a Front; `attach` both; `begin` once the node has
    started; at the end `stop`.
    """

    serves_groups = True
    keeps_retained = True

    def __init__(self, config: PubSubConfig, on_activity: Callable[[bool], None] = lambda active: None) -> None:
        self._on_activity = on_activity
        self._loop = asyncio.get_running_loop()
        self._node: Node | None = None
        self._clients: LocalClients = NoClients()
        self._early: list[Callable[[], None]] | None = []
        """What the clients want before there is a ring. None: there is one."""
        self.core = PubSub(self, self._clients, config)
        self.core.acknowledges_later = True
        self.core.publisher.clock_us = lambda: time.time_ns() // 1000
        self.core.now = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._armed = inf
        self._acknowledging = False
        self._stopped = False
        self.unsendable = 0
        """Payloads that no frame can hold."""

    def attach(self, node: Node, front: Front | AmqttFront | None = None) -> None:
        """Before the node starts, and before the front restores anything or listens."""
        self._node = node
        self._clients = self.core.clients = clients_of(front)

    def begin(self) -> None:
        """The node has started: do what the clients wanted meanwhile, such as those that were restored."""
        early, self._early = self._early or [], None
        for call in early:
            call()

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
        if self._early is not None:
            self._early.append(partial(self.published, message, receivers_here, done))
            return
        self._enter()
        body = encode_body(message, self.core.now)
        if message.retain:
            self._clients.publishing(body, message)
        clears = message.retain and not message.payload
        matched = receivers_here > 0
        self.core.publish(message.topic, body, message.qos, matched, message.retain, clears, done)
        self._leave()

    def plain_published(self, topic: str, payload: bytes, receivers_here: int) -> None:
        if self._early is not None:
            self._early.append(partial(self.plain_published, topic, payload, receivers_here))
            return
        self._enter()
        self.core.publish(topic, PLAIN_HEAD + payload, 0, receivers_here > 0)
        self._leave()

    def filter_added(self, topic_filter: str, done: Callable[[], None]) -> None:
        if is_of_the_server(inner_of(topic_filter)):
            done()
            return
        if self._early is not None:
            self._early.append(partial(self.filter_added, topic_filter, done))
            return
        self._enter()
        self.core.subscribe(topic_filter, done)
        self._leave()

    def filter_removed(self, topic_filter: str) -> None:
        if self._early is not None:
            self._early.append(partial(self.filter_removed, topic_filter))
            return
        self._enter()
        self.core.unsubscribe(topic_filter)
        self._leave()

    # The application of the overlay

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        self.receive(origin, payload)

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return True

    def receive(self, sender: Peer, payload: bytes) -> None:
        self._enter()
        self.core.receive(sender, payload)
        self._leave()

    def undeliverable(self, key: Id, payload: bytes) -> None:
        """Whoever asked asks again by himself."""

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self._enter()
        self.core.owners_changed(key, owners)
        self._leave()

    def activity_changed(self, active: bool) -> None:
        self._enter()
        self.core.activity_changed(active)
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
        self.core.now = now
        self._clients.enter(now)

    def _leave(self) -> None:
        """Let the front send what has gathered; acknowledge to others after that, as it commits to the disk first."""
        self._clients.leave()
        if self.core.owes and not self._acknowledging:
            self._acknowledging = True
            self._loop.call_soon(self._acknowledge)
        deadline = self.core.deadline()
        if deadline < self._armed and not self._stopped:
            if self._timer is not None:
                self._timer.cancel()
            self._armed = max(deadline, self._loop.time() + MIN_TIMER_S)
            self._timer = self._loop.call_at(self._armed, self._tick)

    def _acknowledge(self) -> None:
        self._acknowledging = False
        if self._stopped or self._clients.failed:
            return
        self._enter()
        self.core.acknowledge()
        self._leave()

    def _tick(self) -> None:
        self._armed, self._timer = inf, None
        if self._stopped:
            return
        self._enter()
        try:
            if self.core.deadline() <= self.core.now + MIN_TIMER_S:
                self.core.now = max(self.core.now, self.core.deadline())
                self.core.tick()
        except Exception:
            log.exception("the roles failed at their deadline")
            raise
        finally:
            self._leave()
