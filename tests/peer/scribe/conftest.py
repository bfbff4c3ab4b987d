"""Peers with Scribe in the virtual world, over real overlay cores, with clients that see what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from experiments.scenarios.building import settled_ring
from experiments.simulator.network import Weather
from experiments.simulator.world import Node, SimulatedRing, World
from mqtt_front.reasons import Reason
from mqtt_front.topics import matches
from overlay.ids import ID_BITS, Id, nearness
from overlay.leafset import HALF
from overlay.messages import Peer
from overlay.timing import LAN
from peer.pubsub.config import PubSubConfig
from peer.pubsub.places import key_of_place
from peer.pubsub.wire import Publication
from peer.scribe.config import TreeConfig
from peer.scribe.core import Scribe
from peer.scribe.tree import Tree
from tests.peer.scribe.alone import Lone


class ScribeRing(SimulatedRing):
    """A ring whose peer has deadlines of its own, and is told what the failure detector hears first."""

    __slots__ = ()
    node: ScribeNode

    def deadline(self) -> float:
        return min(super().deadline(), self.node.core.deadline())

    def tick(self, now: float) -> None:
        super().tick(now)
        core = self.node.core
        core.now = now
        if core.deadline() <= now:
            core.tick()

    def link_lost(self, peer: Peer, now: float, refused: bool) -> None:
        super().link_lost(peer, now, refused)
        self.node.core.now = now
        self.node.core.lost(peer)


class ScribeNode(Node):
    """A peer: the overlay and the clients of its core. `got` has the bodies that came, in order."""

    __slots__ = ("copies", "core", "filters", "got", "kept", "last", "reasons")
    ring: ScribeRing
    world: ScribeWorld

    def __init__(self, world: ScribeWorld, number: int, peer: Peer, half: int) -> None:
        super().__init__(world, number, peer, half)
        self.copies = 0
        """Publications sent, to the root or to children."""
        self.filters: set[str] = set()
        self.got: list[tuple[str, bytes]] = []
        self.kept: dict[str, bytes] = {}
        self.last: dict[tuple[int, int, str, bool], int] = {}
        self.reasons: list[Reason] = []
        self.core = Scribe(self, self, world.config, world.trees)
        self.core.now = world.now
        self.ring = ScribeRing(peer, world.timing, self, half)
        self.ring.node = self

    # The overlay of the core

    @property
    def me(self) -> Peer:
        return self.peer

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.got]

    @property
    def active(self) -> bool:
        return self.ring.active

    def send(self, peer: Peer, payload: bytes) -> bool:
        self.copies += payload[:1] == b"P"
        self.ring.send(peer, payload)
        return True

    def route(self, key: Id, payload: bytes) -> bool:
        return self.ring.route(key, payload, self.world.now)

    def watch(self, key: Id, count: int) -> tuple[Peer, ...]:
        return self.ring.watch(key, count)

    def unwatch(self, key: Id) -> None:
        self.ring.unwatch(key)

    # The application of the ring, and the clients of the core

    def deliver(self, *args: object) -> None:  # type: ignore[override]
        """The ring hands over key, payload and origin; the core a publication."""
        if len(args) == 3:
            self.receive(args[2], args[1])  # type: ignore[arg-type]
            return
        publication = args[0]
        assert isinstance(publication, Publication)
        assert any(matches(name, publication.topic) for name in self.filters), "nobody here asked for it"
        origin, seq = publication.body.split(b" ")[:2]
        line = (int(origin), publication.boot, publication.topic, publication.qos > 0)
        assert int(seq) > self.last.get(line, 0), f"{publication.body!r} came twice or late"
        self.last[line] = int(seq)
        self.got.append((publication.topic, publication.body))

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        self.core.now = self.world.now
        return self.core.forward(key, payload, next_hop)

    def receive(self, sender: Peer, payload: bytes) -> None:
        self.core.now = self.world.now
        self.core.receive(sender, payload)

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self.core.now = self.world.now
        self.core.owners_changed(key, owners)

    def activity_changed(self, active: bool) -> None:
        self.core.now = self.world.now
        self.core.activity_changed(active)

    def retained(self, topic: str, body: bytes) -> None:
        self.kept[topic] = body


class ScribeWorld(World):
    """All that the clients do goes through here."""

    def __init__(
        self, seed: int, config: PubSubConfig, trees: TreeConfig, weather: Weather | None = None, *, strict: bool = True
    ) -> None:
        self.config = config
        self.trees = trees
        self.messages_sent = 0
        super().__init__(seed, LAN, weather, strict=strict)

    def add(self, point: Id | None = None) -> ScribeNode:
        number = next(self._numbers)
        if point is None:
            point = Id(self.random.getrandbits(ID_BITS))
        boot = number if point in self.nodes else 0
        peer = Peer(point, f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", 4883, boot)
        node = self.nodes[point] = ScribeNode(self, number, peer, HALF)
        self.checks.started(node.ring)
        return node

    def peers(self) -> list[ScribeNode]:
        return [node for node in self.nodes.values() if isinstance(node, ScribeNode) and node.alive and not node.paused]

    def subscribe(self, node: ScribeNode, *filters: str) -> list[str]:
        """Fills the list that it returns with those that are in force."""
        done: list[str] = []
        for name in filters:
            node.filters.add(name)
            node.core.now = self.now
            node.core.subscribe(name, lambda name=name: done.append(name))  # type: ignore[misc]
            self._after(node)
        return done

    def unsubscribe(self, node: ScribeNode, *filters: str) -> None:
        for name in filters:
            node.filters.remove(name)
            node.core.now = self.now
            node.core.unsubscribe(name)
            self._after(node)

    def publish(
        self, node: ScribeNode, topic: str, qos: int = 1, *, retain: bool = False, clears: bool = False
    ) -> bytes:
        """Returns the body, which names the message."""
        self.messages_sent += 1
        body = f"{node.number} {self.messages_sent} {topic}".encode()
        node.core.now = self.now
        node.core.publish(topic, body, qos, retain=retain, clears=clears, done=node.reasons.append)
        self._after(node)
        return body

    def pass_time(self, span_s: float) -> None:
        self.run(self.now + span_s)

    # What tests ask

    def root_of(self, place: str) -> ScribeNode:
        key = key_of_place(place)
        return min(self.peers(), key=lambda node: nearness(key, node.peer.id))

    def trees_of(self, place: str) -> dict[Id, Tree]:
        """The tree of a place as each of its members sees it."""
        found = ((node.peer.id, node.core.trees.get(place)) for node in self.peers())
        return {point: tree for point, tree in found if tree is not None}

    def forwarders(self, place: str) -> list[ScribeNode]:
        """Members of a tree that are not subscribers, the root left out."""
        found, root = self.trees_of(place), self.root_of(place)
        return [one for one in self.peers() if one is not root and one.peer.id in found and not found[one.peer.id].own]

    def is_whole(self, place: str) -> bool:
        """Whether the subscribers and their parents form one tree below the true root."""
        members = self.trees_of(place)
        subscribers = [node.peer.id for node in self.peers() if place in node.filters]
        root = self.root_of(place).peer.id
        if not subscribers:
            return not members
        if root not in members or not set(subscribers) <= set(members):
            return False
        for point, tree in members.items():
            if tree.root is not (point == root) or not tree.attached:
                return False
            if tree.parent is None:
                continue
            above = members.get(tree.parent.id)
            if above is None or point not in above.children or tree.path != (*above.path, tree.parent.id):
                return False
        return True

    def empty(self) -> bool:
        """Whether nobody remembers anything of any tree."""
        cores = [node.core for node in self.peers()]
        return not any(
            len(core.trees) or len(core.roots) or len(core.carrier) or len(core.spread) or core.publisher.waiting
            for core in cores
        )


Ringed = Callable[..., ScribeWorld]


@pytest.fixture
def scribe_ring() -> Ringed:
    """A ring of so many peers that know each other."""

    def make(nodes: int, seed: int = 1, weather: Weather | None = None, **trees: float) -> ScribeWorld:
        world = ScribeWorld(seed, PubSubConfig(), TreeConfig(**trees), weather)  # type: ignore[arg-type]
        settled_ring(world, nodes)
        return world

    return make


@pytest.fixture
def lone() -> Lone:
    return Lone()
