"""The same publications as `scale_spread`, through whole cores of peers on virtual time: what holds it to the truth.

Takes too long for more than some thousand peers.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator import network as simulated
from ringmq.experiments.simulator.copies import CopiesNode, CopiesWorld
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.studies.scale.multicast import GAP_S, Load, Network, Tally
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
"""Most addresses of simulated peers are as long."""
WARM_UP_S: Final = 1.0


class PairDelays(simulated.Network):
    """A perfect network with the delays of real links."""

    __slots__ = ("_links",)

    def __init__(self, weather: Weather, random: Random, links: Network) -> None:
        super().__init__(weather, random)
        self._links = links

    def delay(self, one: Id, other: Id) -> float:
        return pair_delay_s(one, other, self._links.delay_s, self._links.delay_seed)


class CountingNode(CopiesNode):
    """Counts what comes, too."""

    __slots__ = ("came", "came_bytes")

    def forget(self) -> None:
        super().forget()
        self.came = self.came_bytes = 0

    def receive(self, sender: Peer, payload: bytes) -> None:
        if payload.startswith(PUBLICATION):
            self.came += 1
            self.came_bytes += len(payload)
        super().receive(sender, payload)


class CountingWorld(CopiesWorld):
    def node_for(self, number: int, peer: Peer) -> CountingNode:
        return CountingNode(self, number, peer, self.half)


def by_cores(nodes: int, seed: int, load: Load, links: Network, choice: Choice) -> Tally:
    """Over the ring of `FilledRing(nodes, seed)`. Raises InvariantBrokenError if a message does not reach everybody."""
    weather = Weather(delay_s=links.delay_s, gap_s=GAP_S)
    trees = TREES if choice.name == SCRIBE else None
    config = ROLES if choice.name == SCRIBE else replace(ROLES, dispatch=choice)
    world = CountingWorld(seed, WAN, weather, config=config, trees=trees)
    world.network = PairDelays(weather, Random(seed), links)
    settled_ring(world, nodes)
    world.run(WARM_UP_S)
    members = world.members()
    subscribers = [members[place] for place in load.subscribers]
    world.network.in_turn = False
    for name in load.topics:
        world.subscribe_all(subscribers, name)
    world.network.in_turn = True
    tally = Tally(nodes)
    for publisher, topic in load.pairs:
        _publish(world, publisher, load, load.topics[topic], tally)
    return tally


def _publish(world: CountingWorld, publisher: int, load: Load, topic: str, tally: Tally) -> None:
    """Twice, as the first time its publisher has to find out who subscribes; the second message counts."""
    members = world.members()
    body = FAST_HEAD + bytes(load.payload_bytes)
    receivers = len(load.subscribers) - (publisher in load.subscribers)
    world.bring(members[publisher], topic, body, receivers)
    began_at = world.now
    world.bring(members[publisher], topic, body, receivers)
    if publisher in load.subscribers:
        tally.give(publisher, 0.0)
    for place, node in enumerate(members):
        assert isinstance(node, CountingNode), "all are"
        copies = node.copies + node.came
        tally.copies[place] += copies
        tally.bytes[place] += node.copy_bytes + node.came_bytes + HEADER_BYTES * copies
        for at in node.clients.heard:
            tally.give(place, at - began_at)
