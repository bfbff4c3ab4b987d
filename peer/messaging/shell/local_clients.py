"""The clients of this peer, as the roles see them: a front of our own, one of amqtt's, or none.

Turns what crosses the ring into messages of a front, and keeps there what is retained and of use here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ringmq.mqtt_front.amqtt.server import AmqttServer
from ringmq.mqtt_front.connection.fast_delivery import give_plain
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.iteration import Clock
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.messaging.body import PLAIN_HEAD, decode_body
from ringmq.peer.messaging.context import LocalClients
from ringmq.peer.messaging.publication import Publication


class AdapterClients(LocalClients, Protocol):
    """What the shell of the roles needs beside."""

    @property
    def unreadable(self) -> int:
        """Messages of other peers that could not be read."""

    @property
    def safe(self) -> bool | None:
        """Whether all that they were given is on the disk. None: it is not, and will never be."""

    def publishing(self, body: bytes, message: Message) -> None:
        """One of them published this to be retained, and its body is that."""

    def leave(self) -> None:
        """Send what they have been given."""

    def read_done(self) -> None:
        """As `leave`, when no more will follow at once."""


class NoClients:
    """Of a peer without listeners."""

    unreadable = 0
    safe = True

    def deliver(self, publication: Publication) -> int:
        return 0

    def deliver_plain(self, topic: bytes, body: bytes) -> bool | None:
        return False

    def retained(self, topic: str, body: bytes) -> None: ...
    def publishing(self, body: bytes, message: Message) -> None: ...
    def leave(self) -> None: ...
    def read_done(self) -> None: ...


class Bodies:
    """Bodies as messages. What is kept and what is given out live are one and the same object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.unreadable = 0
        self._last: tuple[bytes, Message] | None = None

    def is_of(self, body: bytes, message: Message) -> None:
        self._last = (body, message)

    def read(self, topic: str, body: bytes, qos: int | None, retain: bool) -> Message | None:
        """None: nobody can read it, which is counted. Without `qos` it has that of its publication."""
        if self._last is not None and self._last[0] is body:
            return self._last[1]
        try:
            message = decode_body(topic, body, qos, retain, self._clock.now)
        except ProtocolError:
            self.unreadable += 1
            return None
        if retain:
            self._last = (body, message)
        return message


class FrontClients:
    """Those of our own front."""

    def __init__(self, front: MqttServer) -> None:
        self._front = front
        self._broker = front.broker
        self._bodies = Bodies(front.broker.clock)
        # Attributes, so that the front is called without a function in between: this happens at every read of a link.
        self.leave: Callable[[], None] = front.send_soon
        self.read_done: Callable[[], None] = partial(front.send_soon, gathered=True)

    @property
    def unreadable(self) -> int:
        return self._bodies.unreadable

    @property
    def safe(self) -> bool | None:
        return None if self._front.fault is not None else not self._broker.journal.pending

    def deliver_plain(self, topic: bytes, body: bytes) -> bool | None:
        if not body.startswith(PLAIN_HEAD):
            return None
        try:
            return give_plain(self._broker, topic, body[len(PLAIN_HEAD) :]) > 0
        except (PacketError, UnicodeDecodeError):
            self._bodies.unreadable += 1
            return False

    def deliver(self, publication: Publication) -> int:
        one = publication
        message = self._bodies.read(one.topic, one.body, one.qos, one.retain)
        if message is None:
            return 0
        count = self._broker.distribute_plain(message) if one.plain else 0
        if one.shared:
            count += self._broker.distribute_shared(message, one.shared)
        return count

    def retained(self, topic: str, body: bytes) -> None:
        message = self._bodies.read(topic, body, None, True) if body else Message(topic, b"")
        if message is not None and not self._broker.retained.set(message):
            self._broker.counters.not_retained += 1

    def publishing(self, body: bytes, message: Message) -> None:
        self._bodies.is_of(body, message)


class AmqttClients:
    """Those of amqtt's. It knows no shared subscriptions, and gives out by tasks of its own."""

    safe = True

    def __init__(self, front: AmqttServer, clock: Clock) -> None:
        self._broker = front.broker
        self._bodies = Bodies(clock)

    @property
    def unreadable(self) -> int:
        return self._bodies.unreadable

    def deliver_plain(self, topic: bytes, body: bytes) -> bool | None:
        return None

    def deliver(self, publication: Publication) -> int:
        message = self._bodies.read(publication.topic, publication.body, publication.qos, publication.retain)
        if message is None or not publication.plain:
            return 0
        return self._broker.distribute(message)

    def retained(self, topic: str, body: bytes) -> None:
        message = self._bodies.read(topic, body, None, True) if body else Message(topic, b"")
        if message is not None and not self._broker.retain(message):
            self._broker.counters.not_retained += 1

    def publishing(self, body: bytes, message: Message) -> None:
        self._bodies.is_of(body, message)

    def leave(self) -> None: ...
    def read_done(self) -> None: ...


def clients_of(front: MqttServer | AmqttServer | None, clock: Clock) -> AdapterClients:
    if front is None:
        return NoClients()
    return AmqttClients(front, clock) if isinstance(front, AmqttServer) else FrontClients(front)
