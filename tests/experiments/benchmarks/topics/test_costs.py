"""Figures from made-up work."""

from __future__ import annotations

import json
import math

import pytest

from ringmq.experiments.benchmarks.topics.costs import Reading, Work

REFERENCE = Work("message", 1000, done=1000, seconds=0.1, cpu_s=0.02)


def test_processor_time_of_a_unit_is_a_ratio_to_the_reference() -> None:
    work = Work("new", 500, done=400, seconds=2.0, cpu_s=0.4, generator_s=0.1)
    assert work.cpu_us == pytest.approx(1000)
    assert work.rate_hz == 200
    assert not work.complete
    figures = work.figures(REFERENCE)
    assert figures["ratio"] == pytest.approx(50)
    assert (figures["units"], figures["wanted"], figures["generator_share"]) == (400, 500, 0.05)
    assert "latency_p50_ms" not in figures


def test_latencies_have_percentiles() -> None:
    work = Work("request", 1000, done=1000, seconds=1.0, latencies_s=[number / 1000 for number in range(1000, 0, -1)])
    figures = work.figures(REFERENCE)
    assert figures["latency_p50_ms"] == pytest.approx(501)
    assert figures["latency_p99_ms"] == pytest.approx(991)
    assert figures["latency_p99.9_ms"] == figures["latency_max_ms"] == 1000


@pytest.mark.parametrize(
    ("generator_s", "cpu_s", "bound"), [(0.95, 0.5, True), (0.95, 0.95, False), (0.5, 0.5, False), (0.5, 0.95, False)]
)
def test_generator_is_the_limit_if_it_is_busy_and_the_servers_are_not(
    generator_s: float, cpu_s: float, bound: bool
) -> None:
    work = Work("new", 1, done=1, seconds=1.0, cpu_s=cpu_s, generator_s=generator_s)
    assert work.generator_bound is bound


def test_work_without_a_unit_has_no_cost() -> None:
    work = Work("new", 10, seconds=1.0, cpu_s=1.0)
    assert math.isnan(work.cpu_us)
    assert not Work("new", 10).generator_bound
    assert work.figures(REFERENCE)["cpu_us"] is None


def test_memory_of_a_unit_is_the_growth_over_all_servers() -> None:
    reading = Reading(REFERENCE, memory_before=10_000, memory_after=40_000, units=10)
    assert reading.unit_bytes == 3000
    assert math.isnan(Reading(REFERENCE, memory_after=1).unit_bytes)


def test_figures_of_a_reading_are_json_without_nan() -> None:
    reading = Reading(REFERENCE, [Work("new", 10)], {"puback_max_ms": math.nan, "granted_s": 2.0}, rest_before=0.01)
    figures = json.loads(json.dumps(reading.figures(), allow_nan=False))
    assert figures["works"]["new"]["units"] == 0
    assert (figures["puback_max_ms"], figures["granted_s"], figures["rest_before_cores"]) == (None, 2.0, 0.01)
