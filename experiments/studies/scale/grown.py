"""A ring as it comes about by joins: its routing tables have those whom each peer met first, not any that would fit.

Scribe's trees follow the tables, where not everybody is in everybody's leaf set.
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
from ringmq.experiments.studies.scale.multicast import Network
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.timing import LOCAL

GROW_S: Final = 60.0
"""For each batch of peers that join; they take a second."""
LOOK_S: Final = 0.5


class GrownRing(FilledRing):
    """Of peers that have joined one after the other."""

    def __init__(self, world: World) -> None:
        super().__init__(0, world.seed)
        self.points = sorted(world.nodes)
        self._world = world

    def view(self, place: int) -> View:
        ring = self._world.nodes[self.points[place]].ring
        return ring.leaves, ring.table


def grown_ring(points: Sequence[Id], links: Network, seed: int) -> GrownRing:
    """Through the first of them, as many at once as start together in a real ring."""
    weather = Weather(delay_s=links.delay_s)
    world = World(seed, LOCAL, weather)
    world.network = PairDelays(weather, Random(seed), links)
    founder = world.add(points[0])
    world.found(founder)
    for start in range(0, len(points), AT_ONCE):
        for point in points[max(1, start) : start + AT_ONCE]:
            world.join(world.add(point), founder)
        if not world.run(world.now + GROW_S, world.checks.whole, LOOK_S):
            raise AssertionError(f"{len(world.nodes)} peers did not become one ring\n{world.story()}")
    return GrownRing(world)
