"""Latencies in buckets that grow by a tenth: a percentile taken from them is wrong by at most 5 %.

Bucket `k` holds what took longer than 1 µs · 1.1^(k-1) and no longer than 1 µs · 1.1^k. Bucket 0 holds all up to 1 µs,
also what clocks that differ make negative; bucket 266 all that took longer than some 26 hours. It is written as `k` in
decimal, since members of JSON objects have names.

Percentile `p` of `n` latencies is the value of the first bucket, with the buckets sorted as numbers, that together with
those below it holds at least p · n of them. The value of bucket `k` is the geometric mean of its bounds,
1 µs · 1.1^(k-0.5), or in SQL:

    power(1.1, cast(bucket as int) - 0.5) / 1e6
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

FIRST_S: Final = 1e-6
GROWTH: Final = 1.1
LAST: Final = 266

_UPPER: Final = (*[FIRST_S * GROWTH**bucket for bucket in range(LAST)], math.inf)
_NAMES: Final = tuple([str(bucket) for bucket in range(LAST + 1)])
_NUMBERS: Final = {name: number for number, name in enumerate(_NAMES)}


def bucket_of(seconds: float) -> str:
    """What a latency counts in."""
    return _NAMES[bisect_left(_UPPER, seconds)]


def number_of(bucket: str) -> int:
    """Its place among the others, from the shortest latencies on. Raises ValueError for what is no bucket."""
    number = _NUMBERS.get(bucket)
    if number is None:
        raise ValueError(f"{bucket[:20]!r} is no bucket: they are 0 to {LAST}")
    return number


def bounds_of(bucket: str) -> tuple[float, float]:
    """Above how many seconds, and up to how many. Raises ValueError for what is no bucket."""
    number = number_of(bucket)
    return (_UPPER[number - 1] if number else -math.inf), _UPPER[number]


def value_of(bucket: str) -> float:
    """The seconds that stand for all in this bucket. Raises ValueError for what is no bucket."""
    return FIRST_S * math.pow(GROWTH, number_of(bucket) - 0.5)


def merged(histograms: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """All of them as one: how many are in each bucket."""
    total: Counter[str] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)


def percentile(histogram: Mapping[str, int], share: float) -> float:
    """The latency that this share of all, above 0 and up to 1, does not exceed. Raises ValueError if there are none."""
    buckets = sorted([bucket for bucket, count in histogram.items() if count], key=number_of)
    if not buckets or not 0 < share <= 1:
        raise ValueError(f"there is no percentile {share} of {len(buckets)} buckets")
    below = list(accumulate(histogram[bucket] for bucket in buckets))
    return value_of(buckets[bisect_left(below, share * below[-1])])
