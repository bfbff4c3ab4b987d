"""Peers with roles that count the copies of one message: who sends how many, how far it goes, and when it is there.

Their clients note the time and no more, so that there can be tens of thousands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.clients import SimulatedClients
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.fast_path import PUBLICATION
from ringmq.peer.messaging.publication import Publication

AT_ONCE: Final = 250
"""Peers that subscribe at the same moment. For each that comes a coordinator looks at all that wait."""
SETTLE_S: Final = 1.0
"""Until what nobody waits for has come to its end too."""
PATIENCE_S: Final = 600.0
LOOK_S: Final = 0.1


class Hearer(SimulatedClients):
    """The clients of one peer. `heard` has the times at which they got the message."""

    __slots__ = ("_world", "heard")

    def __init__(self, peer: Peer, world: CopiesWorld) -> None:
        super().__init__(peer, world.told)
        self._world = world
        self.heard: list[float] = []

    def deliver(self, publication: Publication) -> int:
        self.heard.append(self._world.now)
        self._world.delivered += 1
        return 1


class CopiesNode(PubSubNode):
    """A peer that counts the copies it sends. `depth` says how many hops from the publisher it got the first one."""

    __slots__ = ("copies", "copy_bytes", "depth")
    clients: Hearer
    world: CopiesWorld

    def __init__(self, world: CopiesWorld, number: int, peer: Peer, half: int) -> None:
        super().__init__(world, number, peer, half)
        self.forget()

    def forget(self) -> None:
        """From now on another message counts."""
        self.copies = self.copy_bytes = self.depth = 0
        self.clients.heard = []

    def send(self, peer: Peer, payload: bytes) -> bool:
        if payload.startswith(PUBLICATION):
            self.copies += 1
            self.copy_bytes += len(payload)
        return super().send(peer, payload)

    def receive(self, sender: Peer, payload: bytes) -> None:
        if payload.startswith(PUBLICATION):
            above = self.world.nodes[sender.id]
            assert isinstance(above, CopiesNode), "all are"
            self.depth = self.depth or above.depth + 1
        super().receive(sender, payload)


class CopiesWorld(PubSubWorld):
    """Calls return when what they ask for has happened; all raise InvariantBrokenError when it takes too long."""

    delivered = 0
    _in_force = 0

    def node_for(self, number: int, peer: Peer) -> CopiesNode:
        return CopiesNode(self, number, peer, self.half)

    def clients_for(self, peer: Peer) -> Hearer:
        return Hearer(peer, self)

    def members(self) -> list[CopiesNode]:
        return [node for node in self.nodes.values() if isinstance(node, CopiesNode)]

    def subscribe_all(self, nodes: Sequence[CopiesNode], topic_filter: str) -> None:
        self._in_force = 0
        for start in range(0, len(nodes), AT_ONCE):
            some = nodes[start : start + AT_ONCE]
            for node in some:
                self._at(node)
                node.core.subscribe(topic_filter, self._is_in_force)
                self._after(node)
            self._until(partial(self._are_in_force, start + len(some)), f"to subscribe to {topic_filter}")

    def _is_in_force(self) -> None:
        self._in_force += 1

    def _are_in_force(self, count: int) -> bool:
        return self._in_force == count

    def unsubscribe_all(self, nodes: Sequence[CopiesNode], topic_filter: str) -> None:
        for node in nodes:
            self._at(node)
            node.core.unsubscribe(topic_filter)
            self._after(node)
        self.run(self.now + SETTLE_S)

    def bring(self, publisher: CopiesNode, topic: str, body: bytes, receivers: int) -> float:
        """Publish a message that so many peers are to get. Returns how long it took until the last had it."""
        for node in self.members():
            node.forget()
        self.delivered, began_at = 0, self.now
        self._at(publisher)
        publisher.core.publish(topic, body, 0)
        self._after(publisher)
        self._until(lambda: self.delivered >= receivers, f"to bring {topic} to {receivers} peers")
        self.run(self.now + SETTLE_S)
        heard = [node.clients.heard for node in self.members() if node.clients.heard]
        if len(heard) != receivers or self.delivered != receivers:
            raise InvariantBrokenError(f"{topic} came {self.delivered} times to {len(heard)} of {receivers} peers")
        return max((at for (at,) in heard), default=began_at) - began_at

    def _until(self, done: Callable[[], bool], what: str) -> None:
        if not self.run(self.now + PATIENCE_S, done, LOOK_S):
            raise InvariantBrokenError(f"it took more than {PATIENCE_S:g} s {what}")
