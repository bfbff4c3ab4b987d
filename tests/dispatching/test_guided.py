"""Guided Dispatching: fan-out, depth of the tree, and how tree offsets spread the work."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.dispatching import direct, guided
from ringmq.dispatching.errors import DispatchingError
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.experiments.scenarios.broadcast_bounds import least_depth
from ringmq.overlay.core.ids import ID_BITS, MASK, SPACE, clockwise, key_of

Spreading = Callable[..., Any]
peer_ids = st.one_of(st.integers(0, 300), st.integers(MASK - 40, MASK), st.integers(0, MASK))
rings = st.lists(peer_ids, unique=True, max_size=150).map(sorted)
tree_offsets = st.one_of(st.just(0), st.integers(0, MASK))
fanouts = st.one_of(st.integers(1, 12), st.integers(1, 200))


def check_shape(result: Any, count: int, fanout: int) -> None:
    """No peer sends more than the fan-out, and each level is full before the next begins."""
    assert max(result.sends.values(), default=0) <= fanout
    assert max(result.depths.values(), default=0) == least_depth(count, fanout)
    levels = Counter(result.depths.values())
    assert all(levels[depth] == fanout**depth for depth in levels if depth + 1 in levels)


@given(peer_ids, rings, fanouts, tree_offsets)
def test_no_peer_exceeds_the_fanout_and_the_depth_is_least(
    spread: Spreading, origin: int, ring: list[int], fanout: int, tree_offset: int
) -> None:
    result = spread(guided, origin, ring, fanout, tree_offset)
    check_shape(result, len(set(ring) - {origin}), fanout)


@pytest.mark.parametrize("publisher_subscribes", [True, False])
@pytest.mark.parametrize("fanout", range(1, 9))
def test_small_trees_reach_all_within_the_bounds(spread: Spreading, fanout: int, publisher_subscribes: bool) -> None:
    for count in range(40):
        origin = count // 2
        ring = [peer_id for peer_id in range(count + 1) if publisher_subscribes or peer_id != origin]
        result = spread(guided, origin, ring, fanout)
        assert result.received == Counter(set(ring) - {origin})
        check_shape(result, count, fanout)


@pytest.mark.parametrize(("count", "fanout"), [(10_000, 5), (10_000, 64), (9_999, 10), (1_111, 10)])
def test_large_trees_keep_the_bounds(spread: Spreading, count: int, fanout: int) -> None:
    check_shape(spread(guided, -1, range(count), fanout, key_of("a/b")), count, fanout)


@given(peer_ids, rings, tree_offsets)
def test_unbounded_fanout_sends_as_direct_does(
    entries: Callable[..., Any], origin: int, ring: list[int], tree_offset: int
) -> None:
    subscribers = entries(ring)
    for fanout in (len(ring) + 1, UNBOUNDED):
        ours = guided.first_hops(origin, subscribers, fanout, tree_offset)
        assert sorted(ours) == sorted(direct.first_hops(origin, subscribers, fanout, tree_offset))


def test_tree_of_the_thesis_figure_2_4(spread: Spreading) -> None:
    # Figure 2.4: a ring of 12, the publisher is 1, the fan-out 2. (Where the text there has 2, the figure has 12.)
    result = spread(guided, 1, [3, 5, 6, 9, 11, 12], 2)
    assert result.parents == {3: 1, 12: 1, 5: 3, 6: 3, 11: 12, 9: 12}


def test_runs_lead_both_ways_from_the_publisher(entries: Callable[..., Any]) -> None:
    hops = guided.first_hops(50, entries(range(0, 100, 10)), 3, 0)
    assert [(hop.to.id, [entry.id for entry in hop.part]) for hop in hops] == [
        (60, [70, 80]),
        (90, [0, 10]),
        (40, [30, 20]),
    ]


def half_circles(origin: int, ring: list[int], fanout: int) -> int:
    """The depth if each half of the circle gets half of the sends, as a literal reading of the thesis has it."""
    side = sum(clockwise(origin, peer_id) < SPACE // 2 for peer_id in ring)
    deepest = 0
    for count in (side, len(ring) - side):
        runs = guided.spans(count, fanout // 2)
        longest = max((end - start for start, end in runs), default=0)
        deepest = max(deepest, 1 + least_depth(longest - 1, fanout) if longest else 0)
    return deepest


def test_sides_by_half_circle_would_be_deeper() -> None:
    seeded = random.Random(1)
    lists, count, fanout = 2_000, 100, 10
    depths = Counter(
        half_circles(seeded.getrandbits(ID_BITS), [seeded.getrandbits(ID_BITS) for _ in range(count)], fanout)
        for _ in range(lists)
    )
    least = least_depth(count, fanout)
    assert set(depths) == {least, least + 1}
    assert 0.24 < depths[least + 1] / lists < 0.3


# -- tree offsets


def evenly_spaced_offsets(count: int) -> list[int]:
    """For each index at which a tree of `count` peers can start, an offset that makes it start there."""
    return [-(-index * SPACE // count) for index in range(count)]


@given(peer_ids, st.lists(peer_ids, unique=True, max_size=40).map(sorted), fanouts)
def test_all_tree_offsets_together_give_each_peer_the_same_work(
    spread: Spreading, origin: int, ring: list[int], fanout: int
) -> None:
    others = sorted(set(ring) - {origin})
    sends: Counter[int] = Counter()
    for tree_offset in evenly_spaced_offsets(len(others)):
        sends += spread(guided, origin, ring, fanout, tree_offset).sends
    del sends[origin]
    share = len(others) - min(fanout, len(others))
    assert sends == Counter({peer_id: share for peer_id in others if share})


def test_topics_spread_the_work_over_all_peers(spread: Spreading) -> None:
    ring, fanout, topics = range(1, 31), 5, 1_000
    trees = [spread(guided, 0, ring, fanout, key_of(f"site/{number}")).sends for number in range(topics)]
    # Each tree has few senders; over all trees every peer is a sender.
    assert all(set(tree.values()) == {fanout} and len(tree) == 1 + fanout for tree in trees)
    work = Counter(peer_id for tree in trees for peer_id in tree if peer_id)
    mean = topics * fanout / len(ring)
    assert all(0.75 * mean < work[peer_id] < 1.25 * mean for peer_id in ring)


@given(peer_ids, rings.filter(bool), tree_offsets, peer_ids)
def test_additional_subscriber_moves_the_start_by_at_most_one(
    entries: Callable[..., Any], origin: int, ring: list[int], tree_offset: int, new: int
) -> None:
    def start(of: list[int]) -> int:
        around = sorted(set(of) - {origin}, key=lambda peer_id: clockwise(origin, peer_id))
        return around.index(guided.first_hops(origin, entries(of), 1, tree_offset)[0].to.id) if around else 0

    more = sorted({*ring, new})
    assert 0 <= start(more) - start(ring) <= 1


# -- runs


@given(st.integers(0, 500), st.integers(1, 600))
def test_runs_are_even_and_cover_all_entries(count: int, fanout: int) -> None:
    runs = guided.spans(count, fanout)
    assert [index for start, end in runs for index in range(start, end)] == list(range(count))
    assert len(runs) == min(count, fanout)
    lengths = [end - start for start, end in runs]
    assert lengths == sorted(lengths, reverse=True)
    assert not lengths or lengths[0] - lengths[-1] <= 1


def test_part_may_be_kept_as_bytes() -> None:
    packed, width = b"aabbccddee", 2
    sliced = [
        (packed[start * width : (start + 1) * width], packed[(start + 1) * width : end * width])
        for start, end in guided.spans(len(packed) // width, 2)
    ]
    assert sliced == [(b"aa", b"bbcc"), (b"dd", b"ee")]
    whole = guided.next_hops((b"aa", b"bb", b"cc", b"dd", b"ee"), 2)
    assert [(hop.to, b"".join(hop.part)) for hop in whole] == sliced


def test_empty_lists_give_no_hops(entries: Callable[..., Any]) -> None:
    assert guided.first_hops(7, entries([]), 3, 5) == ()
    assert guided.first_hops(7, entries([7]), 3, 5) == ()
    assert guided.next_hops((), 3) == ()


@pytest.mark.parametrize("fanout", [0, -2])
def test_fanout_below_one_raises(entries: Callable[..., Any], fanout: int) -> None:
    for listed in ([], [1, 2]):
        with pytest.raises(DispatchingError, match="at least 1"):
            guided.first_hops(0, entries(listed), fanout, 0)
        with pytest.raises(DispatchingError, match="at least 1"):
            guided.next_hops(tuple(listed), fanout)
