"""The least time, compared with formulas and published figures."""

from __future__ import annotations

import pytest

from ringmq.dispatching.plan import UNBOUNDED
from ringmq.experiments.scenarios.broadcast_bounds import least_time_s


@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_long_delay_gives_a_star_and_fanout_1_a_chain(count: int) -> None:
    assert least_time_s(count, 1.0, 1e6) == pytest.approx(count + 1e6), "no copy arrives before the last one is sent"
    assert least_time_s(count, 1.0, 5.0, 1) == pytest.approx(6 * count), "each peer sends one copy"


@pytest.mark.parametrize(("count", "rounds"), [(1, 1), (3, 2), (4, 3), (7, 3), (1023, 10)])
def test_peers_with_the_message_double_in_each_gap_without_a_delay(count: int, rounds: int) -> None:
    assert least_time_s(count, 1.0, 0.0) == rounds


@pytest.mark.parametrize("delay", [1, 2, 5])
def test_least_time_without_a_bound_follows_the_generalised_fibonacci_tree(delay: int) -> None:
    """N(t) = N(t - g) + N(t - g - L) peers have the message at time t; here g = 1."""
    have = [1] * (1 + delay)
    while len(have) < 30:
        have.append(have[-1] + have[-1 - delay])
    for count in range(1, 200):
        steps = next(step for step, peers in enumerate(have) if peers > count)
        assert least_time_s(count, 1.0, float(delay)) == steps


def test_sends_without_a_gap_give_a_full_tree() -> None:
    assert least_time_s(5, 0.0, 1.0, 5) == 1.0
    assert least_time_s(6, 0.0, 1.0, 5) == 2.0
    assert least_time_s(31, 0.0, 1.0, 5) == 3.0


@pytest.mark.parametrize(
    ("gap_s", "fanout", "published_ms"),
    [(30e-6, 16, 201), (30e-6, 64, 151), (30e-6, UNBOUNDED, 104), (800e-6, 16, 217), (800e-6, 64, 178)],
)
def test_least_time_to_ten_thousand_peers_equals_published_figures(
    gap_s: float, fanout: int, published_ms: int
) -> None:
    assert round(least_time_s(10_000, gap_s, 0.05, fanout) * 1e3) == published_ms


def test_least_time_to_no_peers_is_0() -> None:
    assert least_time_s(0, 1.0, 1.0) == 0.0
