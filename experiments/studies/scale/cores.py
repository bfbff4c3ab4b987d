"""The publications of `multicast` through whole cores of peers on virtual time, to check its results.

Takes too long for more than some thousand peers.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator.copies import CopiesNode, CopiesWorld
from ringmq.experiments.simulator.network import Network, Weather
from ringmq.experiments.studies.scale.multicast import GAP_S, LinkModel, MulticastLoad, NodeTally
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import WAN
from ringmq.overlay.links.emulated_latency import pair_delay_s
from ringmq.overlay.links.frames import HEADER_BYTES
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.engines.scribe.config import WAN as TREES
from ringmq.peer.messaging.config import WAN as ROLES
from ringmq.peer.messaging.fast_path import FAST_HEAD, PUBLICATION

PEER: Final = Peer(Id(0), "10.0.1.99", 4883, 0)
"""A peer with an address of the usual length among simulated peers."""
WARM_UP_S: Final = 1.0


class PairDelays(Network):
    """A perfect network with the delays of real links."""

    __slots__ = ("_links",)

    def __init__(self, weather: Weather, random: Random, links: LinkModel) -> None:
        super().__init__(weather, random)
        self._links = links

    def delay(self, sender: Id, receiver: Id) -> float:
        return pair_delay_s(sender, receiver, self._links.delay_s, self._links.delay_seed)


class CountingNode(CopiesNode):
    """A peer that also counts the copies it receives."""

    __slots__ = ("came", "came_bytes")

    def reset_counts(self) -> None:
        super().reset_counts()
        self.came = self.came_bytes = 0

    def receive(self, sender: Peer, payload: bytes) -> None:
        if payload.startswith(PUBLICATION):
            self.came += 1
            self.came_bytes += len(payload)
        super().receive(sender, payload)


class CountingWorld(CopiesWorld):
    def node_for(self, number: int, peer: Peer) -> CountingNode:
        return CountingNode(self, number, peer, self.half)


def by_cores(nodes: int, seed: int, load: MulticastLoad, links: LinkModel, choice: Choice) -> NodeTally:
    """Publish a load through the cores of `FilledRing(nodes, seed)`.

    Raises InvariantBrokenError if a message does not reach every subscriber.
    """
    weather = Weather(delay_s=links.delay_s, gap_s=GAP_S)
    trees = TREES if choice.name == SCRIBE else None
    config = ROLES if choice.name == SCRIBE else replace(ROLES, dispatch=choice)
    world = CountingWorld(seed, WAN, weather, config=config, trees=trees)
    world.network = PairDelays(weather, Random(seed), links)
    settled_ring(world, nodes)
    world.run(WARM_UP_S)
    members = world.members()
    subscribers = [members[position] for position in load.subscribers]
    # Subscriptions are not measured, so their sends need no gaps.
    world.network.in_turn = False
    for name in load.topics:
        world.subscribe_all(subscribers, name)
    world.network.in_turn = True
    tally = NodeTally(nodes)
    for publisher, topic in load.pairs:
        _publish(world, publisher, load, load.topics[topic], tally)
    return tally


def _publish(world: CountingWorld, publisher: int, load: MulticastLoad, topic: str, tally: NodeTally) -> None:
    """Publish twice and count the second message: for the first, the publisher has to ask for the subscribers."""
    members = world.members()
    body = FAST_HEAD + bytes(load.payload_bytes)
    receivers = len(load.subscribers) - (publisher in load.subscribers)
    world.publish_and_wait(members[publisher], topic, body, receivers)
    began_at = world.now
    world.publish_and_wait(members[publisher], topic, body, receivers)
    if publisher in load.subscribers:
        tally.give(publisher, 0.0)
    for position, node in enumerate(members):
        assert isinstance(node, CountingNode), "node_for makes no others"
        copies = node.copies + node.came
        tally.copies[position] += copies
        tally.bytes[position] += node.copy_bytes + node.came_bytes + HEADER_BYTES * copies
        for at in node.clients.arrived_at:
            tally.give(position, at - began_at)
