"""Buckets of latencies: their bounds, and the error of percentiles taken from them."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.logger.histogram import FIRST_S, LAST, bounds_of, bucket_of, merged, number_of, percentile, value_of

DAY_S = 86_400.0
ERROR = 0.05
latencies = st.lists(st.floats(FIRST_S, DAY_S), min_size=1, max_size=60)


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_latency_is_within_the_bounds_of_its_bucket(seconds: float) -> None:
    low, high = bounds_of(bucket_of(seconds))
    assert low < seconds <= high or (seconds == low == -math.inf)


@settings(deadline=None)
@given(st.floats(FIRST_S, DAY_S))
def test_bucket_value_is_close_to_every_latency_in_it(seconds: float) -> None:
    assert value_of(bucket_of(seconds)) == pytest.approx(seconds, rel=ERROR)


def test_buckets_have_no_gaps() -> None:
    bounds = [bounds_of(str(number)) for number in range(LAST + 1)]
    assert [low for low, _ in bounds] == [-math.inf, *(high for _, high in bounds[:-1])]
    assert bounds[0][1] == FIRST_S
    assert bounds[-1][0] > DAY_S
    assert bounds[-1][1] == math.inf
    assert [number_of(str(number)) for number in range(LAST + 1)] == list(range(LAST + 1))


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (-3600.0, "0"),
        (-1e-9, "0"),
        (0.0, "0"),
        (1e-6, "0"),
        (1.0000001e-6, "1"),
        (math.inf, str(LAST)),
        (2 * DAY_S, "266"),
    ],
)
def test_extreme_latencies_are_in_the_first_or_last_bucket(seconds: float, bucket: str) -> None:
    assert bucket_of(seconds) == bucket


@settings(deadline=None)
@given(latencies, st.floats(0, 1, exclude_min=True))
def test_percentile_is_close_to_the_exact_percentile(seconds: list[float], share: float) -> None:
    histogram = Counter(map(bucket_of, seconds))
    # The least latency that at least this share does not exceed, found by trying each.
    exact = min(limit for limit in seconds if sum(other <= limit for other in seconds) >= share * len(seconds))
    assert percentile(histogram, share) == pytest.approx(exact, rel=ERROR)


@settings(deadline=None)
@given(latencies, st.floats(0, 1, exclude_min=True))
def test_documented_formula_gives_the_same_percentile(seconds: list[float], share: float) -> None:
    rows = sorted((int(bucket), count) for bucket, count in Counter(map(bucket_of, seconds)).items())
    expected = share * sum(count for _, count in rows)
    first = next(bucket for index, (bucket, _) in enumerate(rows) if sum(n for _, n in rows[: index + 1]) >= expected)
    assert percentile(Counter(map(bucket_of, seconds)), share) == pytest.approx(1.1 ** (first - 0.5) / 1e6)


@settings(deadline=None)
@given(st.lists(latencies, max_size=5))
def test_merged_histograms_equal_one_histogram_of_all(parts: list[list[float]]) -> None:
    histograms = [Counter(map(bucket_of, part)) for part in parts]
    assert merged(histograms) == Counter(bucket_of(latency_s) for part in parts for latency_s in part)


def test_percentile_ignores_empty_buckets() -> None:
    assert percentile({"3": 0, "7": 2, "100": 0}, 1) == value_of("7")


@pytest.mark.parametrize(
    ("histogram", "share"), [({}, 0.5), ({"1": 0}, 0.5), ({"1": 1}, 0), ({"1": 1}, 1.01), ({"x": 1}, 0.5)]
)
def test_percentile_without_latencies_or_with_a_wrong_share_raises(histogram: dict[str, int], share: float) -> None:
    with pytest.raises(ValueError, match=r"percentile|bucket must be"):
        percentile(histogram, share)


@pytest.mark.parametrize("bucket", ["", "-1", "01", "267", "1.0", "one", " 1", "٣", "9" * 5000])
def test_invalid_bucket_raises_a_short_error(bucket: str) -> None:
    for ask in (number_of, bounds_of, value_of):
        with pytest.raises(ValueError, match="the bucket must be 0 to 266, got ") as error:
            ask(bucket)
        assert len(str(error.value)) < 100
