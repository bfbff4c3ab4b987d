"""Peers with the roles of publish and subscribe in the virtual world: the cores of real peers, on its clock.

Either those of RingMQ or those of Scribe; all peers of a world have the same.
"""

from __future__ import annotations

from collections.abc import Callable

from ringmq.experiments.simulator.clients import SimulatedClients
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.pubsub_checks import PubSubChecks, Sent
from ringmq.experiments.simulator.scribe_checks import ScribeChecks
from ringmq.experiments.simulator.world import Node, SimulatedRing, World
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.core.leaf_set import HALF
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import Timing
from ringmq.peer.engines.coordinated.engine import CoordinatedEngine
from ringmq.peer.engines.scribe.config import TreeConfig
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.engine import LocalClients, Overlay


class PubSubRing(SimulatedRing):
    """A ring whose peer's roles have deadlines of their own."""

    __slots__ = ()
    node: PubSubNode

    def deadline(self) -> float:
        return min(super().deadline(), self.node.core.deadline())

    def tick(self, now: float) -> None:
        super().tick(now)
        core = self.node.core
        while core.deadline() <= now:
            core.tick()


class PubSubNode(Node):
    """A peer with roles; it is the overlay to them."""

    __slots__ = ("clients", "core")
    ring: PubSubRing

    def __init__(self, world: PubSubWorld, number: int, peer: Peer, half: int) -> None:
        super().__init__(world, number, peer, half)
        self.clients = world.clients_for(peer)
        self.core = world.core_for(self, self.clients)
        self.ring = PubSubRing(peer, world.timing, self, half)
        self.ring.node = self

    # The overlay of the roles

    @property
    def me(self) -> Peer:
        return self.peer

    @property
    def active(self) -> bool:
        return self.ring.active

    def send(self, peer: Peer, payload: bytes) -> bool:
        self.ring.send(peer, payload)
        return True

    def route(self, key: Id, payload: bytes) -> bool:
        return self.ring.route(key, payload, self.world.now)

    def doubts(self, peer: Peer) -> bool:
        return self.ring.doubts(peer)

    def owner(self, key: Id) -> Peer | None:
        return self.ring.owner(key)

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        return self.ring.watch(key, count)

    def unwatch(self, key: Id) -> None:
        self.ring.unwatch(key)

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        return self.ring.news(key)

    # The application of the ring

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        self.receive(origin, payload)

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return self.core.forward(key, payload, next_hop)

    def receive(self, sender: Peer, payload: bytes) -> None:
        self.core.receive(sender, payload)

    def link_lost(self, peer: Peer) -> None:
        self.core.link_lost(peer)

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self.core.owners_changed(key, owners)

    def activity_changed(self, active: bool) -> None:
        self.core.activity_changed(active)


class PubSubWorld(World):
    """A world of peers with roles, with `trees` those of Scribe. All that their clients do goes through here."""

    def __init__(
        self,
        seed: int,
        timing: Timing,
        weather: Weather | None = None,
        *,
        config: PubSubConfig,
        trees: TreeConfig | None = None,
        strict: bool = True,
        half: int = HALF,
    ) -> None:
        self.config = config
        self.trees = trees
        self.told = PubSubChecks(self) if trees is None else ScribeChecks(self)
        self.on_suback: Callable[[PubSubNode, str], None] = lambda node, topic_filter: None
        super().__init__(seed, timing, weather, strict=strict, half=half)

    def node_for(self, number: int, peer: Peer) -> PubSubNode:
        return PubSubNode(self, number, peer, self.half)

    def clients_for(self, peer: Peer) -> SimulatedClients:
        return SimulatedClients(peer, self.told)

    def core_for(self, overlay: Overlay, clients: LocalClients) -> CoordinatedEngine | ScribeEngine:
        if self.trees is None:
            return CoordinatedEngine(overlay, clients, self.config, clock=self)
        return ScribeEngine(overlay, clients, self.config, self.trees, clock=self)

    def serves(self, topic_filter: str) -> bool:
        """Whether clients can subscribe to a filter."""
        return self.trees is None or ScribeEngine.serves(topic_filter)

    def add(self, point: Id | None = None) -> PubSubNode:
        number = next(self._numbers)
        if point is None:
            point = Id(self.random.getrandbits(ID_BITS))
        boot = number if point in self.nodes else 0
        peer = Peer(point, f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 4883, boot)
        node = self.nodes[point] = self.node_for(number, peer)
        self.checks.started(node.ring)
        return node

    def all_nodes(self) -> list[PubSubNode]:
        return [node for node in self.nodes.values() if isinstance(node, PubSubNode)]

    def peers(self) -> list[PubSubNode]:
        """Those whose clients can do anything now."""
        return [node for node in self.all_nodes() if node.alive and not node.paused]

    def subscribe(self, node: PubSubNode, topic_filter: str) -> None:
        self._at(node)
        subscription = node.clients.subscribing(topic_filter, self.now)

        def done() -> None:
            node.clients.subscribed(subscription, self.now)
            if subscription.removed_at is None:
                self.on_suback(node, topic_filter)

        node.core.subscribe(topic_filter, done)
        self._after(node)

    def unsubscribe(self, node: PubSubNode, topic_filter: str) -> None:
        self._at(node)
        node.clients.unsubscribed(topic_filter, self.now)
        node.core.unsubscribe(topic_filter)
        self._after(node)

    def publish(self, node: PubSubNode, topic: str, qos: int, retain: bool = False) -> Sent:
        self._at(node)
        sent = self.told.publishing(node.peer, topic, qos, retain, self.now)
        matched = node.clients.published_here(sent)
        sent.seq = node.core.publish(
            topic, sent.body, qos, matched, retain, done=lambda reason: self.told.done(sent, reason, self.now)
        )
        self._after(node)
        return sent

    def _at(self, node: PubSubNode) -> None:
        assert node.alive, "the dead do nothing"
        assert not node.paused, "those who are stopped do nothing"
