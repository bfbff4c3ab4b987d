"""The numbers of box plots over the peers of a run. Each run is one level of an experiment."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables.columns import BOXES

REACH: Final = 1.5
"""Whiskers end at the last peer whose distance from the box is at most this multiple of its height (Tukey)."""
MEASURES: Final = {"latency": "s", "bandwidth": "bit/s"}
"""The compared measures and their units."""


def boxes(peers: DataFrame) -> DataFrame:
    """A row for each measure, run and dispatching, from the rows of `per_peer.by_peer`."""
    bandwidth = 8 * (f.col("in_byte_speed") + f.col("out_byte_speed"))
    values = f.array(
        _measured("latency", f.col("avg_latency")),
        _measured("bandwidth", bandwidth),
    )
    level = ("measure", "unit", "run", "dispatching")
    measured = peers.select("run", "dispatching", f.inline(values)).where(f.col("value").isNotNull())
    quartiles = measured.groupBy(*level).agg(
        f.count("value").alias("peers"),
        f.min("value").alias("minimum"),
        f.max("value").alias("maximum"),
        f.mean("value").alias("mean"),
        f.stddev_pop("value").alias("deviation"),
        f.percentile("value", [0.25, 0.5, 0.75]).alias("quartiles"),
        f.array_sort(f.collect_list("value")).alias("values"),
    )
    low, median, high = (f.col("quartiles")[index] for index in range(3))
    reach = REACH * (high - low)
    fences = quartiles.withColumns({"fence_low": low - reach, "fence_high": high + reach})
    return fences.select(
        *level,
        "peers",
        "minimum",
        "maximum",
        "mean",
        "deviation",
        low.alias("quartile_1"),
        median.alias("median"),
        high.alias("quartile_3"),
        f.array_min(f.filter("values", _within)).alias("low_whisker"),
        f.array_max(f.filter("values", _within)).alias("high_whisker"),
        f.filter("values", lambda value: ~_within(value)).alias("outliers"),
    ).select(BOXES.names)


def _measured(name: str, value: Column) -> Column:
    return f.struct(f.lit(name).alias("measure"), f.lit(MEASURES[name]).alias("unit"), value.alias("value"))


def _within(value: Column) -> Column:
    return (value >= f.col("fence_low")) & (value <= f.col("fence_high"))
