"""Sender, receiver and arrival of each copy in a simulated ring."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.broadcast_bounds import least_depth
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.studies.scale.message_sizes import Wire
from ringmq.experiments.studies.scale.multicast import (
    GAP_S,
    LinkModel,
    MulticastLoad,
    MulticastRun,
    NodeTally,
    known_ring,
    tree,
)
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.links.emulated_latency import pair_delay_s
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.engines.scribe.places import key_of_place

PEER = Peer(Id(5), "127.0.0.1", 20_000, 1 << 40)
NETWORK = LinkModel(PEER, (0.001, 0.010), 3, recorded=False)
FLAT = LinkModel(PEER, (1.0, 1.0), 3, recorded=False)


def load(nodes: int, *pairs: tuple[int, int], subscribers: tuple[int, ...] | None = None) -> MulticastLoad:
    return MulticastLoad(tuple(range(nodes)) if subscribers is None else subscribers, ("a", "b"), pairs, 100)


def spread(nodes: int, choice: Choice, of: MulticastLoad, network: LinkModel = NETWORK) -> NodeTally:
    return MulticastRun(FilledRing(nodes, 1), of, network, choice).publish_all()


def test_direct_publisher_sends_to_all_subscribers() -> None:
    ring, wire = FilledRing(6, 1), Wire(PEER, "a", 100, Choice("direct"), recorded=False)
    tally = spread(6, Choice("direct"), load(6, (2, 0)))
    assert tally.copies == [1, 1, 5, 1, 1, 1]
    assert tally.bytes == [copies * wire.plain for copies in tally.copies]
    assert tally.given == [1] * 6
    for sends, position in enumerate((0, 1, 3, 4, 5), start=1):
        delay_s = pair_delay_s(ring.ids[2], ring.ids[position], (0.001, 0.010), 3)
        assert tally.latency_s[position] == pytest.approx(delay_s + sends * GAP_S)
    assert tally.latency_s[2] == 0.0, "its own clients get the message at once"


def test_peers_without_subscription_receive_nothing() -> None:
    tally = spread(6, Choice("direct"), load(6, (2, 0), subscribers=(0, 5)))
    assert (tally.copies, tally.given) == ([1, 0, 2, 0, 0, 1], [1, 0, 0, 0, 0, 1])


@settings(max_examples=40, deadline=None)
@given(nodes=st.integers(2, 90), fanout=st.integers(1, 7), origin=st.integers(0, 89), topic=st.integers(0, 1))
def test_tree_reaches_each_peer_once_and_no_peer_sends_more_than_the_fanout(
    nodes: int, fanout: int, origin: int, topic: int
) -> None:
    origin %= nodes
    tally = spread(nodes, Choice("guided", fanout), load(nodes, (origin, topic)), FLAT)
    assert tally.given == [1] * nodes
    received = [int(position != origin) for position in range(nodes)]
    sent = [copies - came for copies, came in zip(tally.copies, received, strict=True)]
    assert max(sent) <= fanout
    assert sum(sent) == nodes - 1
    hops = max(int(latency_s) for latency_s in tally.latency_s)
    assert hops == least_depth(nodes - 1, fanout)


def test_guided_with_at_most_fanout_receivers_is_direct() -> None:
    three = load(11, (4, 0), (4, 1), (7, 0))
    direct, guided = (spread(11, choice, three) for choice in (Choice("direct"), Choice("guided", 10)))
    assert (direct.copies, direct.bytes, direct.latency_s) == (guided.copies, guided.bytes, guided.latency_s)
    deeper = spread(11, Choice("guided", 9), three)
    assert max(deeper.copies) < max(direct.copies)
    wire = Wire(PEER, "a", 100, Choice("guided", 9), recorded=False)
    assert sum(deeper.bytes) == 2 * 3 * (wire.relayed(1) + 9 * wire.relayed(0)), "each copy names its part"


def test_root_of_scribe_sends_to_all_in_a_small_ring() -> None:
    ring = FilledRing(9, 1)
    root = ring.position(ring.owner(key_of_place("a")))
    origin = (root + 1) % 9
    wire = Wire(PEER, "a", 100, Choice(SCRIBE), recorded=False)
    tally = spread(9, Choice(SCRIBE), load(9, (origin, 0)), FLAT)
    assert tally.copies == [9 if position == root else 2 if position == origin else 1 for position in range(9)]
    assert tally.bytes[root] == wire.up + 8 * wire.down
    assert tally.given == [1] * 9
    assert tally.latency_s[origin] == 0.0, "the copy that comes back is a duplicate"
    assert tally.latency_s[root] == pytest.approx(1.0 + GAP_S)
    own = spread(9, Choice(SCRIBE), load(9, (root, 0)), FLAT)
    assert own.copies == [8 if position == root else 1 for position in range(9)]


def test_tree_of_scribe_contains_the_peers_on_the_way_to_the_root() -> None:
    ring, key = FilledRing(600, 1), key_of_place("a")
    subscribers = tuple(range(0, 600, 20))
    root, children = tree(ring, subscribers, key)
    assert ring.ids[root] == ring.owner(key)
    parents = {child: parent for parent, siblings in children.items() for child in siblings}
    assert len(parents) == sum(map(len, children.values())), "no peer has two parents"
    for member in {*subscribers, *parents} - {root}:
        position, steps = member, 0
        while position != root:
            position, steps = parents[position], steps + 1
            assert steps < 10
    assert {*parents} - {*subscribers}, "some members only relay"
    tally = spread(600, Choice(SCRIBE), load(600, (7, 0), subscribers=subscribers))
    assert [position for position, given in enumerate(tally.given) if given] == list(subscribers)
    assert all(tally.copies[position] for position in parents)


def test_counts_of_several_messages_add_up() -> None:
    first, second, both = (spread(30, Choice("guided", 3), load(30, *pairs)) for pairs in (
        ((1, 0),), ((8, 1),), ((1, 0), (8, 1)),
    ))  # fmt: skip
    assert both.copies == [a + b for a, b in zip(first.copies, second.copies, strict=True)]
    assert both.latency_s == pytest.approx([a + b for a, b in zip(first.latency_s, second.latency_s, strict=True)])


def test_known_ring_sorts_its_ids() -> None:
    ids = [Id(700), Id(3), Id(1 << 100)]
    ring = known_ring(ids, 1)
    assert ring.ids == sorted(ids)
    assert [ring.position(peer_id) for peer_id in ids] == [1, 0, 2]
    assert ring.owner(4) == 3
