"""Who sends to whom in a simulated ring, and when it comes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.scenarios.broadcast_bounds import least_depth
from ringmq.experiments.simulator.filled import FilledRing
from ringmq.experiments.studies.scale.message_sizes import Wire
from ringmq.experiments.studies.scale.multicast import GAP_S, Load, Network, Spreading, Tally, known_ring, tree
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.links.emulated_latency import pair_delay_s
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.messaging.partitions import key_of_place

PEER = Peer(Id(5), "127.0.0.1", 20_000, 1 << 40)
NETWORK = Network(PEER, (0.001, 0.010), 3, recorded=False)
FLAT = Network(PEER, (1.0, 1.0), 3, recorded=False)


def load(nodes: int, *pairs: tuple[int, int], subscribers: tuple[int, ...] | None = None) -> Load:
    return Load(tuple(range(nodes)) if subscribers is None else subscribers, ("a", "b"), pairs, 100)


def spread(nodes: int, choice: Choice, of: Load, network: Network = NETWORK) -> Tally:
    return Spreading(FilledRing(nodes, 1), of, network, choice).publish_all()


def test_one_sends_to_all() -> None:
    ring, wire = FilledRing(6, 1), Wire(PEER, "a", 100, Choice("direct"), recorded=False)
    tally = spread(6, Choice("direct"), load(6, (2, 0)))
    assert tally.copies == [1, 1, 5, 1, 1, 1]
    assert tally.bytes == [copies * wire.plain for copies in tally.copies]
    assert tally.given == [1] * 6
    for turn, place in enumerate((0, 1, 3, 4, 5), start=1):
        delay_s = pair_delay_s(ring.points[2], ring.points[place], (0.001, 0.010), 3)
        assert tally.latency_s[place] == pytest.approx(delay_s + turn * GAP_S)
    assert tally.latency_s[2] == 0.0, "its own clients have it at once"


def test_who_does_not_subscribe_gets_nothing() -> None:
    tally = spread(6, Choice("direct"), load(6, (2, 0), subscribers=(0, 5)))
    assert (tally.copies, tally.given) == ([1, 0, 2, 0, 0, 1], [1, 0, 0, 0, 0, 1])


@settings(max_examples=40, deadline=None)
@given(nodes=st.integers(2, 90), fanout=st.integers(1, 7), origin=st.integers(0, 89), topic=st.integers(0, 1))
def test_a_tree_reaches_each_once_and_nobody_sends_more_than_the_fanout(
    nodes: int, fanout: int, origin: int, topic: int
) -> None:
    origin %= nodes
    tally = spread(nodes, Choice("guided", fanout), load(nodes, (origin, topic)), FLAT)
    assert tally.given == [1] * nodes
    received = [int(place != origin) for place in range(nodes)]
    sent = [copies - came for copies, came in zip(tally.copies, received, strict=True)]
    assert max(sent) <= fanout
    assert sum(sent) == nodes - 1
    hops = max(int(latency_s) for latency_s in tally.latency_s)
    assert hops == least_depth(nodes - 1, fanout)


def test_a_tree_of_few_is_no_tree() -> None:
    one = load(11, (4, 0), (4, 1), (7, 0))
    direct, guided = (spread(11, choice, one) for choice in (Choice("direct"), Choice("guided", 10)))
    assert (direct.copies, direct.bytes, direct.latency_s) == (guided.copies, guided.bytes, guided.latency_s)
    deeper = spread(11, Choice("guided", 9), one)
    assert max(deeper.copies) < max(direct.copies)
    wire = Wire(PEER, "a", 100, Choice("guided", 9), recorded=False)
    assert sum(deeper.bytes) == 2 * 3 * (wire.relayed(1) + 9 * wire.relayed(0)), "each copy names its part"


def test_in_a_small_ring_the_root_of_scribe_sends_to_all() -> None:
    ring = FilledRing(9, 1)
    root = ring.place(ring.owner(key_of_place("a")))
    origin = (root + 1) % 9
    wire = Wire(PEER, "a", 100, Choice(SCRIBE), recorded=False)
    tally = spread(9, Choice(SCRIBE), load(9, (origin, 0)), FLAT)
    assert tally.copies == [9 if place == root else 2 if place == origin else 1 for place in range(9)]
    assert tally.bytes[root] == wire.up + 8 * wire.down
    assert tally.given == [1] * 9
    assert tally.latency_s[origin] == 0.0, "the copy that comes back is nothing new"
    assert tally.latency_s[root] == pytest.approx(1.0 + GAP_S)
    own = spread(9, Choice(SCRIBE), load(9, (root, 0)), FLAT)
    assert own.copies == [8 if place == root else 1 for place in range(9)]


def test_peers_on_the_way_are_in_a_tree_of_scribe() -> None:
    ring, key = FilledRing(600, 1), key_of_place("a")
    subscribers = tuple(range(0, 600, 20))
    root, children = tree(ring, subscribers, key)
    assert ring.points[root] == ring.owner(key)
    above = {child: parent for parent, its in children.items() for child in its}
    assert len(above) == sum(map(len, children.values())), "nobody has two parents"
    for member in {*subscribers, *above} - {root}:
        place, steps = member, 0
        while place != root:
            place, steps = above[place], steps + 1
            assert steps < 10
    assert {*above} - {*subscribers}, "some only pass it on"
    tally = spread(600, Choice(SCRIBE), load(600, (7, 0), subscribers=subscribers))
    assert [place for place, given in enumerate(tally.given) if given] == list(subscribers)
    assert all(tally.copies[place] for place in above)


def test_messages_add_up() -> None:
    one, other, both = (spread(30, Choice("guided", 3), load(30, *pairs)) for pairs in (
        ((1, 0),), ((8, 1),), ((1, 0), (8, 1)),
    ))  # fmt: skip
    assert both.copies == [a + b for a, b in zip(one.copies, other.copies, strict=True)]
    assert both.latency_s == pytest.approx([a + b for a, b in zip(one.latency_s, other.latency_s, strict=True)])


def test_a_ring_of_known_peers_is_in_order() -> None:
    points = [Id(700), Id(3), Id(1 << 100)]
    ring = known_ring(points, 1)
    assert ring.points == sorted(points)
    assert [ring.place(point) for point in points] == [1, 0, 2]
    assert ring.owner(4) == 3
