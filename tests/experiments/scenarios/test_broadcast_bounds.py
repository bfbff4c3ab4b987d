"""The lower bound, compared with its formula and with known values."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.dispatching.errors import DispatchingError
from ringmq.experiments.scenarios.broadcast_bounds import least_depth


@given(st.integers(0, 10**7), st.integers(2, 300))
def test_least_depth_equals_the_formula(count: int, fanout: int) -> None:
    depth = least_depth(count, fanout)
    argument = (count + 1) * (fanout - 1) + 1
    # depth + 1 is the logarithm, rounded up
    assert Fraction(fanout) ** depth < argument <= fanout ** (depth + 1)


@pytest.mark.parametrize(
    ("count", "fanout", "depth"),
    [(0, 1, 0), (5, 1, 5), (0, 9, 0), (1, 9, 1), (9, 9, 1), (10, 9, 2), (10**4, 8, 5), (10**4, 16, 4), (10**4, 64, 3)],
)
def test_least_depth_of_known_trees(count: int, fanout: int, depth: int) -> None:
    assert least_depth(count, fanout) == depth


def test_fanout_below_1_is_an_error() -> None:
    with pytest.raises(DispatchingError, match="at least 1, got 0"):
        least_depth(3, 0)
