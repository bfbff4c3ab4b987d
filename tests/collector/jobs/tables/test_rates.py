"""Messages over time."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.jobs.tables.columns import RATES
from ringmq.collector.jobs.tables.rates import MAX_STEPS, rates
from ringmq.logger.records import Sample, Traffic
from tests.collector.making import AT, rows, sample, stored


def sample_at(up: float, out: int, **members: Any) -> Sample:
    return sample(uptime_s=up, mqtt=Traffic(messages_out=out, messages_in=10 * out), number=int(10 * up), **members)


def table(spark: SparkSession, samples: list[Sample], started: float = 1000.0) -> list[dict[str, Any]]:
    """The table of samples that landed half a second later, on a clock by which all peers started at `started`."""
    landed = {index: started + record.uptime_s + 0.5 for index, record in enumerate(samples)}
    found = rates(stored(spark, samples, landed))
    assert found.columns == RATES.names
    return sorted(rows(found), key=lambda row: (row["run"], row["dispatching"], row["time"]))


def column(found: list[dict[str, Any]], name: str) -> list[float]:
    return [pytest.approx(row[name]) for row in found]


def test_growth_is_spread_over_the_time_between_samples(spark: SparkSession) -> None:
    found = table(spark, [sample_at(1.0, 4), sample_at(3.0, 24), sample_at(3.5, 24)])
    # The first second is covered too, because the first sample is soon after the start.
    assert [row["time"] for row in found] == [0, 1, 2, 3]
    assert [row["width"] for row in found] == [1, 1, 1, 1]
    assert column(found, "delivered") == [4, 14, 24, 24]
    assert column(found, "published") == [40, 140, 240, 240]
    assert column(found, "delivery_rate") == [4, 10, 10, 0]
    assert column(found, "publish_rate") == [40, 100, 100, 0]


def test_messages_before_the_first_sample_are_excluded(spark: SparkSession) -> None:
    found = table(spark, [sample_at(5000.0, 10_000), sample_at(5001.0, 10_007), sample_at(5002.0, 10_010)])
    assert [row["time"] for row in found] == [0, 1]
    assert column(found, "delivered") == [7, 10]
    assert column(found, "delivery_rate") == [7, 3]


def test_peers_are_added_despite_wrong_clocks(spark: SparkSession) -> None:
    samples = [sample_at(up, int(up * 10), peer=peer, at=AT * peer) for peer in (0, 1) for up in (1.0, 2.0, 3.0)]
    found = table(spark, samples)
    assert column(found, "delivery_rate") == [20, 20, 20]
    assert found[-1]["delivered"] == 60


def test_partly_covered_step_has_the_rate_of_its_part(spark: SparkSession) -> None:
    found = table(spark, [sample_at(up, int(up * 100)) for up in (1.0, 2.0, 2.25)])
    assert column(found, "delivery_rate") == [100, 100, 100]
    assert [row["delivered"] for row in found] == [100, 200, 225]


def test_restart_continues_the_totals(spark: SparkSession) -> None:
    first = [sample_at(up, int(up * 10), boot=1) for up in (1.0, 2.0)]
    second = [sample_at(up, int(up * 10), boot=2) for up in (1.0, 2.0)]
    landed = {0: 11.0, 1: 12.0, 2: 15.0, 3: 16.0}
    found = sorted(rows(rates(stored(spark, [*first, *second], landed))), key=lambda row: row["time"])
    assert [(row["time"], row["delivered"]) for row in found] == [(0, 10), (1, 20), (4, 30), (5, 40)]


def test_long_runs_have_wide_steps(spark: SparkSession) -> None:
    found = table(spark, [sample_at(0.0, 0), sample_at(50_000.0, 500_000)])
    assert len(found) <= MAX_STEPS
    assert {row["width"] for row in found} == {120}
    assert found[-1]["delivered"] == 500_000
    assert column(found, "delivery_rate") == [10] * len(found)


def test_impossible_uptimes_give_few_steps(spark: SparkSession) -> None:
    """The number of steps stays bounded, and the counters right."""
    strange = [sample_at(1.0, 1), sample_at(1e11, 7), sample_at(2.0, 9), sample_at(2.0, 12)]
    for number, record in enumerate(strange):
        record.number = number
    found = table(spark, strange)
    assert 0 < len(found) <= MAX_STEPS + 1
    assert found[-1]["delivered"] in (11, 12)


def test_runs_and_dispatchings_have_separate_rows(spark: SparkSession) -> None:
    samples = [
        sample_at(up, int(up), run=run, fanout=fanout, peer=fanout)
        for run, fanout in (("a", 0), ("a", 3), ("b", 0))
        for up in (1.0, 2.0)
    ]
    found = table(spark, samples)
    assert [(row["run"], row["dispatching"]) for row in found if row["time"] == 0] == [
        ("a", "direct"),
        ("a", "direct 3"),
        ("b", "direct"),
    ]


@pytest.mark.parametrize("samples", [[], [sample_at(1.0, 5)]])
def test_single_sample_gives_no_rates(spark: SparkSession, samples: list[Sample]) -> None:
    assert table(spark, samples) == []
