"""The clients of this peer, as engines see them: clients of RingMQ's own front, of an amqtt front, or none.

Turns publications of other peers into messages of a front, and sets there the retained messages that its clients need.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ringmq.mqtt_front.amqtt.server import AmqttServer
from ringmq.mqtt_front.connection.fast_path import distribute_fast
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.iteration import Clock
from ringmq.mqtt_front.message import Message, WillMessage
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.messaging.body import decode_body
from ringmq.peer.messaging.engine import LocalClients
from ringmq.peer.messaging.fast_path import FAST_HEAD
from ringmq.peer.messaging.publication import Publication


class AdapterClients(LocalClients, Protocol):
    """Further calls, of the adapter."""

    @property
    def unreadable(self) -> int:
        """Messages of other peers that could not be read."""

    @property
    def safe(self) -> bool | None:
        """Whether all messages delivered to them are on the disk. None: the disk has failed."""

    def publishing(self, body: bytes, message: Message) -> None:
        """A client here published a retained message with this body, which is soon passed to `retained`."""

    def leave(self) -> None:
        """Flush the connections, at the end of a call."""

    def read_done(self) -> None:
        """Flush the connections, at the end of a read: no further message follows from it."""


class NoClients:
    """The clients of a peer without listeners."""

    unreadable = 0
    safe = True

    def deliver(self, publication: Publication) -> int:
        return 0

    def deliver_fast(self, topic: bytes, body: bytes) -> bool | None:
        return False

    def retained(self, topic: str, body: bytes) -> None: ...
    def publishing(self, body: bytes, message: Message) -> None: ...
    def leave(self) -> None: ...
    def read_done(self) -> None: ...


class Bodies:
    """Decodes bodies, and remembers the last retained message: delivering and retaining it then use the same object,
    which saves memory."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.unreadable = 0
        self._last: tuple[bytes, Message] | None = None

    def is_of(self, body: bytes, message: Message) -> None:
        self._last = (body, message)

    def read(self, topic: str, body: bytes, qos: int | None, retain: bool) -> Message | None:
        """None: the body is unreadable, which is counted. With `qos` None the message has the QoS of its publisher."""
        # Identity is enough, as one bytes object is delivered and retained; comparing payloads would cost their length.
        if self._last is not None and self._last[0] is body:
            return self._last[1]
        try:
            message = decode_body(topic, body, qos, retain, self._clock.now)
        except ProtocolError:
            self.unreadable += 1
            return None
        # Only a retained message is read twice: it is delivered to clients, and then stored in the front.
        if retain:
            self._last = (body, message)
        return message


class FrontClients:
    """The clients of RingMQ's own front."""

    def __init__(self, front: MqttServer) -> None:
        self._front = front
        self._broker = front.broker
        self._bodies = Bodies(front.broker.clock)
        # Attributes instead of methods: the front is called at each read of a link, without a function in between.
        self.leave: Callable[[], None] = front.send_soon
        self.read_done: Callable[[], None] = partial(front.send_soon, gathered=True)

    @property
    def unreadable(self) -> int:
        return self._bodies.unreadable

    @property
    def safe(self) -> bool | None:
        return None if self._front.fault is not None else not self._broker.journal.pending

    def deliver_fast(self, topic: bytes, body: bytes) -> bool | None:
        if not body.startswith(FAST_HEAD):
            return None
        # The topic is bytes of another peer, which nothing has checked yet.
        try:
            return distribute_fast(self._broker, topic, body[len(FAST_HEAD) :]) > 0
        except (PacketError, UnicodeDecodeError):
            self._bodies.unreadable += 1
            return False

    def deliver(self, publication: Publication) -> int:
        message = self._bodies.read(publication.topic, publication.body, publication.qos, publication.retain)
        if message is None:
            return 0
        if isinstance(message, WillMessage) and self._broker.wills.is_repeated(message, self._broker.journal):
            return 0
        count = self._broker.distribute_unshared(message) if publication.unshared else 0
        if publication.shared:
            count += self._broker.distribute_shared(message, publication.shared)
        return count

    def retained(self, topic: str, body: bytes) -> None:
        message = self._bodies.read(topic, body, None, True) if body else Message(topic, b"")
        if message is not None and not self._broker.retained.set(message):
            self._broker.counters.not_retained += 1

    def publishing(self, body: bytes, message: Message) -> None:
        self._bodies.is_of(body, message)


class AmqttClients:
    """The clients of an amqtt front. It has no shared subscriptions, and delivers in tasks of its own."""

    safe = True

    def __init__(self, front: AmqttServer, clock: Clock) -> None:
        self._broker = front.broker
        self._bodies = Bodies(clock)

    @property
    def unreadable(self) -> int:
        return self._bodies.unreadable

    def deliver_fast(self, topic: bytes, body: bytes) -> bool | None:
        return None

    def deliver(self, publication: Publication) -> int:
        message = self._bodies.read(publication.topic, publication.body, publication.qos, publication.retain)
        if message is None or not publication.unshared:
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
