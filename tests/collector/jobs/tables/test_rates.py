"""Messages over time."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.jobs.tables.columns import RATES
from ringmq.collector.jobs.tables.rates import MAX_STEPS, rates
from ringmq.logger.records import Sample, Traffic
from tests.collector.making import AT, rows, sample, stored


def told(up: float, out: int, **members: Any) -> Sample:
    return sample(uptime_s=up, mqtt=Traffic(messages_out=out, messages_in=10 * out), number=int(10 * up), **members)


def table(spark: SparkSession, samples: list[Sample], started: float = 1000.0) -> list[dict[str, Any]]:
    """Landed half a second after, on a clock of its own, by which peers started then."""
    landed = {place: started + one.uptime_s + 0.5 for place, one in enumerate(samples)}
    found = rates(stored(spark, samples, landed))
    assert found.columns == RATES.names
    return sorted(rows(found), key=lambda row: (row["run"], row["dispatching"], row["time"]))


def column(found: list[dict[str, Any]], name: str) -> list[float]:
    return [pytest.approx(row[name]) for row in found]


def test_what_grew_is_spread_over_the_time_between(spark: SparkSession) -> None:
    found = table(spark, [told(1.0, 4), told(3.0, 24), told(3.5, 24)])
    # The first second is known too, as the first sample comes soon after the start.
    assert [row["time"] for row in found] == [0, 1, 2, 3]
    assert [row["width"] for row in found] == [1, 1, 1, 1]
    assert column(found, "delivered") == [4, 14, 24, 24]
    assert column(found, "published") == [40, 140, 240, 240]
    assert column(found, "delivery_rate") == [4, 10, 10, 0]
    assert column(found, "publish_rate") == [40, 100, 100, 0]


def test_what_was_before_is_left_out(spark: SparkSession) -> None:
    found = table(spark, [told(5000.0, 10_000), told(5001.0, 10_007), told(5002.0, 10_010)])
    assert [row["time"] for row in found] == [0, 1]
    assert column(found, "delivered") == [7, 10]
    assert column(found, "delivery_rate") == [7, 3]


def test_peers_are_added_whatever_their_clocks_say(spark: SparkSession) -> None:
    samples = [told(up, int(up * 10), peer=peer, at=AT * peer) for peer in (0, 1) for up in (1.0, 2.0, 3.0)]
    found = table(spark, samples)
    assert column(found, "delivery_rate") == [20, 20, 20]
    assert found[-1]["delivered"] == 60


def test_a_step_that_is_seen_in_part_has_its_rate(spark: SparkSession) -> None:
    found = table(spark, [told(up, int(up * 100)) for up in (1.0, 2.0, 2.25)])
    assert column(found, "delivery_rate") == [100, 100, 100]
    assert [row["delivered"] for row in found] == [100, 200, 225]


def test_a_restart_goes_on_from_what_was_delivered(spark: SparkSession) -> None:
    first = [told(up, int(up * 10), boot=1) for up in (1.0, 2.0)]
    second = [told(up, int(up * 10), boot=2) for up in (1.0, 2.0)]
    landed = {0: 11.0, 1: 12.0, 2: 15.0, 3: 16.0}
    found = sorted(rows(rates(stored(spark, [*first, *second], landed))), key=lambda row: row["time"])
    assert [(row["time"], row["delivered"]) for row in found] == [(0, 10), (1, 20), (4, 30), (5, 40)]


def test_long_runs_have_wide_steps(spark: SparkSession) -> None:
    found = table(spark, [told(0.0, 0), told(50_000.0, 500_000)])
    assert len(found) <= MAX_STEPS
    assert {row["width"] for row in found} == {120}
    assert found[-1]["delivered"] == 500_000
    assert column(found, "delivery_rate") == [10] * len(found)


def test_times_that_cannot_be(spark: SparkSession) -> None:
    """The steps stay few, and the counters right, whatever a peer says of its uptime."""
    strange = [told(1.0, 1), told(1e11, 7), told(2.0, 9), told(2.0, 12)]
    for number, one in enumerate(strange):
        one.number = number
    found = table(spark, strange)
    assert 0 < len(found) <= MAX_STEPS + 1
    assert found[-1]["delivered"] in (11, 12)


def test_runs_and_dispatchings_are_told_apart(spark: SparkSession) -> None:
    samples = [
        told(up, int(up), run=run, fanout=fanout, peer=fanout)
        for run, fanout in (("a", 0), ("a", 3), ("b", 0))
        for up in (1.0, 2.0)
    ]
    found = table(spark, samples)
    assert [(row["run"], row["dispatching"]) for row in found if row["time"] == 0] == [
        ("a", "direct"),
        ("a", "direct 3"),
        ("b", "direct"),
    ]


@pytest.mark.parametrize("samples", [[], [told(1.0, 5)]])
def test_nothing_between_samples(spark: SparkSession, samples: list[Sample]) -> None:
    assert table(spark, samples) == []
