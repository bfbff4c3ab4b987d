"""Replacement of hops to dead peers, and the check of a fan-out."""

import pytest

from ringmq.dispatching.errors import DispatchingError
from ringmq.dispatching.plan import UNBOUNDED, Hop, bypass, require_fanout


def test_bypass_moves_the_first_of_the_part_up() -> None:
    assert bypass(Hop("a", ("b", "c", "d"))) == Hop("b", ("c", "d"))


def test_bypass_of_an_empty_part_is_none() -> None:
    assert bypass(Hop("a", ())) is None


@pytest.mark.parametrize("fanout", [0, -1])
def test_fanout_below_one_raises(fanout: int) -> None:
    with pytest.raises(DispatchingError, match=f"at least 1, got {fanout}"):
        require_fanout(fanout)


@pytest.mark.parametrize("fanout", [1, UNBOUNDED])
def test_fanout_of_one_or_more_is_accepted(fanout: int) -> None:
    require_fanout(fanout)
