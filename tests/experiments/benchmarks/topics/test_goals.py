"""Verdicts on made-up readings."""

from __future__ import annotations

import math

import pytest

from ringmq.experiments.benchmarks.goals import Verdict
from ringmq.experiments.benchmarks.topics.costs import Reading, Work
from ringmq.experiments.benchmarks.topics.goals import has_goals, verdicts
from ringmq.experiments.benchmarks.topics.method import TopicsMethod, TopicsPattern


def reading(*works: Work, **extra: float) -> Reading:
    reference = Work("message to a topic in use", 1000, done=1000, seconds=0.1, cpu_s=0.02)
    return Reading(reference, list(works), extra, rest_before=0.001, rest_after=0.005)


def work(name: str, cpu_us: float, done: int = 100, seconds: float = 1.0) -> Work:
    return Work(name, 100, done=done, seconds=seconds, cpu_s=cpu_us * done / 1e6, latencies_s=[0.002])


def judged(pattern: TopicsPattern, *readings: Reading, **changes: int) -> dict[str, Verdict]:
    return {verdict.what: verdict for verdict in verdicts(pattern, TopicsMethod(**changes), readings)}


def test_ratio_is_the_median_of_the_readings() -> None:
    found = judged(TopicsPattern.AGAIN, *(reading(work("new", 20 * ratio), work("again", 50)) for ratio in (1, 2, 9)))
    new = found["again: processor time of new / of a message to a topic in use"]
    assert (new.value, new.goal, new.reached) == (pytest.approx(2), 3, True)
    again = found["again: processor time of again / of a message to a topic in use"]
    assert (again.value, again.goal, again.reached) == (pytest.approx(2.5), 2, False)
    assert found["again: growth of the processor time at rest"].reached


def test_incomplete_work_misses_its_goal() -> None:
    found = judged(TopicsPattern.CHURN, reading(work("pair", 20, done=99)))
    assert [(verdict.value, verdict.reached) for verdict in found.values()] == [(math.inf, False)]


def test_rates_are_goals_of_wild_and_of_new_topics_with_qos_0() -> None:
    (wild,) = judged(TopicsPattern.WILD, reading(work("delivery", 1, seconds=100 / 600_000))).values()
    assert wild.reached
    found = judged(TopicsPattern.NEW, reading(work("new", 20)), qos=0)
    assert not found["new: new topics a second"].reached
    assert "new: new topics a second" not in judged(TopicsPattern.NEW, reading(work("new", 20)), qos=1)


def test_wait_is_a_goal_of_requests() -> None:
    assert judged(TopicsPattern.REQUEST, reading(work("request", 1)))["request: median wait"].value == 2


@pytest.mark.parametrize(("without_ms", "with_ms", "reached"), [(5, 49, True), (5, 51, False), (30, 59, True)])
def test_others_may_take_twice_as_long_beside_the_longest_topics(
    without_ms: float, with_ms: float, reached: bool
) -> None:
    extra = {"puback_p99.9_without_ms": without_ms, "puback_p99.9_with_ms": with_ms}
    found = judged(TopicsPattern.DEEP, reading(work("100 levels", 20), **extra))
    assert found["deep: 99.9th percentile of PUBACK beside the longest topics"].reached is reached


def test_crowd_is_judged_by_its_duration() -> None:
    few = judged(TopicsPattern.FILTERS, reading(work("filter", 20), lost_messages=0), count=20_000)
    many = judged(TopicsPattern.FILTERS, reading(work("filter", 20), granted_s=30), count=100_000)
    assert few["filters: lost messages"].reached
    assert not many["filters: lost messages"].reached  # the figure is missing
    assert "filters: time until all filters are granted" not in few
    assert not many["filters: time until all filters are granted"].reached


def test_retained_topics_of_one_peer_have_goals_of_their_own() -> None:
    found = judged(TopicsPattern.RETAINED, reading(work("#", 1, seconds=29), ready_after_kill_s=11), data=True)
    assert [verdict.reached for verdict in found.values()] == [True, True, False]


def test_goals_are_for_a_number_of_peers() -> None:
    usual, crowd = TopicsMethod(count=20_000), TopicsMethod(count=100_000)
    assert [has_goals(TopicsPattern.FILTERS, peers, usual) for peers in (1, 3, 7)] == [False, True, False]
    assert [has_goals(TopicsPattern.FILTERS, peers, crowd) for peers in (1, 3, 7)] == [False, False, True]
    assert has_goals(TopicsPattern.TAKEOVER, 9, usual)
    assert has_goals(TopicsPattern.RETAINED, 1, TopicsMethod(data=True))


def test_takeover_is_judged_by_losses_and_waits() -> None:
    extra = {"lost_messages": 1, "puback_max_concerned_ms": 900, "puback_max_others_ms": 90}
    found = judged(TopicsPattern.TAKEOVER, reading(**extra))
    assert [verdict.reached for verdict in found.values()] == [False, True, True]
