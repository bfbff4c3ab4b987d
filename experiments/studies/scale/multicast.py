"""Publications through a ring of any size: sender, receiver, size and arrival of each copy.

Copies are planned (`dispatching`), routed and encoded by the code of the peers, in a settled ring. Only publications
are simulated, without leases, heartbeats and joins. So 100,000 peers need no memory beyond their tables, and no time
between publications. `cores` compares the results with the whole cores of peers.

A send keeps its sender busy for a gap, as in `ringmq simulate spread`, and arrives after the delay of the pair.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ringmq.dispatching.algorithms import Choice, algorithm
from ringmq.dispatching.plan import Hop
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.studies.scale.message_sizes import Wire
from ringmq.overlay.core.ids import Id, key_of
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.routing import next_hop
from ringmq.overlay.links.emulated_latency import pair_delay_s
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.engines.scribe.places import key_of_place
from ringmq.peer.messaging.config import DIRECT

GAP_S: Final = 30e-6
"""Time that a send takes its sender."""


@dataclass(frozen=True, slots=True)
class MulticastLoad:
    """Subscribers and publications, by positions in the order of the ring."""

    subscribers: tuple[int, ...]
    """Ascending positions. Each subscribes to all topics."""
    topics: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    """Positions of publishers with topic numbers. Each pair publishes once: all its messages take the same way."""
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class LinkModel:
    """Delays of the links, and the properties of peers that determine the size of messages."""

    peer: Peer
    """A peer whose address is as long as all others."""
    delay_s: tuple[float, float]
    delay_seed: int
    recorded: bool
    """Whether publications carry a trace."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A subscriber, in the form that the planning takes."""

    id: Id
    position: int


class NodeTally:
    """Copies and bytes of each node, and the deliveries to its clients, by positions."""

    __slots__ = ("bytes", "copies", "given", "latency_s")

    def __init__(self, nodes: int) -> None:
        self.copies = [0] * nodes
        """Copies sent and received, like the bytes."""
        self.bytes = [0] * nodes
        self.given = [0] * nodes
        """Messages delivered to the clients of a node."""
        self.latency_s = [0.0] * nodes
        """Sum of the latencies of these messages."""

    def give(self, position: int, at: float) -> None:
        """Count a delivery to the clients of a node, `at` seconds after its publication."""
        self.given[position] += 1
        self.latency_s[position] += at


class MulticastRun:
    """Publications of one load through one ring, with one way of dispatching."""

    def __init__(self, ring: FilledRing, load: MulticastLoad, links: LinkModel, choice: Choice) -> None:
        self.tally = NodeTally(len(ring))
        self._ring = ring
        self._load = load
        self._links = links
        self._choice = choice
        self._subscribes = set(load.subscribers)
        self._spots = [Spot(ring.ids[position], position) for position in load.subscribers]
        self._trees: dict[int, tuple[int, dict[int, list[int]]]] = {}

    def publish_all(self) -> NodeTally:
        for publisher, topic in self._load.pairs:
            self.publish(publisher, topic)
        return self.tally

    def publish(self, origin: int, topic: int) -> None:
        """Publish one message. The origin's own clients get it at once."""
        if origin in self._subscribes:
            self.tally.give(origin, 0.0)
        links, name = self._links, self._load.topics[topic]
        wire = Wire(links.peer, name, self._load.payload_bytes, self._choice, links.recorded)
        if self._choice.name == SCRIBE:
            self._through_tree(origin, topic, wire)
        else:
            self._by_plan(origin, name, wire)

    def _by_plan(self, origin: int, topic: str, wire: Wire) -> None:
        """Direct and Guided: choose receivers like `peer.engines.partitioned.publishing.publisher`, and relay like
        `peer.messaging.tree_relay`.
        """
        spots, tally, fanout = self._spots, self.tally, self._choice.fanout
        others = len(spots) - (origin in self._subscribes)
        relayed = self._choice.name != DIRECT.name and others > fanout
        planner = algorithm(self._choice.name if relayed else DIRECT.name)
        first = planner.first_hops(self._ring.ids[origin], spots, fanout, key_of(topic))
        waiting: deque[tuple[int, float, Sequence[Hop[Spot]]]] = deque([(origin, 0.0, first)])
        while waiting:
            sender, at, hops = waiting.popleft()
            for to, part in hops:
                at += GAP_S
                size_bytes = wire.relayed(len(part)) if relayed else wire.plain
                arrives_at = self._send(sender, to.position, at, size_bytes)
                tally.give(to.position, arrives_at)
                if part:
                    waiting.append((to.position, arrives_at, planner.next_hops(part, fanout)))

    def _through_tree(self, origin: int, topic: int, wire: Wire) -> None:
        """Scribe: send to the root, then down the whole tree, even to the origin if it is a member of the tree."""
        root, children = self._tree(topic)
        at = 0.0 if origin == root else self._send(origin, root, GAP_S, wire.up)
        waiting = deque([(root, at)])
        while waiting:
            sender, at = waiting.popleft()
            if sender != origin and sender in self._subscribes:
                self.tally.give(sender, at)
            for child in children.get(sender, ()):
                at += GAP_S
                waiting.append((child, self._send(sender, child, at, wire.down)))

    def _tree(self, topic: int) -> tuple[int, dict[int, list[int]]]:
        found = self._trees.get(topic)
        if found is None:
            key = key_of_place(self._load.topics[topic])
            found = self._trees[topic] = tree(self._ring, self._load.subscribers, key)
        return found

    def _send(self, sender: int, receiver: int, at: float, size_bytes: int) -> float:
        """Count a copy. Returns the time of its arrival."""
        tally, ids, links = self.tally, self._ring.ids, self._links
        tally.copies[sender] += 1
        tally.copies[receiver] += 1
        tally.bytes[sender] += size_bytes
        tally.bytes[receiver] += size_bytes
        return at + pair_delay_s(ids[sender], ids[receiver], links.delay_s, links.delay_seed)


def tree(ring: FilledRing, subscribers: Sequence[int], key: Id) -> tuple[int, dict[int, list[int]]]:
    """The root of a key, and the children of each tree member. A subscriber's JOIN travels until it meets the tree."""
    root = ring.position(ring.owner(key))
    children: dict[int, list[int]] = {}
    inside = {root}
    for subscriber in subscribers:
        position = subscriber
        while position not in inside:
            inside.add(position)
            parent = next_hop(*ring.view(position), key)
            assert parent is not None, "only the root is nearest to the key"
            above = ring.position(parent.id)
            children.setdefault(above, []).append(position)
            position = above
    return root, children


def known_ring(ids: Sequence[Id], seed: int) -> FilledRing:
    """A settled ring of the peers with these ids."""
    ring = FilledRing(0, seed)
    ring.ids = sorted(ids)
    return ring
