"""Guided Dispatching: what nobody exceeds, how deep it goes, and that turning the tree shares the work."""

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
points = st.one_of(st.integers(0, 300), st.integers(MASK - 40, MASK), st.integers(0, MASK))
rings = st.lists(points, unique=True, max_size=150).map(sorted)
turns = st.one_of(st.just(0), st.integers(0, MASK))
fanouts = st.one_of(st.integers(1, 12), st.integers(1, 200))


def check_shape(result: Any, count: int, fanout: int) -> None:
    """Nobody sends more than the fan-out, and each level is full before the next begins."""
    assert max(result.sends.values(), default=0) <= fanout
    assert max(result.depths.values(), default=0) == least_depth(count, fanout)
    levels = Counter(result.depths.values())
    assert all(levels[depth] == fanout**depth for depth in levels if depth + 1 in levels)


@given(points, rings, fanouts, turns)
def test_no_peer_exceeds_the_fanout_and_the_depth_is_the_least(
    spread: Spreading, origin: int, ring: list[int], fanout: int, turn: int
) -> None:
    result = spread(guided, origin, ring, fanout, turn)
    check_shape(result, len(set(ring) - {origin}), fanout)


@pytest.mark.parametrize("among", [True, False])
@pytest.mark.parametrize("fanout", range(1, 9))
def test_every_small_tree(spread: Spreading, fanout: int, among: bool) -> None:
    for count in range(40):
        origin = count // 2
        ring = [point for point in range(count + 1) if among or point != origin]
        result = spread(guided, origin, ring, fanout)
        assert result.received == Counter(set(ring) - {origin})
        check_shape(result, count, fanout)


@pytest.mark.parametrize(("count", "fanout"), [(10_000, 5), (10_000, 64), (9_999, 10), (1_111, 10)])
def test_large_trees(spread: Spreading, count: int, fanout: int) -> None:
    check_shape(spread(guided, -1, range(count), fanout, key_of("a/b")), count, fanout)


@given(points, rings, turns)
def test_without_a_limit_it_is_direct(entries: Callable[..., Any], origin: int, ring: list[int], turn: int) -> None:
    subscribers = entries(ring)
    for fanout in (len(ring) + 1, UNBOUNDED):
        ours = guided.first_hops(origin, subscribers, fanout, turn)
        assert sorted(ours) == sorted(direct.first_hops(origin, subscribers, fanout, turn))


def test_the_example_of_the_thesis(spread: Spreading) -> None:
    # Figure 2.4: a ring of 12, the publisher is 1, the fan-out 2. (Where the text there has 2, the figure has 12.)
    result = spread(guided, 1, [3, 5, 6, 9, 11, 12], 2)
    assert result.parents == {3: 1, 12: 1, 5: 3, 6: 3, 11: 12, 9: 12}


def test_both_ways_round_from_the_publisher(entries: Callable[..., Any]) -> None:
    hops = guided.first_hops(50, entries(range(0, 100, 10)), 3, 0)
    assert [(hop.to.id, [entry.id for entry in hop.part]) for hop in hops] == [
        (60, [70, 80]),
        (90, [0, 10]),
        (40, [30, 20]),
    ]


def half_circles(origin: int, ring: list[int], fanout: int) -> int:
    """The depth if each half of the circle gets half of the sends, whatever it holds: the thesis read literally."""
    side = sum(clockwise(origin, point) < SPACE // 2 for point in ring)
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


# -- turning


def steps(count: int) -> list[int]:
    """For each place where a tree of so many can start, a turn that puts it there."""
    return [-(-place * SPACE // count) for place in range(count)]


@given(points, st.lists(points, unique=True, max_size=40).map(sorted), fanouts)
def test_all_turns_together_give_each_the_same_work(
    spread: Spreading, origin: int, ring: list[int], fanout: int
) -> None:
    others = sorted(set(ring) - {origin})
    sends: Counter[int] = Counter()
    for turn in steps(len(others)):
        sends += spread(guided, origin, ring, fanout, turn).sends
    del sends[origin]
    share = len(others) - min(fanout, len(others))
    assert sends == Counter({point: share for point in others if share})


def test_topics_share_the_work(spread: Spreading) -> None:
    ring, fanout, topics = range(1, 31), 5, 1_000
    trees = [spread(guided, 0, ring, fanout, key_of(f"site/{number}")).sends for number in range(topics)]
    # In one tree few work, in all of them everybody does.
    assert all(set(tree.values()) == {fanout} and len(tree) == 1 + fanout for tree in trees)
    work = Counter(point for tree in trees for point in tree if point)
    mean = topics * fanout / len(ring)
    assert all(0.75 * mean < work[point] < 1.25 * mean for point in ring)


@given(points, rings.filter(bool), turns, points)
def test_one_subscriber_more_moves_the_start_by_one_at_most(
    entries: Callable[..., Any], origin: int, ring: list[int], turn: int, new: int
) -> None:
    def start(of: list[int]) -> int:
        around = sorted(set(of) - {origin}, key=lambda point: clockwise(origin, point))
        return around.index(guided.first_hops(origin, entries(of), 1, turn)[0].to.id) if around else 0

    more = sorted({*ring, new})
    assert 0 <= start(more) - start(ring) <= 1


# -- runs


@given(st.integers(0, 500), st.integers(1, 600))
def test_runs_are_even_and_leave_nothing_out(count: int, fanout: int) -> None:
    runs = guided.spans(count, fanout)
    assert [place for start, end in runs for place in range(start, end)] == list(range(count))
    assert len(runs) == min(count, fanout)
    lengths = [end - start for start, end in runs]
    assert lengths == sorted(lengths, reverse=True)
    assert not lengths or lengths[0] - lengths[-1] <= 1


def test_a_part_may_stay_bytes() -> None:
    packed, width = b"aabbccddee", 2
    sliced = [
        (packed[start * width : (start + 1) * width], packed[(start + 1) * width : end * width])
        for start, end in guided.spans(len(packed) // width, 2)
    ]
    assert sliced == [(b"aa", b"bbcc"), (b"dd", b"ee")]
    whole = guided.next_hops((b"aa", b"bb", b"cc", b"dd", b"ee"), 2)
    assert [(hop.to, b"".join(hop.part)) for hop in whole] == sliced


def test_nobody_is_sent_to_when_nobody_is_there(entries: Callable[..., Any]) -> None:
    assert guided.first_hops(7, entries([]), 3, 5) == ()
    assert guided.first_hops(7, entries([7]), 3, 5) == ()
    assert guided.next_hops((), 3) == ()


@pytest.mark.parametrize("fanout", [0, -2])
def test_a_fanout_that_sends_nothing_is_refused(entries: Callable[..., Any], fanout: int) -> None:
    for listed in ([], [1, 2]):
        with pytest.raises(DispatchingError, match="at least 1"):
            guided.first_hops(0, entries(listed), fanout, 0)
        with pytest.raises(DispatchingError, match="at least 1"):
            guided.next_hops(tuple(listed), fanout)
