"""Peers with roles in the virtual world: deliveries, and equal runs for equal seeds."""

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


def test_message_reaches_the_subscriber_of_another_peer() -> None:
    world, (subscriber, publisher, *_) = ring()
    world.subscribe(subscriber, "a/+")
    world.run(1.0)
    sent = world.publish(publisher, "a/b", 1)
    world.run(2.0)
    assert dict(subscriber.clients.filters["a/+"].got) == {sent.number: 1}
    assert sent.reason is Reason.SUCCESS
    world.unsubscribe(subscriber, "a/+")
    world.run(200.0)
    world.pubsub_checks.quiet(lossless=True)
    assert not any(node.core.replicas.partitions() for node in world.all_nodes())


def test_on_suback_is_called_for_each_suback() -> None:
    world, (subscriber, publisher, *_) = ring()
    acknowledged: list[str] = []

    def race(node: PubSubNode, topic_filter: str) -> None:
        acknowledged.append(topic_filter)
        world.publish(publisher, "a", 0)

    world.on_suback = race
    world.subscribe(subscriber, "a")
    world.run(1.0)
    assert acknowledged == ["a"]
    assert len(subscriber.clients.filters["a"].got) == 1


def test_paused_and_dead_peers_cannot_act() -> None:
    world, (paused, dead, *_) = ring()
    world.pause(paused)
    assert paused not in world.peers()
    assert paused in world.all_nodes()
    with pytest.raises(AssertionError, match="a paused peer"):
        world.publish(paused, "a", 0)
    world.crash(dead)
    with pytest.raises(AssertionError, match="dead"):
        world.subscribe(dead, "a")


def test_the_same_seed_gives_the_same_run() -> None:
    digests = set()
    for _ in range(2):
        world, peers = ring(loss=0.1)
        for node in peers:
            world.subscribe(node, "#")
            world.publish(node, "a", 1)
        world.run(10.0)
        digests.add((world.digest, world.pubsub_checks.delivered))
    assert len(digests) == 1
