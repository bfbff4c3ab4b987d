"""Tables of made-up readings."""

from __future__ import annotations

import math

import pytest

from ringmq.experiments.benchmarks.topics.costs import Reading, Work
from ringmq.experiments.benchmarks.topics.table import comparisons, middle, table


def reading(cpu_s: float, done: int = 100, **changes: float) -> Reading:
    reference = Work("message to a topic in use", 1000, done=1000, seconds=0.1, cpu_s=0.02)
    work = Work("new", 100, done=done, seconds=0.5, cpu_s=cpu_s, **changes)
    return Reading(
        reference, [work], {"lost_messages": 0.0}, 0.001, 0.25, memory_before=0, memory_after=50_000, units=100
    )


def test_table_has_the_medians_of_each_side() -> None:
    readings = {"this": [reading(0.1), reading(0.2), reading(0.6)], "mosquitto": [reading(0.01)]}
    lines = table("new: 3 peers, QoS 1", readings).split("\n")
    assert lines[0] == "new: 3 peers, QoS 1"
    assert lines[2].split() == ["this", *["message", "to", "a", "topic", "in", "use"], "20", "1", "10,000", "1000"]
    assert lines[3].split() == ["this", "new", "2,000", "100", "200", "100"]
    assert lines[4] == "this      at rest 0.0010 cores before, 0.2500 after; memory of a unit 500 B"
    assert lines[5] == "this      lost messages 0"
    assert lines[7].split() == ["mosquitto", "new", "100", "5", "200", "100"]


def test_timeouts_and_a_slow_generator_are_noted() -> None:
    lines = table("new", {"this": [reading(0.1, done=60, generator_s=0.49)]}).split("\n")
    assert lines[3].endswith("  of 100 at the timeout; the generator was the limit")


def test_other_processes_are_noted() -> None:
    lines = table("new", {"this": [reading(0.1, waited_s=0.2)]}).split("\n")
    assert lines[3].endswith("  other processes had 40% of the cores")


def test_comparison_has_the_ratio_of_each_work() -> None:
    found = comparisons([reading(0.1), reading(0.3)], [reading(0.2), reading(0.2)])
    assert found["new"].median == pytest.approx(1.0)
    assert (found["new"].low, found["new"].high) == (pytest.approx(0.5), pytest.approx(1.5))
    assert found["message to a topic in use"].median == 1.0


def test_work_without_a_unit_is_not_compared() -> None:
    assert set(comparisons([reading(0.1, done=0)], [reading(0.2)])) == {"message to a topic in use"}


def test_median_ignores_missing_values() -> None:
    assert middle([math.nan, 3.0, 1.0]) == 2.0
    assert math.isnan(middle([math.nan]))
