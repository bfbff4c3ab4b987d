"""Box plots, compared with their definitions."""

from __future__ import annotations

import statistics
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.jobs.tables.boxes import boxes
from ringmq.collector.jobs.tables.columns import BOXES

Peer = tuple[str, str, float | None, float | None, float | None]


def table(spark: SparkSession, *peers: Peer) -> dict[tuple[str, str, str], dict[str, Any]]:
    schema = "run string, dispatching string, avg_latency double, in_byte_speed double, out_byte_speed double"
    found = boxes(spark.createDataFrame(list(peers), schema))
    assert found.columns == BOXES.names
    return {(row.measure, row.run, row.dispatching): row.asDict() for row in found.collect()}


def test_box_with_outliers(spark: SparkSession) -> None:
    values = [100.0, 4.0, 5.0, 6.0, 7.0, 8.0, -50.0, 5.5, 6.5]
    (box,) = table(spark, *[("r", "direct", value, None, None) for value in values]).values()
    q1, median, q3 = statistics.quantiles(values, n=4, method="inclusive")
    assert (box["quartile_1"], box["median"], box["quartile_3"]) == (q1, median, q3) == (5.0, 6.0, 7.0)
    assert (box["minimum"], box["maximum"], box["peers"], box["unit"]) == (-50, 100, 9, "s")
    assert (box["low_whisker"], box["high_whisker"], box["outliers"]) == (4, 8, [-50, 100])
    assert box["mean"] == pytest.approx(statistics.fmean(values))
    assert box["deviation"] == pytest.approx(statistics.pstdev(values))


def test_value_at_the_fence_is_no_outlier(spark: SparkSession) -> None:
    values = [0.0, 1.0, 2.0, 3.0, 4.0, 7.0]  # quartiles 1.25 and 3.75: the fence is at 7.5
    (box,) = table(spark, *[("r", "direct", value, None, None) for value in [*values[:-1], 7.5]]).values()
    assert (box["high_whisker"], box["outliers"]) == (7.5, [])


def test_box_of_one_peer(spark: SparkSession) -> None:
    (box,) = table(spark, ("r", "direct", 3.0, None, None)).values()
    numbers = [name for name in BOXES.names if name not in ("run", "dispatching", "measure", "unit", "peers")]
    assert {name: box[name] for name in numbers} == {
        **dict.fromkeys(numbers, 3.0),
        "deviation": 0.0,
        "outliers": [],
    }


def test_bandwidth_is_the_bits_of_both_directions(spark: SparkSession) -> None:
    found = table(spark, ("r", "direct", None, 10.0, 2.0), ("r", "direct", None, 20.0, None))
    assert found.keys() == {("bandwidth", "r", "direct")}
    box = found["bandwidth", "r", "direct"]
    assert (box["median"], box["peers"], box["unit"]) == (96, 1, "bit/s")


def test_each_run_and_dispatching_has_a_box(spark: SparkSession) -> None:
    found = table(
        spark,
        ("r", "direct", 1.0, 1.0, 1.0),
        ("r", "guided 3", 2.0, 1.0, 1.0),
        ("s", "direct", 4.0, 1.0, 1.0),
    )
    assert {key: box["median"] for key, box in found.items() if key[0] == "latency"} == {
        ("latency", "r", "direct"): 1,
        ("latency", "r", "guided 3"): 2,
        ("latency", "s", "direct"): 4,
    }


def test_no_peers_give_no_boxes(spark: SparkSession) -> None:
    assert table(spark) == {}
