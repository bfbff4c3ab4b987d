"""Latencies in buckets, from deliveries and from histograms of peers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables import histograms
from ringmq.logger.histogram import LAST, bounds_of, value_of
from ringmq.logger.histogram import bucket_of as bucket_of_logger
from tests.collector.making import delivery, facts, latencies, rows


def test_buckets_equal_those_of_the_logger(spark: SparkSession) -> None:
    bounds = [bounds_of(str(bucket))[1] for bucket in range(LAST)]
    seconds = [-1e9, -1e-9, 0.0, 1e-9, 1e300, *bounds]
    seconds += [math.nextafter(bound, way) for bound in bounds for way in (-math.inf, math.inf)]
    found = spark.createDataFrame([(latency_s,) for latency_s in seconds], "seconds double").select(
        "seconds", histograms.bucket_of(f.col("seconds")).alias("bucket")
    )
    assert {row.seconds: str(row.bucket) for row in found.collect()} == {
        latency_s: bucket_of_logger(latency_s) for latency_s in seconds
    }


def test_values_equal_those_of_the_logger(spark: SparkSession) -> None:
    found = spark.range(LAST + 1).select("id", histograms.value_of(f.col("id")).alias("value")).collect()
    for row in found:
        assert row.value == pytest.approx(value_of(str(row.id)), rel=1e-12)


def cells(spark: SparkSession, *records: Any) -> list[tuple[Any, ...]]:
    names = ("bucket", "count", "sum", "minimum", "maximum", "negative", "measured")
    found = rows(histograms.counts(facts(spark, records)))
    return sorted([tuple([row.get(name) for name in names]) for row in found], key=str)


def test_deliveries_to_clients_are_counted(spark: SparkSession) -> None:
    records = [
        delivery(latency_ns=1000),
        delivery(latency_ns=-3000),
        delivery(latency_ns=2_000_000_000),
        delivery(latency_ns=5, clients=0),
        delivery(latency_ns=5, duplicate=True),
    ]
    two_s = int(bucket_of_logger(2.0))
    assert cells(spark, *records) == [
        (0, 2.0, pytest.approx(-2e-6), -3e-6, 1e-6, 1.0, 2.0),
        (two_s, 1.0, 2.0, 2.0, 2.0, 0.0, 1.0),
    ]


def test_histograms_of_peers_are_counted(spark: SparkSession) -> None:
    record = latencies(count=5, sum_s=0.75, min_s=-0.5, max_s=0.5, buckets={"0": 2, "100": 3, "x": 9, "267": 9})
    assert cells(spark, record, latencies()) == [
        (0, 2.0, 0.0, None, None, 0.0, 0.0),
        (100, 3.0, 0.0, None, None, 0.0, 0.0),
        (None, 0.0, 0.75, -0.5, 0.5, 1.0, 5.0),
    ]
