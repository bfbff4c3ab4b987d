"""The median and its interval, against the binomial tables of the sign test."""

from __future__ import annotations

from random import Random

import pytest

from ringmq.experiments.benchmarks.median_interval import estimate


@pytest.mark.parametrize(
    ("count", "low", "high", "confidence"),
    [
        (1, 1, 1, 0.0),
        (2, 1, 2, 0.5),
        (5, 1, 5, 0.9375),
        (6, 1, 6, 0.96875),
        (8, 1, 8, 0.9921875),
        (9, 2, 8, 0.9609375),
        (10, 2, 9, 0.978515625),
        (20, 6, 15, 0.958610534667969),
        (25, 8, 18, 0.956714630126953),
    ],
)
def test_interval_has_the_order_statistics_of_the_sign_test(count: int, low: int, high: int, confidence: float) -> None:
    values = list(range(1, count + 1))
    Random(1).shuffle(values)
    found = estimate(values)
    assert found.median == (count + 1) / 2
    assert (found.low, found.high) == (low, high)
    assert found.confidence == pytest.approx(confidence)


def test_lower_confidence_gives_a_narrower_interval() -> None:
    found = estimate(range(1, 11), confidence=0.8)
    assert (found.low, found.high) == (3, 8)
    assert found.confidence == pytest.approx(0.890625)


def test_one_extreme_value_changes_nothing() -> None:
    values = [1.0] * 9
    assert estimate([*values, 100.0]) == estimate([*values, 1.0])


def test_interval_contains_the_true_median_as_often_as_it_says() -> None:
    random = Random(7)
    tries = 2000
    samples = [estimate([random.expovariate(0.6931471805599453) for _ in range(10)]) for _ in range(tries)]
    hits = sum(sample.low <= 1 <= sample.high for sample in samples)
    assert hits / tries == pytest.approx(samples[0].confidence, abs=0.012)


def test_estimate_is_shown_with_its_interval() -> None:
    assert str(estimate([0.99, 1.0, 1.01])) == "1.000 (0.990-1.010)"
