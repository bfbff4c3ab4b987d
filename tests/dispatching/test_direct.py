"""Direct Dispatching: the publisher alone sends."""

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ringmq.dispatching import direct
from ringmq.dispatching.plan import Hop

rings = st.lists(st.integers(0, 60), unique=True).map(sorted)


@given(rings, st.integers(0, 60), st.integers(1, 9))
def test_publisher_sends_to_every_subscriber_except_itself(
    entries: Callable[..., Any], ring: list[int], origin: int, fanout: int
) -> None:
    hops = direct.first_hops(origin, entries(ring), fanout, 0)
    assert [hop.to.id for hop in hops] == [peer_id for peer_id in ring if peer_id != origin]
    assert all(hop.part == () for hop in hops)


def test_part_is_sent_entry_by_entry() -> None:
    assert direct.next_hops(("a", "b"), 1) == (Hop("a", ()), Hop("b", ()))
    assert direct.next_hops((), 1) == ()
