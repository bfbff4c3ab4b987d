"""Whole peers on virtual time enrol client ids while the network loses messages and splits, and peers crash and pause.

When all is quiet, one home at most has each client id, the home with the last claim has it, and no home waits.
"""

from __future__ import annotations

from random import Random

import pytest

from ringmq.experiments.scenarios.building import join_somewhere, settled_ring
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.overlay.core.timing import LAN as TIMING
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.messaging.config import LAN
from tests.peer.engines.partitioned.enrolling.model_fronts import ModelFront, homes_of

CLIENTS = [f"client-{number}" for number in range(6)]
STEPS = 120
QUIET_S = 90.0


class Wandering:
    """Clients that go from peer to peer, in a ring in trouble."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        weather = Weather(delay_s=DELAYS_S["lan"], loss=self.random.choice((0.0, 0.02)))
        self.world = PubSubWorld(seed, TIMING, weather, config=LAN, strict=False)
        settled_ring(self.world, 12)
        self.fronts: dict[PubSubNode, ModelFront] = {}
        self._paused: list[PubSubNode] = []
        self._follow()
        self.world.run(2.0)

    def _follow(self) -> None:
        """Give each new peer a front, and forget those of the dead."""
        for node in self.world.all_nodes():
            if node not in self.fronts and isinstance(node.core, PartitionedEngine):
                self.fronts[node] = ModelFront(node.core, lambda: self.world.now)
            elif not node.alive:
                self.fronts.pop(node, None)

    def connect(self, client_id: str) -> PubSubNode:
        node = self.random.choice([node for node in self.world.peers() if node.active])
        self.fronts[node].connect(client_id, kept=self.random.random() < 0.5)
        self.world._after(node)
        return node

    def step(self) -> None:
        world, random = self.world, self.random
        kind = random.random()
        if kind < 0.7:
            self.connect(random.choice(CLIENTS))
        elif kind < 0.8:
            self._leave()
        elif kind < 0.85 and len(world.peers()) > 8:
            world.crash(random.choice(world.peers()))
            join_somewhere(world, world.add())
        elif kind < 0.9 and not self._paused:
            self._paused.append(random.choice(world.peers()))
            world.pause(self._paused[0])
        elif kind < 0.95:
            nodes = world.all_nodes()
            world.network.split({node.peer.id: random.randrange(2) for node in nodes})
        else:
            world.network.heal()
            self.resume()
        self._follow()
        world.run(world.now + random.choice((0.0, 0.01, 0.1, 1.0, 5.0)))

    def _leave(self) -> None:
        here = [(node, front) for node, front in self.fronts.items() if front.connected and not node.paused]
        if here:
            node, front = self.random.choice(here)
            front.leave(self.random.choice(sorted(front.connected)))
            self.world._after(node)

    def resume(self) -> None:
        while self._paused:
            node = self._paused.pop()
            if node.alive:
                self.world.resume(node)

    def end(self) -> None:
        self.world.network.heal()
        self.resume()
        self.world.run(self.world.now + QUIET_S)
        self._follow()


@pytest.mark.parametrize("seed", range(6))
def test_in_any_trouble_each_client_id_has_one_home_when_all_is_quiet(seed: int) -> None:
    wandering = Wandering(seed)
    for _ in range(STEPS):
        wandering.step()
    wandering.end()
    fronts = list(wandering.fronts.values())
    for client_id in CLIENTS:
        homes = homes_of(fronts, client_id)
        assert len(homes) <= 1, client_id
        assert all(client_id in front.core.enrolments for front in homes)
    assert [front.waiting for front in fronts if front.waiting] == []
    for client_id in CLIENTS:
        node = wandering.connect(client_id)
        wandering.world.run(wandering.world.now + 10.0)
        assert homes_of(fronts, client_id) == [wandering.fronts[node]]
