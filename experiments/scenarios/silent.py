"""One peer falls silent, a coordinator or a shadow, while the others publish with QoS 1: how long a PUBACK takes.

The silent peer has no clients. It comes back after the ring has declared it dead, or before; the seed decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.experiments.simulator.pubsub_checks import PublishedMessage
from ringmq.overlay.core.ids import nearness
from ringmq.overlay.core.timing import PRESETS as TIMINGS
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.messaging.config import PRESETS, PubSubConfig
from ringmq.peer.replication.space import key_of_partition

BOUNDS_S: Final = {"lan": 0.5, "wan": 2.0}
"""No PUBACK may take longer."""
OLD_TOPICS: Final = 40
"""Topics that are in use when the peer falls silent."""
RATE_HZ: Final = 60.0
"""Publications of all peers together."""
SUBSCRIBE_SHARE: Final = 0.1
"""SUBSCRIBEs for each publication: what was granted must get everything from then on."""
NEW_SHARE: Final = 0.3
RETAIN_SHARE: Final = 0.3
LATECOMERS: Final = 0.3
"""Share of the peers that publish nothing before: their first message needs everything."""
LEASES: Final = 2
"""How many leases the publishers use the ring before, so that all is at rest."""
SHORTEST_LEASES: Final = 0.2
LONGEST_LEASES: Final = 3.0
"""Bounds of the silence in leases. The ring declares a peer dead after a little more than one."""
AFTER_S: Final = 10.0
QUIET_S: Final = 75.0


class Silenced(Enum):
    """The peer that falls silent, as seen from a topic in use."""

    COORDINATOR = 0
    SHADOW = 1


@dataclass(slots=True)
class SilentFigures:
    """The outcome of one run."""

    messages: int
    """Publications with QoS 1 from the silence on."""
    longest_s: float
    """The longest wait for a PUBACK among them."""
    slowest: str
    late: int
    """Publications that waited for more than the bound."""
    silences: int
    """Peers that others went on without, counted at each of the others."""
    reigns: int
    """Partitions that changed hands, counted at each new coordinator."""


class SilentScene:
    """One run."""

    def __init__(self, nodes: int, seed: int, timing: str, whom: Silenced) -> None:
        self.config: PubSubConfig = PRESETS[timing]
        self.world = PubSubWorld(
            seed, TIMINGS[timing], Weather(delay_s=DELAYS_S[timing]), config=self.config, strict=False
        )
        settled_ring(self.world, nodes)
        self.random = self.world.random
        self._old = [f"old/{number}/state" for number in range(OLD_TOPICS)]
        self._fresh = 0
        key = key_of_partition(partition_of(self.random.choice(self._old)))
        nearest = sorted(self.world.all_nodes(), key=lambda node: nearness(key, node.peer.id))
        self.victim = nearest[whom.value]
        others = [node for node in self.world.all_nodes() if node is not self.victim]
        late = self.random.sample(others, max(1, int(LATECOMERS * len(others))))
        self._others = others
        self._early = [node for node in others if node not in late] or others
        self.sent: list[PublishedMessage] = []

    def run(self) -> None:
        world, config = self.world, self.config
        world.run(1.0)
        for topic in self._old:
            world.subscribe(self.random.choice(self._others), topic)
            world.publish(self.random.choice(self._early), topic, 1)
        world.subscribe(self.random.choice(self._others), "new/#")
        self._use(LEASES * config.lease_s, self._early)
        self.sent.clear()
        world.pause(self.victim)
        self._use(config.lease_s * self.random.uniform(SHORTEST_LEASES, LONGEST_LEASES), self._others)
        world.resume(self.victim)
        self._use(AFTER_S, self._others)
        world.run(world.now + QUIET_S + config.entry_s)
        # Messages are not lost here, but the ring may have taken a live peer for dead.
        world.pubsub_checks.quiet(lossless=False)

    def _use(self, seconds: float, publishers: list[PubSubNode]) -> None:
        world, random = self.world, self.random
        end = world.now + seconds
        while world.now < end:
            world.run(world.now + random.expovariate(RATE_HZ))
            self.sent.append(world.publish(random.choice(publishers), self._topic(), 1, random.random() < RETAIN_SHARE))
            if random.random() < SUBSCRIBE_SHARE:
                self._subscribe(random.choice(self._others))

    def _topic(self) -> str:
        if self.random.random() >= NEW_SHARE:
            return self.random.choice(self._old)
        self._fresh += 1
        return f"new/{self._fresh}"

    def _subscribe(self, node: PubSubNode) -> None:
        name = self.random.choice(self._old)
        if name not in node.clients.filters:
            self.world.subscribe(node, name)


def silent_peer(
    nodes: int, seed: int, timing: str = "lan", whom: Silenced | None = None, bound_s: float | None = None
) -> SilentFigures:
    """One run; the seed chooses whom, unless it is given.

    Raises InvariantBrokenError if a message after a SUBACK is missed, or any other invariant of `pubsub` is broken.
    """
    scene = SilentScene(nodes, seed, timing, whom or Silenced(seed % len(Silenced)))
    try:
        scene.run()
    except AssertionError as broken:
        broken.add_note(f"seed {seed}")
        raise
    end = scene.world.now
    bound_s = BOUNDS_S[timing] if bound_s is None else bound_s
    waits = [((end if sent.done_at is None else sent.done_at) - sent.at, sent) for sent in scene.sent]
    longest_s, slowest = max(waits, key=lambda wait: wait[0])
    counters = [node.core.counters for node in scene.world.all_nodes()]
    return SilentFigures(
        messages=len(waits),
        longest_s=longest_s,
        slowest=str(slowest),
        late=sum(wait_s > bound_s for wait_s, _ in waits),
        silences=sum(getattr(each, "silent_peers", 0) for each in counters),
        reigns=sum(getattr(each, "reigns", 0) for each in counters),
    )
