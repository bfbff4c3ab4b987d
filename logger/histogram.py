"""Latencies in buckets that grow by a tenth: a percentile taken from them is wrong by at most 5 %.

Bucket `k` counts latencies above 1 µs · 1.1^(k-1) and up to 1 µs · 1.1^k. Bucket 0 counts all latencies up to 1 µs,
including negative ones, which clocks that differ cause; bucket 266 counts all latencies above about 26 hours. A bucket
is written as `k` in decimal, since members of JSON objects have names.

Percentile `p` of `n` latencies: sort the buckets as numbers, and add up their counts until the sum is at least p · n.
The last bucket added has the percentile as its value. The value of bucket `k` is the geometric mean of its bounds,
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
    """The bucket that counts a latency."""
    return _NAMES[bisect_left(_UPPER, seconds)]


def number_of(bucket: str) -> int:
    """The bucket as a number; shorter latencies have lower numbers. Raises ValueError for an invalid bucket."""
    # A lookup instead of `int`, which accepts other spellings of a number as well: "01", " 1", digits of any script.
    number = _NUMBERS.get(bucket)
    if number is None:
        # The bucket may come from a record of somebody else, and be as long as a line.
        raise ValueError(f"the bucket must be 0 to {LAST}, got {bucket[:20]!r}")
    return number


def bounds_of(bucket: str) -> tuple[float, float]:
    """The exclusive lower and the inclusive upper bound, in seconds. Raises ValueError for an invalid bucket."""
    number = number_of(bucket)
    return (_UPPER[number - 1] if number else -math.inf), _UPPER[number]


def value_of(bucket: str) -> float:
    """The value, in seconds, for all latencies in this bucket. Raises ValueError for an invalid bucket."""
    return FIRST_S * math.pow(GROWTH, number_of(bucket) - 0.5)


def merged(histograms: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of several histograms, bucket by bucket."""
    total: Counter[str] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)


def percentile(histogram: Mapping[str, int], share: float) -> float:
    """The latency that `share` of all latencies, above 0 and up to 1, do not exceed.

    Raises ValueError for another share, for an invalid bucket, and if there are no latencies.
    """
    buckets = sorted([bucket for bucket, count in histogram.items() if count], key=number_of)
    if not buckets or not 0 < share <= 1:
        raise ValueError(f"no percentile {share} of {len(buckets)} buckets")
    cumulative = list(accumulate(histogram[bucket] for bucket in buckets))
    return value_of(buckets[bisect_left(cumulative, share * cumulative[-1])])
