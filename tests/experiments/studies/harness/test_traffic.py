"""Counting publications and arrivals."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.traffic import KEEPS_UP_S, counts, latencies, percentile
from tests.experiments.studies.making import steady, traffic


def test_missing_and_duplicate_arrivals_are_counted() -> None:
    observed = traffic([0, 0, 0], [0.0, 1.0, 2.0], [(1, [(0, 0.1), (1, 1.1), (1, 1.2)]), (2, [(2, 2.1)])])
    found = counts(observed)
    assert (found.published, found.wanted, found.received, found.missed, found.twice) == (3, 6, 3, 3, 1)


def test_latencies_are_limited_to_the_measured_time() -> None:
    observed = traffic([0, 0], [0.0, 1.0], [(1, [(0, 0.5), (1, 1.25)]), (2, [(1, 1.5)])])
    assert list(latencies(observed)) == [0.5, 0.25, 0.5]
    assert list(latencies(observed, 1.0)) == [0.25, 0.5]
    assert counts(observed, 1.0).p50_s == 0.5


@pytest.mark.parametrize(("latency_s", "keeps_up"), [(KEEPS_UP_S / 2, True), (KEEPS_UP_S * 2, False)])
def test_slow_machine_does_not_keep_up(latency_s: float, keeps_up: bool) -> None:
    found = counts(steady(100, 0.1, [0], [1, 2], latency_s))
    assert found.keeps_up is keeps_up
    assert found.missed == found.twice == 0


def test_trial_without_messages_has_zero_counts() -> None:
    found = counts(traffic([], [], []))
    assert (found.published, found.wanted, found.received, found.p99_s) == (0, 0, 0, 0.0)


def test_percentile_of_sorted_values() -> None:
    assert percentile([1, 2, 3, 4], 50) == 3
    assert percentile([1, 2, 3, 4], 99) == 4
    assert percentile([], 50) == 0
