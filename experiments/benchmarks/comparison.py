"""Servers compared in one run: they take turns step by step, so that whatever else the machine does falls on all alike.

Owns the order of measurements and what is made of them. The figures are `load`'s, the search is `limit`'s.
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
"""The rate of all publishers that the first search begins with."""
DISTURBED: Final = 0.05
"""Where others had more of the core than this, a measurement is taken again, a bounded number of times."""
LATENCY_SPANS: Final = 3
"""Latency is measured for so many times the usual span: its 99th percentile is seen in one message of a hundred."""

Told = Callable[[str, Figures], None]


class Measured(Protocol):
    """A server under load."""

    def measure(self, rate_hz: float, warm_s: float, span_s: float) -> Figures: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """How long and how often is measured."""

    span_s: float = 2.0
    """Of one measurement. The paper takes a minute; shorter ones, taken in turns, are disturbed alike."""
    warm_s: float = 0.25
    """Before it, at the same rate."""
    repeats: int = 3
    """Searches for the limit, and measurements of the latency: their spread is the error."""
    quick: bool = False
    """Halve the last doubling instead of dividing it into 20."""
    patience: int = 3
    """So many times a measurement that other processes disturbed is taken again."""


@dataclass(slots=True)
class Result:
    """What one server did in one pattern."""

    limits: list[Figures] = field(default_factory=list)
    """At the limit, one of each repetition."""
    lower_bound: bool = False
    """The generator could offer no more: the limit is higher than that."""
    at_half: list[Figures] = field(default_factory=list)
    """At half of the limit of the server that latency is compared with; empty where that is more than it can."""

    def limit_hz(self) -> float:
        """Egress, the median."""
        return median(one.egress_hz for one in self.limits) if self.limits else 0.0

    def percentile_s(self, percent: float) -> float:
        return median(one.percentile_s(percent) for one in self.at_half) if self.at_half else float("nan")


def compare(
    pattern: Pattern, loads: Mapping[str, Measured], method: Method, reference: str, told: Told
) -> dict[str, Result]:
    """Find all limits, then take the latencies at half the limit of `reference`. `told` hears of every measurement."""
    results = {name: Result() for name in loads}
    starts = dict.fromkeys(loads, pattern.all_publishers / START_HZ)
    for _ in range(method.repeats):
        _find_limits(pattern, loads, method, starts, results, told)
    half_hz = results[reference].limit_hz() / pattern.sp_ratio / 2
    able = [name for name in loads if results[name].limit_hz() / pattern.sp_ratio >= half_hz > 0]
    for _ in range(method.repeats):
        for name in able:
            results[name].at_half.append(_latency(loads[name], half_hz, method, told, name))
    return results


def _find_limits(
    pattern: Pattern,
    loads: Mapping[str, Measured],
    method: Method,
    starts: dict[str, float],
    results: dict[str, Result],
    told: Told,
) -> None:
    """One search for each server, in turns."""
    searches: dict[str, Search] = {name: search(starts[name], method.quick) for name in loads}
    intervals = {name: next(one) for name, one in searches.items()}
    best: dict[str, Figures] = {}
    too_much: dict[str, Figures] = {}
    while intervals:
        for name in list(intervals):
            rate_hz = pattern.all_publishers / intervals[name]
            figures = _measured(loads[name], rate_hz, method, told, name)
            if figures.keeps_up and (name not in best or figures.offered_hz > best[name].offered_hz):
                best[name] = figures
            if not figures.keeps_up and (name not in too_much or figures.offered_hz < too_much[name].offered_hz):
                too_much[name] = figures
            try:
                intervals[name] = searches[name].send(figures.keeps_up)
            except StopIteration as end:
                del intervals[name]
                starts[name] = min(4 * float(end.value), starts[name])
    for name, figures in best.items():
        results[name].limits.append(figures)
        results[name].lower_bound |= name in too_much and too_much[name].generator_bound


def _latency(load: Measured, rate_hz: float, method: Method, told: Told, name: str) -> Figures:
    return _measured(load, rate_hz, replace(method, span_s=method.span_s * LATENCY_SPANS), told, name, calm=True)


def _measured(load: Measured, rate_hz: float, method: Method, told: Told, name: str, calm: bool = False) -> Figures:
    """Measure; if others were at work, again. That a server keeps up needs no calm: what it once can, it can."""
    figures = load.measure(rate_hz, method.warm_s, method.span_s)
    told(name, figures)
    for _ in range(method.patience):
        if figures.waited < DISTURBED or (figures.keeps_up and not calm):
            break
        again = load.measure(rate_hz, method.warm_s, method.span_s)
        told(name, again)
        figures = min(figures, again, key=lambda one: (not one.keeps_up, one.waited))
    return figures
