"""Peers with Scribe in the virtual world, over real overlay cores, with clients that see what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.ids import Id, nearness
from ringmq.overlay.core.leaf_set import HALF
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import LAN
from ringmq.peer.engines.scribe.config import TreeConfig
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.engines.scribe.places import key_of_place
from ringmq.peer.engines.scribe.tree import Tree
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.fast_path import PUBLICATION
from ringmq.peer.messaging.publication import Publication
from tests.peer.engines.scribe.alone import Lone


class ScribeNode(PubSubNode):
    """A peer, and the clients of its core. `got` has the bodies that came, in order."""

    __slots__ = ("copies", "filters", "got", "kept", "last", "reasons")
    world: ScribeWorld

    def __init__(self, world: ScribeWorld, number: int, peer: Peer, half: int) -> None:
        self.copies = 0
        """Publications sent, to the root or to children."""
        self.filters: set[str] = set()
        self.got: list[tuple[str, bytes]] = []
        self.kept: dict[str, bytes] = {}
        self.last: dict[tuple[int, int, str, bool], int] = {}
        self.reasons: list[Reason] = []
        super().__init__(world, number, peer, half)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in self.got]

    def send(self, peer: Peer, payload: bytes) -> bool:
        self.copies += payload.startswith(PUBLICATION)
        return super().send(peer, payload)


class Clients:
    """Those of one peer."""

    def __init__(self, node: ScribeNode) -> None:
        self._node = node

    def deliver(self, publication: Publication) -> int:
        node = self._node
        assert any(matches(name, publication.topic) for name in node.filters), "nobody here asked for it"
        origin, seq = publication.body.split(b" ")[:2]
        line = (int(origin), publication.boot, publication.topic, publication.qos > 0)
        assert int(seq) > node.last.get(line, 0), f"{publication.body!r} came twice or late"
        node.last[line] = int(seq)
        node.got.append((publication.topic, publication.body))
        return 1

    def retained(self, topic: str, body: bytes) -> None:
        self._node.kept[topic] = body


class ScribeWorld(PubSubWorld):
    """All that the clients do goes through here."""

    def __init__(
        self, seed: int, config: PubSubConfig, trees: TreeConfig, weather: Weather | None = None, *, strict: bool = True
    ) -> None:
        self.messages_sent = 0
        super().__init__(seed, LAN, weather, config=config, trees=trees, strict=strict)

    def node_for(self, number: int, peer: Peer) -> ScribeNode:
        return ScribeNode(self, number, peer, HALF)

    def core_for(self, overlay: ScribeNode, clients: object) -> ScribeEngine:
        return ScribeEngine(overlay, Clients(overlay), self.config, self.trees, clock=self)

    def peers(self) -> list[ScribeNode]:
        return [node for node in self.nodes.values() if isinstance(node, ScribeNode) and node.alive and not node.paused]

    def subscribe(self, node: ScribeNode, *filters: str) -> list[str]:
        """Fills the list that it returns with those that are in force."""
        done: list[str] = []
        for name in filters:
            node.filters.add(name)
            node.core.subscribe(name, lambda _, name=name: done.append(name))  # type: ignore[misc]
            self._after(node)
        return done

    def unsubscribe(self, node: ScribeNode, *filters: str) -> None:
        for name in filters:
            node.filters.remove(name)
            node.core.unsubscribe(name)
            self._after(node)

    def publish(
        self, node: ScribeNode, topic: str, qos: int = 1, *, retain: bool = False, clears: bool = False
    ) -> bytes:
        """Returns the body, which names the message."""
        self.messages_sent += 1
        body = f"{node.number} {self.messages_sent} {topic}".encode()
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
