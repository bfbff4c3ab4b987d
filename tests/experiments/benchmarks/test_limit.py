"""The search for the limit, with servers that keep up from some interval on."""

from __future__ import annotations

import math

import pytest

from ringmq.experiments.benchmarks.limit import keeps_up, search


def found(start_s: float, limit_s: float, quick: bool) -> tuple[float, list[float]]:
    """The result of a search for a server that keeps up with `limit_s` and longer, and the measured intervals."""
    steps = search(start_s, quick)
    measured = [next(steps)]
    while True:
        try:
            measured.append(steps.send(measured[-1] >= limit_s))
        except StopIteration as end:
            return float(end.value), measured


@pytest.mark.parametrize(
    ("ingress_hz", "egress_hz", "sp_ratio", "holds"),
    [(100, 1000, 10, True), (100, 990, 10, True), (100, 989, 10, False), (100, 100, 1, True), (0, 0, 1, False)],
)
def test_keeps_up_follows_definition_1(ingress_hz: float, egress_hz: float, sp_ratio: int, holds: bool) -> None:
    assert keeps_up(ingress_hz, egress_hz, sp_ratio) is holds


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("limit_s", [0.001, 0.00123, 0.0019, 0.004, 0.17, 3.0])
@pytest.mark.parametrize("start_s", [0.001, 0.01, 1.0])
def test_limit_has_an_error_of_at_most_5_percent(start_s: float, limit_s: float, quick: bool) -> None:
    interval_s, _ = found(start_s, limit_s, quick)
    assert limit_s <= interval_s <= limit_s * 1.05 * (1 + 1e-9)


def test_last_doubling_is_divided_into_20() -> None:
    interval_s, measured = found(0.008, 0.0029, quick=False)
    assert measured[:3] == [0.008, 0.004, 0.002]
    assert measured[3:] == pytest.approx([0.004 - number * 0.0001 for number in range(1, 20)])
    assert interval_s == pytest.approx(0.0029)


def test_quick_search_bisects_the_last_doubling() -> None:
    _, measured = found(0.008, 0.0029, quick=True)
    assert len(measured) - 3 <= 5


def test_start_above_the_limit_is_slowed_down() -> None:
    _, measured = found(0.001, 0.0035, quick=True)
    assert measured[:3] == [0.001, 0.002, 0.004]


@pytest.mark.parametrize("quick", [False, True])
def test_server_that_never_keeps_up_has_no_limit(quick: bool) -> None:
    assert found(0.001, math.inf, quick)[0] == math.inf
