"""Members with brokers of the front: MQTT clients in memory whose peers are the members of a net."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from ringmq.mqtt_front.cluster import Done, Enrolment, Settled
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.sessions.moving_session import Origin
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.shell.local_clients import FrontClients
from tests.mqtt_front.conftest import World
from tests.peer.conftest import Member


class CoreCluster:
    """The engine of a member as the cluster of its broker, as the adapter does it."""

    serves_groups = True
    keeps_retained = True

    def __init__(self, member: Member) -> None:
        self._member = member
        self._core = member.core

    def _begin(self) -> None:
        self._core.clock.now = self._member.net.now

    def published(self, message: Message, receivers_here: int, done: Done | None) -> None:
        self._begin()
        body = encode_body(message, self._member.net.now)
        clears = message.retain and not message.payload
        self._core.publish(message.topic, body, message.qos, receivers_here > 0, message.retain, clears, done)

    def published_fast(self, topic: str, payload: bytes, receivers_here: int) -> None:
        self.published(Message(topic, payload), receivers_here, None)

    def take_over(self, messages: list[Message]) -> bool:
        return False

    def serves(self, topic_filter: str) -> bool:
        return self._core.serves(topic_filter)

    def filter_added(self, topic_filter: str, done: Done, lasting: bool = False) -> None:
        self._begin()
        self._core.subscribe(topic_filter, done, lasting)

    def is_refused(self, topic_filter: str) -> bool:
        return self._core.is_refused(topic_filter)

    def filter_removed(self, topic_filter: str) -> None:
        self._begin()
        self._core.unsubscribe(topic_filter)

    def enrol(self, enrolment: Enrolment, settled: Settled) -> None:
        self._begin()
        self._core.enrol(enrolment, settled)

    def discharge(self, client_id: str) -> None:
        self._begin()
        self._core.discharge(client_id)

    def arrived(self, client_id: str) -> None:
        self._core.arrived(client_id)

    def next_origin(self) -> Origin:
        return self._core.next_origin()


class WholeFront(World):
    """The broker of a member, and its clients."""

    def __init__(self, member: Member) -> None:
        super().__init__(cluster=CoreCluster(member))
        self.member = member
        server = SimpleNamespace(broker=self.broker, send_soon=lambda *_, **__: None, fault=None)
        member.core.clients = FrontClients(cast("MqttServer", server))
        member.core.enrolments.clients = self.broker
        member.core.enrolments.moves.sessions = self.broker.moves
        self.broker.moves.on_busy = member.core.note_origins

    def follow(self) -> None:
        """The time of the net, and the end of an iteration."""
        self.broker.clock.now = self.member.net.now
        self.turn()
