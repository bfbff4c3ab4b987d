"""Properties that every dispatching algorithm must have, and the choice of an algorithm by rules."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.dispatching import guided
from ringmq.dispatching.algorithms import ALGORITHMS, Choice, Dispatching, algorithm, choose
from ringmq.dispatching.errors import DispatchingError
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.overlay.core.ids import MASK

Spreading = Callable[..., Any]
peer_ids = st.one_of(st.integers(0, 200), st.integers(MASK - 40, MASK), st.integers(0, MASK))
rings = st.lists(peer_ids, unique=True, max_size=120).map(sorted)
tree_offsets = st.one_of(st.just(0), st.integers(0, MASK))
fanouts = st.one_of(st.integers(1, 8), st.integers(1, 150), st.just(UNBOUNDED))
every = pytest.mark.parametrize("dispatching", ALGORITHMS.values(), ids=ALGORITHMS)


@st.composite
def mortal_rings(draw: st.DrawFn, sends: st.SearchStrategy[int]) -> tuple[list[int], dict[int, int]]:
    """A ring, and for each of its dead or dying peers the number of sends it completes first."""
    ring = draw(rings)
    dead = draw(st.lists(st.sampled_from(ring), unique=True)) if ring else []
    return ring, {peer_id: draw(sends) for peer_id in dead}


@every
@given(peer_ids, rings, fanouts, tree_offsets)
def test_each_subscriber_receives_the_message_once(
    spread: Spreading, dispatching: Dispatching, origin: int, ring: list[int], fanout: int, tree_offset: int
) -> None:
    result = spread(dispatching, origin, ring, fanout, tree_offset)
    others = set(ring) - {origin}
    assert result.received == Counter(others)
    # Peers that did not subscribe pass nothing on.
    assert set(result.sends) <= others | {origin}


@every
@given(peer_ids, rings, fanouts, tree_offsets)
def test_hops_cover_the_list_without_overlap(
    entries: Callable[..., Any], dispatching: Dispatching, origin: int, ring: list[int], fanout: int, tree_offset: int
) -> None:
    subscribers = entries(ring)
    hops = dispatching.first_hops(origin, subscribers, fanout, tree_offset)
    planned = [entry.id for hop in hops for entry in (hop.to, *hop.part)]
    assert sorted(planned) == [peer_id for peer_id in ring if peer_id != origin]
    onward = dispatching.next_hops(subscribers, fanout)
    assert Counter(entry for hop in onward for entry in (hop.to, *hop.part)) == Counter(subscribers)


@every
@given(peer_ids, rings, fanouts, tree_offsets)
def test_equal_arguments_give_equal_hops(
    entries: Callable[..., Any], dispatching: Dispatching, origin: int, ring: list[int], fanout: int, tree_offset: int
) -> None:
    subscribers = entries(ring)
    hops = dispatching.first_hops(origin, subscribers, fanout, tree_offset)
    assert hops == dispatching.first_hops(origin, list(subscribers), fanout, tree_offset)
    assert dispatching.next_hops(subscribers, fanout) == dispatching.next_hops(entries(ring), fanout)


@every
@given(peer_ids, mortal_rings(st.just(0)), fanouts, tree_offsets)
def test_live_subscribers_receive_once_whichever_others_are_dead(
    spread: Spreading,
    dispatching: Dispatching,
    origin: int,
    mortal_ring: tuple[list[int], dict[int, int]],
    fanout: int,
    tree_offset: int,
) -> None:
    ring, dying = mortal_ring
    result = spread(dispatching, origin, ring, fanout, tree_offset, dying)
    assert result.received == Counter(set(ring) - {origin} - set(dying))
    # One send replaces one send: dead peers make no other peer send more or be deeper in the tree.
    healthy = spread(dispatching, origin, ring, fanout, tree_offset)
    assert max(result.sends.values(), default=0) <= max(healthy.sends.values(), default=0)
    assert max(result.depths.values(), default=0) <= max(healthy.depths.values(), default=0)


@every
@given(peer_ids, mortal_rings(st.integers(0, 5)), fanouts, tree_offsets)
def test_peers_that_die_while_sending_cause_duplicates_but_no_loss(
    spread: Spreading,
    dispatching: Dispatching,
    origin: int,
    mortal_ring: tuple[list[int], dict[int, int]],
    fanout: int,
    tree_offset: int,
) -> None:
    ring, dying = mortal_ring
    result = spread(dispatching, origin, ring, fanout, tree_offset, dying)
    assert set(result.received) == set(ring) - {origin} - set(dying)
    assert {peer_id for peer_id, copies in result.received.items() if copies > 1} <= result.doubtful


def test_dropping_a_second_copy_would_lose_subscribers(spread: Spreading) -> None:
    # Peer 1 must reach 2 to 7, and dies between its two sends, to 2 and to 5. The publisher gives the whole part to 2.
    ring = [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17]
    right = spread(guided, 0, ring, 2, dying={1: 1})
    assert set(right.received) == set(ring) - {1}
    assert right.received[2] == 2
    wrong = spread(guided, 0, ring, 2, dying={1: 1}, drop_copies=True)
    assert set(ring) - {1} - set(wrong.received) == {5, 6, 7}


# -- choosing


def test_algorithms_are_found_by_name() -> None:
    assert set(ALGORITHMS) >= {"direct", "guided"}
    assert algorithm("guided") is guided
    with pytest.raises(DispatchingError, match="unknown dispatching 'telepathy', expected one of direct, guided"):
        algorithm("telepathy")


def test_choose_takes_the_first_rule_that_applies() -> None:
    first, second, otherwise = Choice("guided", 5), Choice("scribe"), Choice("direct")
    rules = [("a/", first), ("a/b", second), ("c", second)]

    def chosen(topic: str) -> Choice:
        return choose(rules, topic.startswith, otherwise)

    assert [chosen(topic) for topic in ("a/b", "c", "d")] == [first, second, otherwise]
    assert choose([], bool, otherwise) is otherwise


def test_choice_with_fanout_zero_raises() -> None:
    assert Choice("direct").fanout == UNBOUNDED
    with pytest.raises(DispatchingError, match="at least 1, got 0"):
        Choice("guided", 0)
