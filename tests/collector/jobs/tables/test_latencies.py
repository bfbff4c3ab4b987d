"""The table of latencies: known latencies, and random latencies compared with plain Python."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.jobs.tables.columns import LATENCIES, PERCENTILES
from ringmq.collector.jobs.tables.histograms import counts
from ringmq.collector.jobs.tables.latencies import latencies as table_of
from ringmq.logger.histogram import bucket_of, percentile
from ringmq.logger.records import Delivery, Latencies, Record
from tests.collector.making import delivery, facts, latencies, rows

Key = tuple[str, str, str, str | None, int | None]


def table(spark: SparkSession, records: list[Record]) -> dict[Key, dict[str, Any]]:
    found = table_of(counts(facts(spark, records)))
    assert found.columns == LATENCIES.names
    return {(row["run"], row["dispatching"], row["by"], row.get("topic"), row.get("hops")): row for row in rows(found)}


def test_views_group_by_all_hops_and_topic(spark: SparkSession) -> None:
    ms = 1_000_000
    records: list[Record] = [
        delivery(latency_ns=1 * ms, topic="a", hops=0),
        delivery(latency_ns=2 * ms, topic="a", hops=1),
        delivery(latency_ns=-4 * ms, topic="", hops=1),
        delivery(latency_ns=8 * ms, topic="a", hops=1, dispatching="guided"),
    ]
    found = table(spark, records)
    assert {key: (row["count"], row["mean"], row["negative"]) for key, row in found.items()} == {
        ("r", "direct", "all", None, None): (3, pytest.approx(-0.001 / 3), 1),
        ("r", "direct", "topic", "a", None): (2, pytest.approx(0.0015), 0),
        ("r", "direct", "topic", "", None): (1, pytest.approx(-0.004), 1),
        ("r", "direct", "hops", None, 0): (1, pytest.approx(0.001), 0),
        ("r", "direct", "hops", None, 1): (2, pytest.approx(-0.001), 1),
        ("r", "guided", "all", None, None): (1, pytest.approx(0.008), 0),
        ("r", "guided", "topic", "a", None): (1, pytest.approx(0.008), 0),
        ("r", "guided", "hops", None, 1): (1, pytest.approx(0.008), 0),
    }
    row = found["r", "direct", "all", None, None]
    assert (row["minimum"], row["maximum"]) == (-0.004, 0.002)


def test_single_latency_is_exact(spark: SparkSession) -> None:
    """Buckets grow by a tenth, but the extremes are known exactly."""
    row = table(spark, [delivery(latency_ns=1_234_567)])["r", "direct", "all", None, None]
    assert {row[name] for name in (*PERCENTILES, "minimum", "maximum", "mean")} == {0.001234567}


def test_histogram_without_buckets_has_no_percentiles(spark: SparkSession) -> None:
    found = table(spark, [latencies(count=3, sum_s=6.0, min_s=1.0, max_s=3.0)])
    row = found["r", "direct", "all", None, None]
    assert (row["count"], row["mean"]) == (3, 2)
    assert not set(PERCENTILES) & set(row)


def test_no_records_give_no_rows(spark: SparkSession) -> None:
    assert table(spark, []) == {}


def as_histograms(records: list[Delivery]) -> list[Latencies]:
    """The histograms that a peer would record instead of these deliveries."""
    series: dict[tuple[str, str, int], list[float]] = {}
    for record in records:
        if record.clients and not record.duplicate:
            seconds = (record.received_ns - record.sent_ns) / 1e9
            series.setdefault((record.topic, record.dispatching, record.hops), []).append(seconds)
    return [
        latencies(
            topic=topic,
            dispatching=dispatching,
            hops=hops,
            count=len(found),
            sum_s=sum(found),
            min_s=min(found),
            max_s=max(found),
            buckets=dict(Counter(map(bucket_of, found))),
        )
        for (topic, dispatching, hops), found in series.items()
    ]


@pytest.mark.parametrize("seed", range(2))
def test_random_latencies_agree_with_plain_python(spark: SparkSession, seed: int) -> None:
    chance = Random(seed)
    deliveries = [
        delivery(
            topic=chance.choice("abc"),
            dispatching=chance.choice(("direct", "guided")),
            hops=chance.randint(0, 3),
            clients=chance.choice((0, 1, 5)),
            duplicate=chance.random() < 0.1,
            latency_ns=int(chance.choice((-1e3, 1e3, 1e6, 1e9)) * chance.expovariate(1)),
        )
        for _ in range(1500)
    ]
    half = len(deliveries) // 2
    # Some peers record each delivery, others only histograms.
    found = table(spark, [*deliveries[:half], *as_histograms(deliveries[half:])])
    groups: dict[Key, list[float]] = {}
    for record in deliveries:
        if record.clients and not record.duplicate:
            seconds = (record.received_ns - record.sent_ns) / 1e9
            for view in (("all", None, None), ("topic", record.topic, None), ("hops", None, record.hops)):
                groups.setdefault(("r", record.dispatching, *view), []).append(seconds)
    assert found.keys() == groups.keys()
    for key, latencies_s in groups.items():
        row = found[key]
        low, high = min(latencies_s), max(latencies_s)
        histogram = Counter(map(bucket_of, latencies_s))
        assert (row["count"], row["minimum"], row["maximum"]) == (len(latencies_s), low, high)
        assert row["mean"] == pytest.approx(sum(latencies_s) / len(latencies_s))
        for name, share in PERCENTILES.items():
            assert row[name] == pytest.approx(min(high, max(low, percentile(histogram, share)))), (key, name)
