"""Direct Dispatching: the publisher alone sends."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ringmq.dispatching import direct
from ringmq.dispatching.plan import Hop

rings = st.lists(st.integers(0, 60), unique=True).map(sorted)


@given(rings, st.integers(0, 60), st.integers(1, 9))
def test_the_publisher_sends_to_each_but_itself(
    entries: Callable[..., Any], ring: list[int], origin: int, fanout: int
) -> None:
    hops = direct.first_hops(origin, entries(ring), fanout, 0)
    assert [hop.to.id for hop in hops] == [point for point in ring if point != origin]
    assert all(hop.part == () for hop in hops)


def test_a_part_is_sent_on_likewise() -> None:
    assert direct.next_hops(("a", "b"), 1) == (Hop("a", ()), Hop("b", ()))
    assert direct.next_hops((), 1) == ()
