"""A ring that was grown by joins: its routing tables have the peers that each peer met first, not random ones.

Scribe's trees follow the routing tables in rings where leaf sets do not contain all peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from ringmq.experiments.simulator.filled import FilledRing, View
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.world import World
from ringmq.experiments.studies.harness.rings import AT_ONCE
from ringmq.experiments.studies.scale.cores import PairDelays
from ringmq.experiments.studies.scale.multicast import LinkModel
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.timing import LOCAL

GROW_S: Final = 60.0
"""Time limit for each batch of joining peers, which takes about a second."""
LOOK_S: Final = 0.5
"""Time between two checks whether the peers are one ring."""


class GrownRing(FilledRing):
    """A ring whose peers joined in batches."""

    def __init__(self, world: World) -> None:
        super().__init__(0, world.seed)
        self.ids = sorted(world.nodes)
        self._world = world

    def view(self, position: int) -> View:
        ring = self._world.nodes[self.ids[position]].ring
        return ring.leaves, ring.table


def grown_ring(ids: Sequence[Id], links: LinkModel, seed: int) -> GrownRing:
    """Let peers join through the first of them, in batches as large as in a real ring."""
    weather = Weather(delay_s=links.delay_s)
    world = World(seed, LOCAL, weather)
    world.network = PairDelays(weather, Random(seed), links)
    founder = world.add(ids[0])
    world.found(founder)
    for start in range(0, len(ids), AT_ONCE):
        for peer_id in ids[max(1, start) : start + AT_ONCE]:
            world.join(world.add(peer_id), founder)
        if not world.run(world.now + GROW_S, world.checks.whole, LOOK_S):
            raise AssertionError(f"{len(world.nodes)} peers did not become one ring\n{world.trace()}")
    return GrownRing(world)
