"""Hops that replace hops to the dead."""

import pytest

from ringmq.dispatching.errors import DispatchingError
from ringmq.dispatching.plan import UNBOUNDED, Hop, bypass, require_fanout


def test_the_first_of_the_part_moves_up() -> None:
    assert bypass(Hop("a", ("b", "c", "d"))) == Hop("b", ("c", "d"))


def test_behind_the_last_is_nobody() -> None:
    assert bypass(Hop("a", ())) is None


@pytest.mark.parametrize("fanout", [0, -1])
def test_a_fanout_that_sends_nothing_is_refused(fanout: int) -> None:
    with pytest.raises(DispatchingError, match=f"at least 1, not {fanout}"):
        require_fanout(fanout)


@pytest.mark.parametrize("fanout", [1, UNBOUNDED])
def test_any_other_is_fine(fanout: int) -> None:
    require_fanout(fanout)
