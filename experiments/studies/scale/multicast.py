"""Publications through a ring of any size: who sends each copy to whom, how long it is, and when it comes.

The way of each copy is that of the peers: their planning (`dispatching`), their routing and their codec, over a ring
that has long settled. Left out is what is no publication: leases, heartbeats, joins. So 100,000 peers take no more
memory than their tables, and no time while nothing is published. `scale_cores` compares with the whole cores of peers.

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
from ringmq.peer.messaging.config import DIRECT
from ringmq.peer.messaging.partitions import key_of_place

GAP_S: Final = 30e-6


@dataclass(frozen=True, slots=True)
class Load:
    """Who subscribes and who publishes what, by places in the order of the ring."""

    subscribers: tuple[int, ...]
    """Rising. Each to all topics."""
    topics: tuple[str, ...]
    pairs: tuple[tuple[int, int], ...]
    """A publisher and the number of a topic; one message each, as all of a pair take the same way."""
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class Network:
    """What the links are like."""

    peer: Peer
    """All addresses are as long as its."""
    delay_s: tuple[float, float]
    delay_seed: int
    recorded: bool
    """Whether publications bear a trace."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A subscriber, for the planning."""

    id: Id
    place: int


class Tally:
    """What each node has sent, received and given to its clients, by places."""

    __slots__ = ("bytes", "copies", "given", "latency_s")

    def __init__(self, nodes: int) -> None:
        self.copies = [0] * nodes
        """In and out; so are the bytes."""
        self.bytes = [0] * nodes
        self.given = [0] * nodes
        self.latency_s = [0.0] * nodes
        """Of all that were given, together."""

    def give(self, place: int, at: float) -> None:
        self.given[place] += 1
        self.latency_s[place] += at


class Spreading:
    """One ring, one load and one way of dispatching."""

    def __init__(self, ring: FilledRing, load: Load, network: Network, choice: Choice) -> None:
        self.tally = Tally(len(ring))
        self._ring = ring
        self._load = load
        self._network = network
        self._choice = choice
        self._subscribes = set(load.subscribers)
        self._spots = [Spot(ring.points[place], place) for place in load.subscribers]
        self._trees: dict[int, tuple[int, dict[int, list[int]]]] = {}

    def publish_all(self) -> Tally:
        for publisher, topic in self._load.pairs:
            self.publish(publisher, topic)
        return self.tally

    def publish(self, origin: int, topic: int) -> None:
        """One message; the origin's own clients have it at once."""
        if origin in self._subscribes:
            self.tally.give(origin, 0.0)
        network, name = self._network, self._load.topics[topic]
        wire = Wire(network.peer, name, self._load.payload_bytes, self._choice, network.recorded)
        if self._choice.name == SCRIBE:
            self._through_tree(origin, topic, wire)
        else:
            self._by_plan(origin, name, wire)

    def _by_plan(self, origin: int, topic: str, wire: Wire) -> None:
        """As `peer.engines.coordinated.publisher` decides, and `peer.engines.coordinated.tree_relay` does."""
        spots, tally, fanout = self._spots, self.tally, self._choice.fanout
        others = len(spots) - (origin in self._subscribes)
        relayed = self._choice.name != DIRECT.name and others > fanout
        planner = algorithm(self._choice.name if relayed else DIRECT.name)
        first = planner.first_hops(self._ring.points[origin], spots, fanout, key_of(topic))
        waiting: deque[tuple[int, float, Sequence[Hop[Spot]]]] = deque([(origin, 0.0, first)])
        while waiting:
            sender, at, hops = waiting.popleft()
            for to, part in hops:
                at += GAP_S
                size_bytes = wire.relayed(len(part)) if relayed else wire.plain
                arrives_at = self._send(sender, to.place, at, size_bytes)
                tally.give(to.place, arrives_at)
                if part:
                    waiting.append((to.place, arrives_at, planner.next_hops(part, fanout)))

    def _through_tree(self, origin: int, topic: int, wire: Wire) -> None:
        """To the root, and down to all of the tree: the origin too, if it is in there, though it knows the message."""
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
        """When it arrives."""
        tally, points, network = self.tally, self._ring.points, self._network
        tally.copies[sender] += 1
        tally.copies[receiver] += 1
        tally.bytes[sender] += size_bytes
        tally.bytes[receiver] += size_bytes
        return at + pair_delay_s(points[sender], points[receiver], network.delay_s, network.delay_seed)


def tree(ring: FilledRing, subscribers: Sequence[int], key: Id) -> tuple[int, dict[int, list[int]]]:
    """The root of a key, and the children of all in its tree: each subscriber's JOIN went until it met the tree."""
    root = ring.place(ring.owner(key))
    children: dict[int, list[int]] = {}
    inside = {root}
    for subscriber in subscribers:
        place = subscriber
        while place not in inside:
            inside.add(place)
            parent = next_hop(*ring.view(place), key)
            assert parent is not None, "only the root is nearest to the key"
            above = ring.place(parent.id)
            children.setdefault(above, []).append(place)
            place = above
    return root, children


def known_ring(points: Sequence[Id], seed: int) -> FilledRing:
    """A settled ring of these peers."""
    ring = FilledRing(0, seed)
    ring.points = sorted(points)
    return ring
