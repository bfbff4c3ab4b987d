"""Peers with roles in the virtual world: the same seed gives the same run, and they talk."""

from __future__ import annotations

import pytest

from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.pubsub import PubSubNode, PubSubWorld
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.overlay.core.timing import LAN
from ringmq.peer.messaging.config import LAN as ROLES


def ring(nodes: int = 12, seed: int = 1, loss: float = 0.0) -> tuple[PubSubWorld, list[PubSubNode]]:
    world = PubSubWorld(seed, LAN, Weather(loss=loss), config=ROLES, strict=not loss)
    settled_ring(world, nodes)
    return world, world.peers()


def test_peers_talk() -> None:
    world, (one, two, *_) = ring()
    world.subscribe(one, "a/+")
    world.run(1.0)
    sent = world.publish(two, "a/b", 1)
    world.run(2.0)
    assert dict(one.clients.filters["a/+"].got) == {sent.number: 1}
    assert sent.reason is Reason.SUCCESS
    world.unsubscribe(one, "a/+")
    world.run(200.0)
    world.told.quiet(lossless=True)
    assert not any(len(node.core.replicas) for node in world.all_nodes())


def test_somebody_is_told_of_each_suback() -> None:
    world, (one, two, *_) = ring()
    told: list[str] = []

    def race(node: PubSubNode, topic_filter: str) -> None:
        told.append(topic_filter)
        world.publish(two, "a", 0)

    world.on_suback = race
    world.subscribe(one, "a")
    world.run(1.0)
    assert told == ["a"]
    assert len(one.clients.filters["a"].got) == 1


def test_the_stopped_do_nothing() -> None:
    world, (one, two, *_) = ring()
    world.pause(one)
    assert one not in world.peers()
    assert one in world.all_nodes()
    with pytest.raises(AssertionError, match="stopped"):
        world.publish(one, "a", 0)
    world.crash(two)
    with pytest.raises(AssertionError, match="dead"):
        world.subscribe(two, "a")


def test_the_same_seed_gives_the_same_run() -> None:
    digests = set()
    for _ in range(2):
        world, peers = ring(loss=0.1)
        for node in peers:
            world.subscribe(node, "#")
            world.publish(node, "a", 1)
        world.run(10.0)
        digests.add((world.digest, world.told.delivered))
    assert len(digests) == 1
