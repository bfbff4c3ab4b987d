"""Peers with the roles of publish and subscribe in the virtual world: the cores of real peers, on its clock.

All peers of a world have the same engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ringmq.experiments.simulator.clients import SimulatedClients
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.pubsub_checks import PublishedMessage, PubSubChecks
from ringmq.experiments.simulator.scribe_checks import ScribeChecks
from ringmq.experiments.simulator.world import Node, SimulatedRing, World
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.core.leaf_set import HALF
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import Timing
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.scribe.config import TreeConfig
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.engine import LocalClients, Overlay


class PubSubRing(SimulatedRing):
    """A ring that also serves the deadlines of its peer's roles."""

    __slots__ = ()
    node: PubSubNode

    def deadline(self) -> float:
        return min(super().deadline(), self.node.core.deadline())

    def tick(self, now: float) -> None:
        super().tick(now)
        core = self.node.core
        while core.deadline() <= now:
            core.tick()


class BurstEngine(PartitionedEngine):
    """An engine that also takes many filters in one iteration, as its adapter does for one SUBSCRIBE."""

    def subscribe_all(self, dones: Mapping[str, Done]) -> None:
        def add_all() -> None:
            for topic_filter, done in dones.items():
                self.subscribe(topic_filter, done)

        self._do(add_all)


class PubSubNode(Node):
    """A peer with roles. It is the overlay of its roles and the application of its ring."""

    __slots__ = ("active_since", "clients", "core")
    ring: PubSubRing

    def __init__(self, world: PubSubWorld, number: int, peer: Peer, half: int) -> None:
        super().__init__(world, number, peer, half)
        self.clients = world.clients_for(peer)
        self.core = world.core_for(self, self.clients)
        self.ring = PubSubRing(peer, world.timing, self, half)
        self.ring.node = self
        self.active_since = world.now

    # Overlay of the roles

    @property
    def me(self) -> Peer:
        return self.peer

    @property
    def active(self) -> bool:
        return self.ring.active

    @property
    def leaves(self) -> Sequence[Peer]:
        return self.ring.leaves.peers

    @property
    def sees_all(self) -> bool:
        return not self.ring.leaves.full

    def send(self, peer: Peer, payload: bytes) -> bool:
        self.ring.send(peer, payload)
        return True

    def route(self, key: Id, payload: bytes) -> bool:
        return self.ring.route(key, payload, self.world.now)

    def doubts(self, peer: Peer) -> bool:
        return self.ring.doubts(peer)

    def find_way(self, peer: Peer) -> None:
        self.ring.find_way(peer, self.world.now)

    def owner(self, key: Id) -> Peer | None:
        return self.ring.owner(key)

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        return self.ring.watch(key, count)

    def unwatch(self, key: Id) -> None:
        self.ring.unwatch(key)

    def news(self, key: Id) -> tuple[Peer, ...] | None:
        return self.ring.news(key)

    # Application of the ring

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        self.core.deliver(origin, payload)

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return self.core.forward(key, payload, next_hop)

    def receive(self, sender: Peer, payload: bytes) -> None:
        self.core.receive(sender, payload)

    def unsent(self, payload: bytes) -> None:
        self.core.unsent(payload)

    def link_lost(self, peer: Peer) -> None:
        self.core.link_lost(peer)

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self.core.owners_changed(key, owners)

    def leaves_changed(self) -> None:
        self.core.leaves_changed()

    def activity_changed(self, active: bool) -> None:
        self.active_since = self.world.now
        self.core.activity_changed(active)


class PubSubWorld(World):
    """A world of peers with the roles of publish and subscribe; with `trees`, those of Scribe. Clients act through its
    methods."""

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
        self.pubsub_checks = PubSubChecks(self) if trees is None else ScribeChecks(self)
        self.on_suback: Callable[[PubSubNode, str], None] = lambda node, topic_filter: None
        super().__init__(seed, timing, weather, strict=strict, half=half)

    def node_for(self, number: int, peer: Peer) -> PubSubNode:
        return PubSubNode(self, number, peer, self.half)

    def clients_for(self, peer: Peer) -> SimulatedClients:
        return SimulatedClients(peer, self.pubsub_checks)

    def core_for(self, overlay: Overlay, clients: LocalClients) -> PartitionedEngine | ScribeEngine:
        if self.trees is not None:
            return ScribeEngine(overlay, clients, self.config, self.trees, clock=self)
        return BurstEngine(overlay, clients, self.config, clock=self)

    def serves(self, topic_filter: str) -> bool:
        """Whether clients can subscribe to a filter. Scribe does not serve all of them."""
        return self.trees is None or ScribeEngine.serves(topic_filter)

    def add(self, peer_id: Id | None = None) -> PubSubNode:
        number = next(self._numbers)
        if peer_id is None:
            peer_id = Id(self.random.getrandbits(ID_BITS))
        boot = number if peer_id in self.nodes else 0
        peer = Peer(peer_id, f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 4883, boot)
        node = self.nodes[peer_id] = self.node_for(number, peer)
        self.checks.started(node.ring)
        return node

    def pause(self, node: Node) -> None:
        super().pause(node)
        self.pubsub_checks.paused(node.peer)

    def resume(self, node: Node) -> None:
        super().resume(node)
        self.pubsub_checks.paused(node.peer)

    def all_nodes(self) -> list[PubSubNode]:
        return [node for node in self.nodes.values() if isinstance(node, PubSubNode)]

    def peers(self) -> list[PubSubNode]:
        """Live peers that are not paused, whose clients can act."""
        return [node for node in self.all_nodes() if node.alive and not node.paused]

    def subscribe(self, node: PubSubNode, topic_filter: str) -> None:
        self._at(node)
        node.core.subscribe(topic_filter, self._subscription(node, topic_filter))
        self._after(node)

    def subscribe_together(self, node: PubSubNode, topic_filters: Iterable[str]) -> None:
        """Subscribe to different filters with one SUBSCRIBE."""
        self._at(node)
        dones = {name: self._subscription(node, name) for name in topic_filters}
        if isinstance(node.core, BurstEngine):
            node.core.subscribe_all(dones)
        else:
            for name, done in dones.items():
                node.core.subscribe(name, done)
        self._after(node)

    def _subscription(self, node: PubSubNode, topic_filter: str) -> Done:
        """A new subscription of a client. Returns what its engine must call when it is in force."""
        subscription = node.clients.add_subscription(topic_filter, self.now)

        def done(reason: Reason) -> None:
            if reason is not Reason.SUCCESS:
                # The front removes what was refused.
                self.unsubscribe(node, topic_filter)
                return
            node.clients.acknowledge(subscription, self.now)
            if subscription.removed_at is None:
                self.on_suback(node, topic_filter)

        return done

    def unsubscribe(self, node: PubSubNode, topic_filter: str) -> None:
        self._at(node)
        node.clients.remove_subscription(topic_filter, self.now)
        node.core.unsubscribe(topic_filter)
        self._after(node)

    def publish(self, node: PubSubNode, topic: str, qos: int, retain: bool = False) -> PublishedMessage:
        self._at(node)
        checks = self.pubsub_checks
        message = checks.publishing(node.peer, topic, qos, retain, self.now)
        matched = node.clients.publish_locally(message)
        node.core.publish(
            topic, message.body, qos, matched, retain, done=lambda reason: checks.done(message, reason, self.now)
        )
        self._after(node)
        return message

    def _at(self, node: PubSubNode) -> None:
        assert node.alive, "a dead peer cannot act"
        assert not node.paused, "a paused peer cannot act"
