"""What every algorithm that plans must hold, whichever it is; and how one is chosen."""

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
points = st.one_of(st.integers(0, 200), st.integers(MASK - 40, MASK), st.integers(0, MASK))
rings = st.lists(points, unique=True, max_size=120).map(sorted)
turns = st.one_of(st.just(0), st.integers(0, MASK))
fanouts = st.one_of(st.integers(1, 8), st.integers(1, 150), st.just(UNBOUNDED))
every = pytest.mark.parametrize("dispatching", ALGORITHMS.values(), ids=ALGORITHMS)


@st.composite
def mortal_rings(draw: st.DrawFn, sends: st.SearchStrategy[int]) -> tuple[list[int], dict[int, int]]:
    """A ring, and who in it is dead or dies with the message, after how many sends."""
    ring = draw(rings)
    dead = draw(st.lists(st.sampled_from(ring), unique=True)) if ring else []
    return ring, {point: draw(sends) for point in dead}


@every
@given(points, rings, fanouts, turns)
def test_each_subscriber_receives_once(
    spread: Spreading, dispatching: Dispatching, origin: int, ring: list[int], fanout: int, turn: int
) -> None:
    result = spread(dispatching, origin, ring, fanout, turn)
    others = set(ring) - {origin}
    assert result.received == Counter(others)
    # Nobody passes on who did not subscribe.
    assert set(result.sends) <= others | {origin}


@every
@given(points, rings, fanouts, turns)
def test_hops_divide_the_list(
    entries: Callable[..., Any], dispatching: Dispatching, origin: int, ring: list[int], fanout: int, turn: int
) -> None:
    subscribers = entries(ring)
    hops = dispatching.first_hops(origin, subscribers, fanout, turn)
    planned = [entry.id for hop in hops for entry in (hop.to, *hop.part)]
    assert sorted(planned) == [point for point in ring if point != origin]
    onward = dispatching.next_hops(subscribers, fanout)
    assert Counter(entry for hop in onward for entry in (hop.to, *hop.part)) == Counter(subscribers)


@every
@given(points, rings, fanouts, turns)
def test_the_same_question_has_the_same_answer(
    entries: Callable[..., Any], dispatching: Dispatching, origin: int, ring: list[int], fanout: int, turn: int
) -> None:
    subscribers = entries(ring)
    hops = dispatching.first_hops(origin, subscribers, fanout, turn)
    assert hops == dispatching.first_hops(origin, list(subscribers), fanout, turn)
    assert dispatching.next_hops(subscribers, fanout) == dispatching.next_hops(entries(ring), fanout)


@every
@given(points, mortal_rings(st.just(0)), fanouts, turns)
def test_all_that_live_receive_once_whoever_is_dead(
    spread: Spreading,
    dispatching: Dispatching,
    origin: int,
    mortals: tuple[list[int], dict[int, int]],
    fanout: int,
    turn: int,
) -> None:
    ring, dying = mortals
    result = spread(dispatching, origin, ring, fanout, turn, dying)
    assert result.received == Counter(set(ring) - {origin} - set(dying))
    # One send stands in for one: the dead make nobody send more, nor anybody sit deeper.
    healthy = spread(dispatching, origin, ring, fanout, turn)
    assert max(result.sends.values(), default=0) <= max(healthy.sends.values(), default=0)
    assert max(result.depths.values(), default=0) <= max(healthy.depths.values(), default=0)


@every
@given(points, mortal_rings(st.integers(0, 5)), fanouts, turns)
def test_those_that_died_while_sending_leave_copies_but_no_gaps(
    spread: Spreading,
    dispatching: Dispatching,
    origin: int,
    mortals: tuple[list[int], dict[int, int]],
    fanout: int,
    turn: int,
) -> None:
    ring, dying = mortals
    result = spread(dispatching, origin, ring, fanout, turn, dying)
    assert set(result.received) == set(ring) - {origin} - set(dying)
    assert {point for point, copies in result.received.items() if copies > 1} <= result.doubtful


def test_a_copy_must_be_passed_on(spread: Spreading) -> None:
    # 1 answers for 2 to 7, and dies between its two sends, to 2 and to 5. The publisher then makes 2 answer for all.
    ring = [1, 2, 3, 4, 5, 6, 7, 11, 12, 13, 14, 15, 16, 17]
    right = spread(guided, 0, ring, 2, dying={1: 1})
    assert set(right.received) == set(ring) - {1}
    assert right.received[2] == 2
    wrong = spread(guided, 0, ring, 2, dying={1: 1}, drop_copies=True)
    assert set(ring) - {1} - set(wrong.received) == {5, 6, 7}


# -- choosing


def test_algorithms_have_names() -> None:
    assert set(ALGORITHMS) >= {"direct", "guided"}
    assert algorithm("guided") is guided
    with pytest.raises(DispatchingError, match="no dispatching is called 'telepathy'; there are direct, guided"):
        algorithm("telepathy")


def test_the_first_rule_that_applies_wins() -> None:
    first, second, otherwise = Choice("guided", 5), Choice("scribe"), Choice("direct")
    rules = [("a/", first), ("a/b", second), ("c", second)]

    def chosen(topic: str) -> Choice:
        return choose(rules, topic.startswith, otherwise)

    assert [chosen(topic) for topic in ("a/b", "c", "d")] == [first, second, otherwise]
    assert choose([], bool, otherwise) is otherwise


def test_a_choice_without_sends_is_refused() -> None:
    assert Choice("direct").fanout == UNBOUNDED
    with pytest.raises(DispatchingError, match="at least 1, not 0"):
        Choice("guided", 0)
