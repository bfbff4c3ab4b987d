"""Peers count the copies of a message that they send."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.building import settled_ring
from ringmq.experiments.simulator import copies
from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.copies import CopiesNode, CopiesWorld
from ringmq.experiments.simulator.network import Weather
from ringmq.overlay.core.timing import WAN
from ringmq.peer.engines.scribe.config import WAN as TREES
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.publication import Publication

WEATHER = Weather(delay_s=(0.05, 0.05), gap_s=0.001)


def ring(nodes: int, dispatch: Choice, *, scribe: bool = False) -> tuple[CopiesWorld, list[CopiesNode]]:
    trees = TREES if scribe else None
    world = CopiesWorld(1, WAN, WEATHER, config=PubSubConfig(dispatch=dispatch), trees=trees)
    settled_ring(world, nodes)
    world.run(1.0)
    return world, world.members()


def test_direct_publisher_sends_all_copies() -> None:
    world, nodes = ring(20, Choice("direct"))
    world.subscribe_all(nodes[1:], "a")
    world.publish_and_wait(nodes[0], "a", b"x", 19)
    took_s = world.publish_and_wait(nodes[0], "a", b"x", 19)
    assert took_s == pytest.approx(0.05 + 19 * 0.001)
    assert [node.copies for node in nodes] == [19] + [0] * 19
    assert [node.depth for node in nodes] == [0] + [1] * 19
    assert nodes[0].copy_bytes > 19


def test_depth_counts_the_hops_in_a_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "AT_ONCE", 4)
    world, nodes = ring(16, Choice("guided", 2))
    world.subscribe_all(nodes, "a")
    world.publish_and_wait(nodes[3], "a", b"x", 15)
    world.publish_and_wait(nodes[3], "a", b"x", 15)
    assert sum(node.copies for node in nodes) == 15
    assert max(node.copies for node in nodes) == 2
    assert sorted(node.depth for node in nodes) == [0] + [1] * 2 + [2] * 4 + [3] * 8 + [4]


def test_copies_of_relays_without_subscriber_are_counted() -> None:
    world, nodes = ring(200, Choice("direct"), scribe=True)
    some = nodes[::10]
    world.subscribe_all(some, "a")
    world.publish_and_wait(nodes[5], "a", b"x", len(some))
    world.publish_and_wait(nodes[5], "a", b"x", len(some))
    relays = [node for node in nodes if node.depth and node not in some]
    assert relays
    assert all(node.copies for node in relays)
    assert sum(node.copies for node in nodes) == len(some) + len(relays)
    world.unsubscribe_all(some, "a")
    world.run(world.now + TREES.trust_s)
    world.publish_and_wait(nodes[5], "a", b"x", 0)
    assert not any(node.copies for node in nodes)


def test_wrong_number_of_receivers_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world, nodes = ring(5, Choice("direct"))
    world.subscribe_all(nodes, "a")
    monkeypatch.setattr(copies, "PATIENCE_S", 1.0)
    with pytest.raises(InvariantBrokenError, match="4 times to 4 of 3 peers"):
        world.publish_and_wait(nodes[0], "a", b"x", 3)
    with pytest.raises(InvariantBrokenError, match="took more than 1 s to bring a to 5 peers"):
        world.publish_and_wait(nodes[0], "a", b"x", 5)


def test_duplicate_at_a_peer_and_loss_at_another_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    world, nodes = ring(5, Choice("direct"))
    world.subscribe_all(nodes, "a")
    deaf, twice = nodes[1].clients, nodes[2].clients
    deliver = copies.TimedClients.deliver

    def wrong(clients: copies.TimedClients, publication: Publication) -> None:
        for _ in range({deaf: 0, twice: 2}.get(clients, 1)):
            deliver(clients, publication)

    monkeypatch.setattr(copies.TimedClients, "deliver", wrong)
    with pytest.raises(InvariantBrokenError, match="4 times to 3 of 4 peers"):
        world.publish_and_wait(nodes[0], "a", b"x", 4)
