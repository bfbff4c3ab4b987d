"""Peers with roles that count the copies of one message: sends of each peer, hops, and times of arrival.

Their clients only record the times, so that a world can have tens of thousands of peers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.clients import SimulatedClients
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.fast_path import PUBLICATION
from ringmq.peer.messaging.publication import Publication

AT_ONCE: Final = 250
"""Peers that subscribe at the same moment. For each new subscription a coordinator scans all waiting ones."""
SETTLE_S: Final = 1.0
"""Time for the messages that no condition waits for."""
PATIENCE_S: Final = 600.0
"""Virtual time after which an operation is given up."""
LOOK_S: Final = 0.1
"""Virtual time between two checks of a condition."""


class TimedClients(SimulatedClients):
    """The clients of one peer. `arrived_at` has the times at which they received the message."""

    __slots__ = ("_world", "arrived_at")

    def __init__(self, peer: Peer, world: CopiesWorld) -> None:
        super().__init__(peer, world.pubsub_checks)
        self._world = world
        self.arrived_at: list[float] = []

    def deliver(self, publication: Publication) -> int:
        self.arrived_at.append(self._world.now)
        self._world.delivered += 1
        return 1


class CopiesNode(PubSubNode):
    """A peer that counts the copies it sends. `depth` is the number of hops of the first copy that it received."""

    __slots__ = ("copies", "copy_bytes", "depth")
    clients: TimedClients
    world: CopiesWorld

    def __init__(self, world: CopiesWorld, number: int, peer: Peer, half: int) -> None:
        super().__init__(world, number, peer, half)
        self.reset_counts()

    def reset_counts(self) -> None:
        """Reset all counts before another message."""
        self.copies = self.copy_bytes = self.depth = 0
        self.clients.arrived_at = []

    def send(self, peer: Peer, payload: bytes) -> bool:
        if payload.startswith(PUBLICATION):
            self.copies += 1
            self.copy_bytes += len(payload)
        return super().send(peer, payload)

    def receive(self, sender: Peer, payload: bytes) -> None:
        if payload.startswith(PUBLICATION):
            above = self.world.nodes[sender.id]
            assert isinstance(above, CopiesNode), "node_for makes no others"
            self.depth = self.depth or above.depth + 1
        super().receive(sender, payload)


class CopiesWorld(PubSubWorld):
    """A world whose operations return when they are complete, or raise InvariantBrokenError after PATIENCE_S."""

    delivered = 0
    _in_force = 0

    def node_for(self, number: int, peer: Peer) -> CopiesNode:
        return CopiesNode(self, number, peer, self.half)

    def clients_for(self, peer: Peer) -> TimedClients:
        return TimedClients(peer, self)

    def members(self) -> list[CopiesNode]:
        return [node for node in self.nodes.values() if isinstance(node, CopiesNode)]

    def subscribe_all(self, nodes: Sequence[CopiesNode], topic_filter: str) -> None:
        self._in_force = 0
        for start in range(0, len(nodes), AT_ONCE):
            batch = nodes[start : start + AT_ONCE]
            for node in batch:
                self._at(node)
                node.core.subscribe(topic_filter, self._count_in_force)
                self._after(node)
            self._until(partial(self._all_in_force, start + len(batch)), f"to subscribe to {topic_filter}")

    def _count_in_force(self, reason: Reason) -> None:
        self._in_force += 1

    def _all_in_force(self, count: int) -> bool:
        return self._in_force == count

    def unsubscribe_all(self, nodes: Sequence[CopiesNode], topic_filter: str) -> None:
        for node in nodes:
            self._at(node)
            node.core.unsubscribe(topic_filter)
            self._after(node)
        self.run(self.now + SETTLE_S)

    def publish_and_wait(self, publisher: CopiesNode, topic: str, body: bytes, receivers: int) -> float:
        """Publish a message for `receivers` peers. Returns the time until the last of them received it."""
        for node in self.members():
            node.reset_counts()
        self.delivered, began_at = 0, self.now
        self._at(publisher)
        publisher.core.publish(topic, body, 0)
        self._after(publisher)
        self._until(lambda: self.delivered >= receivers, f"to bring {topic} to {receivers} peers")
        self.run(self.now + SETTLE_S)
        arrivals = [node.clients.arrived_at for node in self.members() if node.clients.arrived_at]
        if len(arrivals) != receivers or self.delivered != receivers:
            raise InvariantBrokenError(f"{topic} came {self.delivered} times to {len(arrivals)} of {receivers} peers")
        return max((at for (at,) in arrivals), default=began_at) - began_at

    def _until(self, done: Callable[[], bool], task: str) -> None:
        if not self.run(self.now + PATIENCE_S, done, LOOK_S):
            raise InvariantBrokenError(f"it took more than {PATIENCE_S:g} s {task}")
