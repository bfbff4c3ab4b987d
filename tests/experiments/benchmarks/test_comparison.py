"""The order of measurements and their results, for made-up servers with a limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ringmq.experiments.benchmarks.comparison import Method, Result, compare
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.load.patterns import Pattern

PATTERN = Pattern("pairs", topics=10, publishers=1, subscribers=1, qos=0)
Make = Callable[..., Figures]


class MadeUp:
    """A server with the limit `limit_hz`; `busy` has the numbers of its measurements that other processes disturb."""

    def __init__(self, make: Make, limit_hz: float, busy: tuple[int, ...] = (), **always: Any) -> None:
        self.rates: list[float] = []
        self._make = make
        self._limit_hz = limit_hz
        self._busy = busy
        self._always = always

    def measure(self, rate_hz: float, warm_s: float, span_s: float) -> Figures:
        disturbed = len(self.rates) in self._busy
        self.rates.append(rate_hz)
        taken_hz = min(rate_hz, self._limit_hz / 100 if disturbed else self._limit_hz)
        return self._make(
            offered_hz=rate_hz,
            ingress_hz=taken_hz,
            egress_hz=taken_hz,
            sp_ratio=1,
            server_waited=0.5 if disturbed else 0.0,
            **self._always,
        )


def compared(loads: dict[str, MadeUp], reference: str, **method: Any) -> tuple[dict[str, Result], list[str]]:
    order: list[str] = []
    results = compare(PATTERN, loads, Method(quick=True, **method), reference, lambda name, _: order.append(name))
    return results, order


def test_limits_of_all_servers_are_found(figures: Make) -> None:
    results, _ = compared({"fast": MadeUp(figures, 200_000), "slow": MadeUp(figures, 3000)}, "slow")
    assert results["fast"].limit_hz() == pytest.approx(200_000, rel=0.05)
    assert results["slow"].limit_hz() == pytest.approx(3000, rel=0.05)
    assert [len(result.limits) for result in results.values()] == [3, 3]


def test_servers_take_turns(figures: Make) -> None:
    _, order = compared({"one": MadeUp(figures, 50_000), "other": MadeUp(figures, 50_000)}, "one", repeats=1)
    assert order == ["one", "other"] * (len(order) // 2)


def test_latency_is_measured_at_half_of_the_limit_of_the_reference(figures: Make) -> None:
    loads = {"fast": MadeUp(figures, 80_000), "reference": MadeUp(figures, 20_000), "slow": MadeUp(figures, 2000)}
    results, _ = compared(loads, "reference", repeats=2)
    assert [len(result.at_half) for result in results.values()] == [2, 2, 0]
    assert results["fast"].at_half[0].offered_hz == results["reference"].limit_hz() / 2
    assert results["fast"].percentile_s(99) == 0.1


def test_disturbed_failure_is_measured_again(figures: Make) -> None:
    undisturbed, disturbed = MadeUp(figures, 80_000), MadeUp(figures, 80_000, busy=(0, 2, 3))
    results, _ = compared({"one": undisturbed, "other": disturbed}, "one", repeats=1)
    assert results["other"].limit_hz() == results["one"].limit_hz()
    assert len(disturbed.rates) == len(undisturbed.rates) + 3


def test_number_of_repeated_measurements_is_bounded(figures: Make) -> None:
    load = MadeUp(figures, 0.0, busy=tuple(range(100_000)))
    results, _ = compared({"one": load}, "one", repeats=1, patience=1)
    assert results["one"].limits == []
    assert results["one"].limit_hz() == 0
    assert load.rates[:4] == [10_000, 10_000, 5000, 5000]


def test_limit_of_the_generator_is_a_lower_bound(figures: Make) -> None:
    results, _ = compared({"one": MadeUp(figures, 80_000, generator_cpu=1.0)}, "one", repeats=1)
    assert results["one"].lower_bound
