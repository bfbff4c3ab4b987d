"""Percentiles of the latencies of deliveries to clients, for each run and dispatching: of all, by topic and by hops."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables.columns import LATENCIES, PERCENTILES
from ringmq.collector.jobs.tables.histograms import value_of

VIEWS: Final[dict[str, tuple[str, ...]]] = {"all": (), "hops": ("hops",), "topic": ("topic",)}
"""The values of the column `by`, with the columns by which each view is grouped."""


def latencies(counts: DataFrame) -> DataFrame:
    """The table, from the rows of `histograms.counts`."""
    views = []
    for view, columns in VIEWS.items():
        group = ("run", "dispatching", *columns)
        views.append(_percentiles(counts, group).withColumn("by", f.lit(view)))
    first, *others = views
    for other in others:
        first = first.unionByName(other, allowMissingColumns=True)
    return first.select(LATENCIES.names)


def _percentiles(counts: DataFrame, group: tuple[str, ...]) -> DataFrame:
    buckets = counts.groupBy(*group, "bucket").agg(
        *[f.sum(name).alias(name) for name in ("count", "sum", "negative", "measured")],
        f.min("minimum").alias("minimum"),
        f.max("maximum").alias("maximum"),
    )
    whole = Window.partitionBy(*group)
    up_to_here = whole.orderBy(f.col("bucket").asc_nulls_first()).rowsBetween(Window.unboundedPreceding, 0)
    buckets = buckets.withColumns({"below": f.sum("count").over(up_to_here), "all": f.sum("count").over(whole)})
    percentiles = {
        name: f.min(f.when((f.col("below") >= share * f.col("all")) & (f.col("all") > 0), f.col("bucket")))
        for name, share in PERCENTILES.items()
    }
    table = buckets.groupBy(*group).agg(
        f.sum("measured").alias("count"),
        f.try_divide(f.sum("sum"), f.sum("measured")).alias("mean"),
        f.min("minimum").alias("minimum"),
        f.max("maximum").alias("maximum"),
        f.sum("negative").alias("negative"),
        *[bucket.alias(name) for name, bucket in percentiles.items()],
    )
    # The value of a bucket is wrong by up to 5 %, but the extremes are exact: a percentile must not lie beyond them.
    bounded = {name: f.least("maximum", f.greatest("minimum", value_of(f.col(name)))) for name in PERCENTILES}
    # `greatest` and `least` ignore null, and would give an extreme where there is no percentile.
    return table.withColumns({name: f.when(f.col(name).isNotNull(), value) for name, value in bounded.items()})
