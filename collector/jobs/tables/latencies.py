"""How long messages took to clients: percentiles of each run and dispatching, of all, by topic and by hops."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables.columns import LATENCIES, PERCENTILES
from ringmq.collector.jobs.tables.histograms import value_of

VIEWS: Final[dict[str, tuple[str, ...]]] = {"all": (), "hops": ("hops",), "topic": ("topic",)}
"""What the column `by` says, and what is told apart."""


def latencies(counts: DataFrame) -> DataFrame:
    """The table, from the rows of `histograms.counts`."""
    views = []
    for view, apart in VIEWS.items():
        group = ("run", "dispatching", *apart)
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
    below = whole.orderBy(f.col("bucket").asc_nulls_first()).rowsBetween(Window.unboundedPreceding, 0)
    buckets = buckets.withColumns({"below": f.sum("count").over(below), "all": f.sum("count").over(whole)})
    percentiles = {
        name: f.min(f.when((f.col("below") >= share * f.col("all")) & (f.col("all") > 0), f.col("bucket")))
        for name, share in PERCENTILES.items()
    }
    found = buckets.groupBy(*group).agg(
        f.sum("measured").alias("count"),
        f.try_divide(f.sum("sum"), f.sum("measured")).alias("mean"),
        f.min("minimum").alias("minimum"),
        f.max("maximum").alias("maximum"),
        f.sum("negative").alias("negative"),
        *[bucket.alias(name) for name, bucket in percentiles.items()],
    )
    # A bucket is as wide as a tenth; the ends are known.
    within = {name: f.least("maximum", f.greatest("minimum", value_of(f.col(name)))) for name in PERCENTILES}
    return found.withColumns({name: f.when(f.col(name).isNotNull(), value) for name, value in within.items()})
