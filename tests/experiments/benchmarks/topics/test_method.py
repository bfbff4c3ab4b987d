"""Defaults of the patterns."""

from __future__ import annotations

from ringmq.experiments.benchmarks.topics.method import COUNTS, TopicsMethod, TopicsPattern, method_of

USUAL = TopicsMethod(rest_s=1.0)


def test_each_pattern_has_its_own_defaults() -> None:
    assert set(COUNTS) == set(TopicsPattern)
    new = method_of(TopicsPattern.NEW, None, None, None, None, USUAL)
    assert (new.count, new.clients, new.qos, new.rest_s) == (50_000, (1,), 1, 1.0)
    wild = method_of(TopicsPattern.WILD, None, None, None, None, USUAL)
    assert (wild.clients, wild.qos) == ((1000,), 0)
    assert method_of(TopicsPattern.CHURN, None, None, None, None, USUAL).clients == (1, 100)


def test_given_numbers_replace_the_defaults() -> None:
    churn = method_of(TopicsPattern.CHURN, 10, 3, None, 0, USUAL)
    assert (churn.count, churn.clients, churn.qos) == (10, (3,), 0)


def test_filters_of_each_client_make_the_count() -> None:
    assert method_of(TopicsPattern.FILTERS, 7, 500, 200, None, USUAL).count == 100_000
