"""The median of measured values with an exact confidence interval. Knows nothing of the values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median
from typing import Final

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A median and the interval around it."""

    median: float
    low: float
    high: float
    confidence: float
    """The probability that such an interval contains the true median."""

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f}-{self.high:.3f})"


def estimate(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The narrowest interval between two order statistics with at least this confidence.

    Values below the true median are as frequent as values above it, so their number is binomial whatever the
    distribution: the k-th lowest and the k-th highest of n values enclose the median unless fewer than k values fell
    on one side of it. Fewer than six values cannot reach 95 %: their interval goes from the lowest to the highest.
    """
    ordered = sorted(values)
    outside = next((k for k in range((len(ordered) - 1) // 2, 0, -1) if _coverage(len(ordered), k) >= confidence), 0)
    return Estimate(median(ordered), ordered[outside], ordered[-1 - outside], _coverage(len(ordered), outside))


def _coverage(count: int, outside: int) -> float:
    """The confidence of the interval that leaves out the `outside` lowest and highest of `count` values."""
    outcomes = sum(comb(count, below) for below in range(outside + 1))
    return 1 - 2 * outcomes / float(2**count)
