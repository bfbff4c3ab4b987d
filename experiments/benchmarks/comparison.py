"""Servers compared in one run: they take turns step by step, so that disturbances of the machine affect all equally.

Owns the order of the measurements and their results. The load generator makes the figures, and `limit` the search.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final, Protocol

from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.benchmarks.limit import Search, search
from ringmq.experiments.load.patterns import Pattern

START_HZ: Final = 10_000.0
"""Rate of all publishers together at the start of the first search."""
DISTURBED: Final = 0.05
"""Share of the core used by other processes from which on a measurement is repeated, a bounded number of times."""
LATENCY_SPANS: Final = 3
"""Length of a latency measurement in usual spans: the 99th percentile depends on one message in a hundred."""

OnMeasurement = Callable[[str, Figures], None]


class Measured(Protocol):
    """A server under load."""

    def measure(self, rate_hz: float, warm_s: float, span_s: float) -> Figures: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Length and number of the measurements."""

    span_s: float = 2.0
    """Length of one measurement. The paper measures for a minute; short measurements in turns are disturbed equally."""
    warm_s: float = 0.25
    """Time at the same rate before the measurement."""
    repeats: int = 3
    """Searches for the limit, and measurements of the latency: their spread is the error."""
    quick: bool = False
    """Bisect the last doubling instead of dividing it into 20 parts."""
    patience: int = 3
    """Most repetitions of a measurement that other processes disturbed."""


@dataclass(slots=True)
class Result:
    """Results of one server in one pattern."""

    limits: list[Figures] = field(default_factory=list)
    """Figures at the limit, one for each repetition."""
    lower_bound: bool = False
    """Whether the generator could offer no more, so that the limit is higher."""
    at_half: list[Figures] = field(default_factory=list)
    """Figures at half of the limit of the reference server; empty if this server cannot bear that rate."""

    def limit_hz(self) -> float:
        """Median of the egress at the limit."""
        return median(figures.egress_hz for figures in self.limits) if self.limits else 0.0

    def percentile_s(self, percent: float) -> float:
        return median(figures.percentile_s(percent) for figures in self.at_half) if self.at_half else float("nan")


def compare(
    pattern: Pattern, loads: Mapping[str, Measured], method: Method, reference: str, on_measurement: OnMeasurement
) -> dict[str, Result]:
    """Find all limits, then measure the latencies at half of the limit of `reference`."""
    results = {name: Result() for name in loads}
    starts = dict.fromkeys(loads, pattern.all_publishers / START_HZ)
    for _ in range(method.repeats):
        _find_limits(pattern, loads, method, starts, results, on_measurement)
    half_hz = results[reference].limit_hz() / pattern.sp_ratio / 2
    able = [name for name in loads if results[name].limit_hz() / pattern.sp_ratio >= half_hz > 0]
    for _ in range(method.repeats):
        for name in able:
            results[name].at_half.append(_latency(loads[name], half_hz, method, on_measurement, name))
    return results


def _find_limits(
    pattern: Pattern,
    loads: Mapping[str, Measured],
    method: Method,
    starts: dict[str, float],
    results: dict[str, Result],
    on_measurement: OnMeasurement,
) -> None:
    """Run a search for each server, step by step in turns."""
    searches: dict[str, Search] = {name: search(starts[name], method.quick) for name in loads}
    intervals = {name: next(steps) for name, steps in searches.items()}
    best: dict[str, Figures] = {}
    too_much: dict[str, Figures] = {}
    while intervals:
        for name in list(intervals):
            rate_hz = pattern.all_publishers / intervals[name]
            figures = _measured(loads[name], rate_hz, method, on_measurement, name)
            if figures.keeps_up and (name not in best or figures.offered_hz > best[name].offered_hz):
                best[name] = figures
            if not figures.keeps_up and (name not in too_much or figures.offered_hz < too_much[name].offered_hz):
                too_much[name] = figures
            try:
                intervals[name] = searches[name].send(figures.keeps_up)
            except StopIteration as end:
                del intervals[name]
                # The next search starts at a quarter of the limit, which saves measurements at lower rates.
                starts[name] = min(4 * float(end.value), starts[name])
    for name, figures in best.items():
        results[name].limits.append(figures)
        results[name].lower_bound |= name in too_much and too_much[name].generator_bound


def _latency(load: Measured, rate_hz: float, method: Method, on_measurement: OnMeasurement, name: str) -> Figures:
    return _measured(
        load, rate_hz, replace(method, span_s=method.span_s * LATENCY_SPANS), on_measurement, name, calm=True
    )


def _measured(
    load: Measured, rate_hz: float, method: Method, on_measurement: OnMeasurement, name: str, calm: bool = False
) -> Figures:
    """Measure, and repeat a disturbed measurement, except if the server kept up all the same, unless `calm`."""
    figures = load.measure(rate_hz, method.warm_s, method.span_s)
    on_measurement(name, figures)
    for _ in range(method.patience):
        if figures.waited < DISTURBED or (figures.keeps_up and not calm):
            break
        again = load.measure(rate_hz, method.warm_s, method.span_s)
        on_measurement(name, again)
        figures = min(figures, again, key=lambda candidate: (not candidate.keeps_up, candidate.waited))
    return figures
