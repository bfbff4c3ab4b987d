"""All parts together: what goes in and out, the time, and the shape of whole trees."""

from __future__ import annotations

from math import inf
from statistics import mean

import pytest

from ringmq.peer.engines.partitioned.messages import Where
from ringmq.peer.engines.scribe.codec import encode_tree
from ringmq.peer.engines.scribe.messages import Gone, RootFetch
from ringmq.peer.messaging.publication import encode_control
from tests.peer.engines.scribe.alone import Lone, peer_at
from tests.peer.engines.scribe.conftest import Ringed


@pytest.mark.parametrize("payload", [b"", b"Z", b"S\xff", b"C\xff", b"P", encode_control(Where(7, peer_at(1)))])
def test_garbage_is_counted(lone: Lone, payload: bytes) -> None:
    lone.core.receive(peer_at(1), payload)
    assert lone.core.counters.unreadable == 1


def test_a_routed_payload_of_another_kind_counts_for_nothing(lone: Lone) -> None:
    for payload in (encode_tree(Gone(("a",))), b"S\xff", encode_control(Where(7, peer_at(1)))):
        lone.core.deliver(peer_at(1, 1 << 40), payload)
    assert lone.core.counters.unreadable == 3
    lone.core.deliver(peer_at(1), encode_tree(RootFetch("a")))
    assert lone.core.counters.unreadable == 3


def test_it_starts_once(lone: Lone) -> None:
    planned = len(lone.core._state.timers)
    lone.core.activity_changed(False)
    lone.core.activity_changed(True)
    assert len(lone.core._state.timers) == planned
    assert 0.0 < lone.core.deadline() < inf


def test_a_ring_of_one(scribe_ring: Ringed) -> None:
    world = scribe_ring(1)
    node = world.peers()[0]
    done = world.subscribe(node, "a", "#")
    world.pass_time(0.5)
    assert done == ["a", "#"]
    world.publish(node, "a")
    world.pass_time(0.5)
    assert len(node.reasons) == 1
    assert node.got == [], "its own clients have it already"


@pytest.mark.parametrize(("nodes", "subscribers", "deepest"), [(100, 100, 3), (300, 300, 4), (300, 30, 4)])
def test_the_shape_of_a_tree(scribe_ring: Ringed, nodes: int, subscribers: int, deepest: int) -> None:
    """One copy to each member of the tree; those that are not subscribers make it dearer; a few do all the sending."""
    world = scribe_ring(nodes, 1)
    world.pass_time(0.2)
    some = world.random.sample(world.peers(), subscribers)
    for node in some:
        world.subscribe(node, "t")
    world.pass_time(2.0)
    assert world.is_whole("t")
    publisher = world.peers()[0]
    world.publish(publisher, "t", 0)
    world.pass_time(1.0)
    for node in world.peers():
        node.copies = 0
    world.publish(publisher, "t", 0)
    world.pass_time(1.0)
    members, forwarders = world.trees_of("t"), world.forwarders("t")
    assert sum(node.copies for node in world.peers()) == len(members) - 1 + (publisher is not world.root_of("t"))
    depths = [tree.depth for tree in members.values() if tree.own]
    assert 1.0 < mean(depths) <= max(depths) <= deepest
    assert bool(forwarders) is (subscribers < nodes)
    assert max(node.copies for node in world.peers()) < 100, "the root's leaf set and its table"
    assert sum(node.copies > 0 for node in world.peers()) < nodes / 3


def test_the_same_seed_gives_the_same_trace(scribe_ring: Ringed) -> None:
    def digest() -> int:
        world = scribe_ring(20, 9)
        for node in world.peers():
            world.subscribe(node, "t")
        world.pass_time(1.0)
        world.publish(world.peers()[0], "t")
        world.pass_time(1.0)
        return world.digest

    assert digest() == digest()
