"""Peers whose messages are counted: those of an engine, without those of the ring itself.

Their clients check nothing and only note what they receive, so that a world can have thousands of topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.clients import SimulatedClients
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.experiments.simulator.world import Node
from ringmq.mqtt_front.cluster import Done
from ringmq.overlay.core.messages import Parcel, Peer, Route
from ringmq.peer.messaging.publication import Publication, taken_apart

PATIENCE_S: Final = 60.0
"""Virtual time after which an operation is given up."""
LOOK_S: Final = 0.01
"""Virtual time between two checks of a condition."""


@dataclass(slots=True)
class MessageCount:
    """Messages between peers, and the bytes of their payloads. A routed message counts at each hop."""

    messages: int = 0
    size_bytes: int = 0
    payloads: int = 0
    """Messages of one iteration to one peer share a payload."""

    def __sub__(self, other: MessageCount) -> MessageCount:
        return MessageCount(
            self.messages - other.messages, self.size_bytes - other.size_bytes, self.payloads - other.payloads
        )

    def add(self, payload: bytes) -> None:
        self.messages += sum(1 for _ in taken_apart(payload))
        self.size_bytes += len(payload)
        self.payloads += 1


class NotingClients(SimulatedClients):
    """The clients of one peer. `got` has the topics of all messages that they received."""

    __slots__ = ("got",)

    def __init__(self, peer: Peer, world: CountedWorld) -> None:
        super().__init__(peer, world.pubsub_checks)
        self.got: set[str] = set()

    def deliver(self, publication: Publication) -> int:
        self.got.add(publication.topic)
        return 1

    def retained(self, topic: str, body: bytes) -> None:
        """Ignore it: no client asks."""


class CountedNode(PubSubNode):
    """A peer whose clients only note what they receive."""

    clients: NotingClients


class CountedWorld(PubSubWorld):
    """A world that counts messages. Its operations return when they are complete."""

    def __init__(self, *arguments: object, **named: object) -> None:
        self.traffic = MessageCount()
        super().__init__(*arguments, **named)  # type: ignore[arg-type]

    def node_for(self, number: int, peer: Peer) -> CountedNode:
        return CountedNode(self, number, peer, self.half)

    def clients_for(self, peer: Peer) -> NotingClients:
        return NotingClients(peer, self)

    def members(self) -> list[CountedNode]:
        return [node for node in self.nodes.values() if isinstance(node, CountedNode)]

    def _post(self, node: Node) -> None:
        for _, message in node.ring.outbox:
            if isinstance(message, Parcel):
                self.traffic.add(message.payload)
            elif isinstance(message, Route) and isinstance(message.body, bytes):
                self.traffic.add(message.body)
        super()._post(node)

    def counted(self) -> MessageCount:
        """The traffic until now."""
        return self.traffic - MessageCount()

    def begin_subscription(self, node: CountedNode, topic_filter: str, done: Done) -> None:
        self._at(node)
        node.core.subscribe(topic_filter, done)
        self._after(node)

    def subscribe_and_wait(self, node: CountedNode, topic_filter: str) -> None:
        in_force: list[str] = []
        self.begin_subscription(node, topic_filter, lambda _: in_force.append(topic_filter))
        self._until(lambda: bool(in_force), f"to subscribe to {topic_filter}")

    def end_subscription(self, node: CountedNode, topic_filter: str) -> None:
        self._at(node)
        node.core.unsubscribe(topic_filter)
        self._after(node)

    def publish_body(self, node: CountedNode, topic: str, body: bytes, retain: bool = False) -> None:
        """Publish a message with QoS 1."""
        self._at(node)
        node.core.publish(topic, body, 1, retain=retain)
        self._after(node)

    def publish_and_wait(self, node: CountedNode, topic: str, body: bytes, receiver: CountedNode) -> None:
        receiver.clients.got.discard(topic)
        self.publish_body(node, topic, body)
        self._until(lambda: topic in receiver.clients.got, f"to bring {topic}")

    def _until(self, done: Callable[[], bool], task: str) -> None:
        if not self.run(self.now + PATIENCE_S, done, LOOK_S):
            raise InvariantBrokenError(f"it took more than {PATIENCE_S:g} s {task}")
