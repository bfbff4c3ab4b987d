"""Two versions of this project at one fixed rate: the cost of a delivery in this version, divided by the other's.

Owns the order of measurements and their statistics. A function of the caller starts processes and clients.

Processor time is compared, not throughput at the limit: a search for a limit is only exact to some percent, and finds
lower limits when other processes use the cores. Two processes of one version differ by more than two measurements of
one process, because their addresses and ids differ. So every pair has new processes, and the interval of the result
covers this difference as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from statistics import median
from typing import Final, Protocol

from ringmq.experiments.benchmarks.goals import Verdict
from ringmq.experiments.benchmarks.median_interval import Estimate, estimate
from ringmq.experiments.load.patterns import Pattern
from ringmq.experiments.load.rounds import Slice

THIS: Final = "this"
OTHER: Final = "other"
SEARCH_ROUNDS: Final = 100
SEARCHES: Final = 3
"""Measurements of each side without a pause between rounds. The fastest counts: other processes only slow it down."""
SHARE: Final = 0.5
"""The fixed rate as a share of the lower limit of the two."""
WARM_S: Final = 0.5
"""Time at the start of new processes that is not measured."""
SLICE_S: Final = 0.25
"""The sides take turns this often: other processes that come and go then disturb both in the same measure."""
ORDERS: Final = ((THIS, OTHER, OTHER, THIS), (OTHER, THIS, THIS, OTHER))
"""A steady drift of the machine costs both sides the same in this order."""
LEAST_RATE: Final = 0.9
"""Share of the fixed rate that a side should reach."""
COST_RATIO: Final = 1.02
MEMORY_RATIO: Final = 1.02
"""Goals of this version against the other: smaller differences are below what a comparison resolves."""


class Side(Protocol):
    """New processes of one version with their clients."""

    @property
    def idle_bytes(self) -> float:
        """Resident memory of a peer before it had work, on the average."""

    def slice(self, rounds: int, rate_hz: float) -> Slice: ...


Open = Callable[[int], AbstractContextManager[Mapping[str, Side]]]
"""Starts new processes of both sides for the pair with this number; number 0 is for finding a rate."""
OnSlice = Callable[[str, Slice], None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Length, number and rate of the measurements."""

    span_s: float = 2.0
    """Length of the measurement of each side in each pair."""
    pairs: int = 20
    rate_hz: float | None = None
    """Publications a second; None for a share of the lower limit."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Resources that one side used in one pair."""

    cpu_s_per_million: float
    idle_bytes: float
    rate_hz: float
    """Publications a second that were reached."""
    waited: float

    @classmethod
    def of(cls, idle_bytes: float, slices: Sequence[Slice]) -> Cost:
        seconds = sum(part.seconds for part in slices)
        return cls(
            1e6 * sum(part.cpu_s for part in slices) / sum(part.deliveries for part in slices),
            idle_bytes,
            sum(part.publications for part in slices) / seconds,
            sum(part.waited * part.seconds for part in slices) / seconds,
        )


@dataclass(slots=True)
class Comparison:
    """All pairs of one pattern."""

    rate_hz: float
    pairs: list[dict[str, Cost]] = field(default_factory=list)

    @property
    def cost_ratio(self) -> Estimate:
        """Processor time of a delivery, this / other."""
        return estimate([pair[THIS].cpu_s_per_million / pair[OTHER].cpu_s_per_million for pair in self.pairs])

    @property
    def memory_ratio(self) -> Estimate:
        """Resident memory of an idle peer, this / other."""
        return estimate([pair[THIS].idle_bytes / pair[OTHER].idle_bytes for pair in self.pairs])

    @property
    def waited(self) -> float:
        """The share of the time in which other processes had a core."""
        return median(cost.waited for pair in self.pairs for cost in pair.values())

    @property
    def late(self) -> dict[str, float]:
        """The share of the rate that was reached, for each side that did not keep up."""
        shares = {side: median(cost.rate_hz for cost in self.costs(side)) / self.rate_hz for side in (THIS, OTHER)}
        return {side: share for side, share in shares.items() if share < LEAST_RATE}

    def costs(self, side: str) -> list[Cost]:
        return [pair[side] for pair in self.pairs]


def compare(pattern: Pattern, opened: Open, schedule: Schedule, on_slice: OnSlice, say: Say) -> Comparison:
    """Measure all pairs at one rate. Raises BenchError."""
    with opened(0) as sides:
        # Also with a given rate: the first start compiles the modules of a version, the later ones read bytecode.
        rate_hz = schedule.rate_hz or _rate_hz(sides)
    say(f"{pattern.name}: {rate_hz:,.0f} publications/s, {schedule.pairs} pairs")
    found = Comparison(rate_hz)
    for number in range(schedule.pairs):
        with opened(number + 1) as sides:
            found.pairs.append(
                _pair(sides, ORDERS[number % 2], pattern.all_publishers, rate_hz, schedule.span_s, on_slice)
            )
        ratio = found.pairs[-1][THIS].cpu_s_per_million / found.pairs[-1][OTHER].cpu_s_per_million
        say(f"  pair {number + 1}: processor time this / other {ratio:.3f}")
    return found


def _rate_hz(sides: Mapping[str, Side]) -> float:
    """A share of the lower limit of the sides, with two digits so that it is easily repeated."""
    limits_hz = [max(side.slice(SEARCH_ROUNDS, math.inf).rate_hz for _ in range(SEARCHES)) for side in sides.values()]
    rate_hz = SHARE * min(limits_hz)
    return round(rate_hz, 1 - math.floor(math.log10(rate_hz)))


def _pair(
    sides: Mapping[str, Side], order: Sequence[str], publishers: int, rate_hz: float, span_s: float, on_slice: OnSlice
) -> dict[str, Cost]:
    idle_bytes = {name: side.idle_bytes for name, side in sides.items()}
    for side in sides.values():
        side.slice(_rounds(rate_hz * min(WARM_S, span_s), publishers), rate_hz)
    slices: dict[str, list[Slice]] = {name: [] for name in sides}
    turns = max(1, round(span_s / SLICE_S / 2))
    rounds = _rounds(rate_hz * span_s / turns / 2, publishers)
    for name in [*order] * turns:
        slices[name].append(sides[name].slice(rounds, rate_hz))
        on_slice(name, slices[name][-1])
    return {name: Cost.of(idle_bytes[name], slices[name]) for name in sides}


def _rounds(publications: float, publishers: int) -> int:
    return max(1, round(publications / publishers))


def verdicts(pattern: Pattern, found: Comparison) -> list[Verdict]:
    """Whether this version costs no more than the other."""
    named = {
        "processor time of a delivery": (found.cost_ratio, COST_RATIO),
        "memory of an idle peer": (found.memory_ratio, MEMORY_RATIO),
    }
    return [
        Verdict(f"{pattern.name}: {what}, this / other", ratio.median, goal, False, low=ratio.low, high=ratio.high)
        for what, (ratio, goal) in named.items()
    ]
