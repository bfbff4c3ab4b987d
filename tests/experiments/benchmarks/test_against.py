"""The order of a comparison and its result: sides made up of a cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from ringmq.experiments.benchmarks import against
from ringmq.experiments.benchmarks.against import OTHER, THIS, Comparison, Cost, Schedule, compare, verdicts
from ringmq.experiments.load.patterns import Pattern
from ringmq.experiments.load.rounds import Slice

PATTERN = Pattern("pairs", topics=10, publishers=1, subscribers=3, qos=0)


class MadeUp:
    """A version that needs `cost_s` for each delivery and does at most `limit_hz`."""

    def __init__(self, cost_s: float, limit_hz: float = 50_000.0, idle_bytes: float = 40e6) -> None:
        self.idle_bytes = idle_bytes
        self.cost_s = cost_s
        self.limit_hz = limit_hz
        self.slices: list[tuple[int, float]] = []

    def slice(self, rounds: int, rate_hz: float) -> Slice:
        self.slices.append((rounds, rate_hz))
        publications = rounds * PATTERN.all_publishers
        deliveries = publications * PATTERN.sp_ratio
        seconds = publications / min(rate_hz, self.limit_hz)
        return Slice(publications, deliveries, deliveries * self.cost_s, seconds, waited=0.0)


class Bench:
    """Opens made-up sides, and notes the order of what happens to them."""

    def __init__(self, this: MadeUp, other: MadeUp) -> None:
        self.sides = {THIS: this, OTHER: other}
        self.opened: list[int] = []
        self.order: list[str] = []
        self.said: list[str] = []

    @contextmanager
    def open(self, number: int) -> Iterator[Mapping[str, against.Side]]:
        self.opened.append(number)
        yield self.sides

    def run(self, **method: float) -> Comparison:
        return compare(
            PATTERN,
            self.open,
            Schedule(**{"span_s": 1.0, "pairs": 4, **method}),  # type: ignore[arg-type]
            lambda name, _: self.order.append(name),
            self.said.append,
        )


def test_ratio_is_that_of_the_costs() -> None:
    found = Bench(MadeUp(3e-6, idle_bytes=42e6), MadeUp(2e-6)).run(pairs=6)
    assert [cost.cpu_s_per_million for cost in found.costs(OTHER)] == pytest.approx([2.0] * 6)
    ratio = found.cost_ratio
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((1.5, 1.5, 1.5))
    assert found.memory_ratio.median == pytest.approx(1.05)
    assert [verdict.reached for verdict in verdicts(PATTERN, found)] == [False, False]


def test_equal_versions_reach_the_goals() -> None:
    found = Bench(MadeUp(2e-6), MadeUp(2e-6)).run()
    assert [verdict.reached for verdict in verdicts(PATTERN, found)] == [True, True]


def test_sides_take_turns_and_begin_in_turn() -> None:
    bench = Bench(MadeUp(1e-6), MadeUp(1e-6))
    bench.run(pairs=2)
    assert bench.order == [THIS, OTHER, OTHER, THIS] * 2 + [OTHER, THIS, THIS, OTHER] * 2


def test_every_pair_has_new_processes() -> None:
    bench = Bench(MadeUp(1e-6), MadeUp(1e-6))
    bench.run(pairs=3)
    assert bench.opened == [0, 1, 2, 3]


def test_rate_is_half_of_the_lower_limit_with_two_digits() -> None:
    bench = Bench(MadeUp(1e-6, limit_hz=50_000), MadeUp(1e-6, limit_hz=31_234))
    assert bench.run().rate_hz == 16_000
    assert bench.sides[THIS].slices[0] == (against.SEARCH_ROUNDS, math.inf)


def test_given_rate_is_used_without_a_search() -> None:
    bench = Bench(MadeUp(1e-6), MadeUp(1e-6))
    assert bench.run(rate_hz=1234.0).rate_hz == 1234
    assert {rate_hz for side in bench.sides.values() for _, rate_hz in side.slices} == {1234}


def test_both_sides_do_the_same_work() -> None:
    bench = Bench(MadeUp(1e-6), MadeUp(5e-6, limit_hz=900))
    bench.run(rate_hz=1000.0)
    assert bench.sides[THIS].slices == bench.sides[OTHER].slices
    warm, *measured = bench.sides[THIS].slices[:5]
    assert warm == (50, 1000)
    assert measured == [(25, 1000)] * 4


def test_a_side_below_the_rate_is_late() -> None:
    assert Bench(MadeUp(1e-6), MadeUp(1e-6, limit_hz=500)).run(rate_hz=1000.0).late == {OTHER: 0.5}
    assert Bench(MadeUp(1e-6), MadeUp(1e-6)).run(rate_hz=1000.0).late == {}


def test_slices_of_a_side_are_added_up() -> None:
    slices = [Slice(100, 1000, 0.001, 1.0, 0.0), Slice(100, 1000, 0.003, 3.0, 0.4)]
    cost = Cost.of(1.0, slices)
    assert cost.cpu_s_per_million == pytest.approx(2.0)
    assert (cost.rate_hz, cost.waited) == pytest.approx((50, 0.3))
