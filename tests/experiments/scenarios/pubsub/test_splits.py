"""Splits in two or three parts, longer and shorter than the lease of entries, one soon after the other.

What is acknowledged reaches each older subscription of its own part, during the split and after the healing, and all is
acknowledged within seconds of the healing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf
from random import Random

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator.clients import Subscription
from ringmq.experiments.simulator.network import DELAYS_S, Weather
from ringmq.experiments.simulator.pubsub import PubSubWorld
from ringmq.experiments.simulator.pubsub_checks import PublishedMessage
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import LAN as TIMING
from ringmq.peer.engines.partitioned.coordinating.recalls import Recalls
from ringmq.peer.engines.partitioned.messages import Deposed
from ringmq.peer.messaging.config import LAN
from ringmq.peer.replication.copying import Copying

MET_S = 5.0
"""The parts are one ring again within this time ("When the network is cut", docs/deploy.md)."""
SPLITS_S = ((8, 25), (2, 8), (2, 8))
GAPS_S = (2, 7)
PAUSE_S = 0.05
"""Between two messages."""


class Splits:
    """A ring of 4 to 9 peers with 0 to 3 shadows that is split three times while all of them publish."""

    def __init__(self, seed: int) -> None:
        drawn = Random(seed * 7 + 1)
        self._count = drawn.randrange(4, 10)
        self._topics = [f"s/p{first}/{second}" for first in range(self._count) for second in range(3)]
        config = replace(LAN, shadows=drawn.randrange(0, 4))
        self._world = PubSubWorld(seed, TIMING, Weather(delay_s=DELAYS_S["lan"]), config=config, strict=False)
        self._random = Random(seed)
        self._parts: list[tuple[float, float, dict[Id, int]]] = []
        """The beginning and the end of each split, and the part of each peer."""
        self.lost: list[str] = []
        checks = self._world.pubsub_checks
        self._missing: Callable[[PublishedMessage], list[Subscription]] = checks._missing
        checks._missing = self._missing_in_part  # type: ignore[method-assign]
        checks._lost = lambda kind, text, count=1: self.lost.append(f"{kind}: {text}")  # type: ignore[method-assign]

    def run(self) -> None:
        world, random = self._world, self._random
        settled_ring(world, self._count)
        world.run(2.0)
        nodes = world.peers()
        for number, node in enumerate(nodes):
            for name in ("s/#", f"s/+/{number % 3}"):
                world.subscribe(node, name)
            world.run(world.now + PAUSE_S)
        world.run(world.now + 1)
        self._publish_for(1)
        for length_s in SPLITS_S:
            order = nodes[:]
            random.shuffle(order)
            count = random.choice((2, 3))
            part_of = {node.peer.id: number % count for number, node in enumerate(order)}
            began_at = world.now
            self._parts.append((began_at, inf, part_of))
            world.network.split(part_of)
            self._publish_for(random.uniform(*length_s))
            world.network.heal()
            self._parts[-1] = began_at, world.now, part_of
            self._publish_for(random.uniform(*GAPS_S))
        self._publish_for(10)
        world.run(world.now + 60)

    def _publish_for(self, length_s: float) -> None:
        world, random = self._world, self._random
        until = world.now + length_s
        while world.now < until:
            active = [node for node in world.peers() if node.active]
            publisher = random.choice(active or [None])
            if publisher is not None:
                world.publish(publisher, random.choice(self._topics), random.randrange(1, 3), random.random() < 0.1)
            world.run(world.now + PAUSE_S)

    def _missing_in_part(self, sent: PublishedMessage) -> list[Subscription]:
        """The subscriptions that miss a message, but those of another part, until the parts have met again."""

        def apart(one: Peer, other: Peer) -> bool:
            return any(
                part_of[one.id] != part_of[other.id] and began_at <= self._world.now and sent.at < healed_at + MET_S
                for began_at, healed_at, part_of in self._parts
            )

        return [missing for missing in self._missing(sent) if not apart(missing.peer, sent.publisher)]

    def longest_wait_s(self) -> float:
        """From a publication, or from the last healing before its acknowledgement, to that."""
        waits = [0.0]
        for sent in self._world.pubsub_checks.sent:
            done_at = self._world.now if sent.done_at is None else sent.done_at
            healed = [healed_at for began_at, healed_at, _ in self._parts if began_at <= done_at]
            waits.append(done_at - max([sent.at, *healed]))
        return max(waits)


@pytest.mark.parametrize("seed", [144, 145, 152])
def test_a_split_loses_nothing_within_a_part_and_delays_nothing_for_long(seed: int) -> None:
    splits = Splits(seed)
    splits.run()
    assert splits.lost == []
    assert splits.longest_wait_s() < MET_S


def test_without_the_homes_that_are_back_messages_miss_subscribers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recalls, "_see_return", lambda recalls: None)
    splits = Splits(152)
    splits.run()
    assert splits.lost


def test_a_coordinator_that_learns_of_no_higher_epoch_is_refused_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    deposed = Copying.deposed

    def from_shadows(copying: Copying, sender: Peer, message: Deposed) -> None:
        if sender in copying.shadows:
            deposed(copying, sender, message)

    monkeypatch.setattr(Copying, "deposed", from_shadows)
    splits = Splits(102)
    splits.run()
    assert splits.longest_wait_s() > 2 * MET_S
