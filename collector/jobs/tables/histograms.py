"""Counts of latencies in the buckets of `logger.histogram`, from deliveries and from histograms of peers."""

from __future__ import annotations

from math import log
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables.facts import Facts, latency_s, reached_clients
from ringmq.logger.histogram import FIRST_S, GROWTH, LAST, bounds_of

SERIES: Final = ("run", "dispatching", "topic", "hops")
_BOUNDS: Final = [bounds_of(str(bucket))[1] for bucket in range(LAST)]


def bucket_of(seconds: Column) -> Column:
    """The number of the bucket, equal to `logger.histogram.bucket_of`."""
    bounds = f.array(*map(f.lit, _BOUNDS))
    estimate = f.ceil(f.log(f.greatest(seconds, f.lit(FIRST_S)) / FIRST_S) / log(GROWTH)).cast("int")
    estimate = f.least(estimate, f.lit(LAST))
    # Close to a bound, rounding of the logarithm may put a latency into the next bucket.
    below = (estimate > 0) & (seconds <= f.get(bounds, estimate - 1))
    above = (estimate < LAST) & (seconds > f.get(bounds, estimate))
    return f.when(below, estimate - 1).when(above, estimate + 1).otherwise(estimate)


def value_of(bucket: Column) -> Column:
    """The value for all latencies in a bucket, equal to `logger.histogram.value_of`."""
    return f.pow(f.lit(GROWTH), bucket - 0.5) * FIRST_S


def counts(facts: Facts) -> DataFrame:
    """A row for each series and bucket. Sums and extremes of a peer's histogram are in a row without a bucket."""
    # Deliveries are counted in buckets too, so that percentiles of both kinds of records can be computed together.
    of_deliveries = (
        facts.deliveries.where(reached_clients())
        .select(*SERIES, latency_s().alias("latency"))
        .groupBy(*SERIES, bucket_of(f.col("latency")).alias("bucket"))
        .agg(
            f.count(f.lit(1)).cast("double").alias("count"),
            f.sum("latency").alias("sum"),
            f.min("latency").alias("minimum"),
            f.max("latency").alias("maximum"),
            f.count_if(f.col("latency") < 0).cast("double").alias("negative"),
        )
        .withColumn("measured", f.col("count"))
    )
    zero = f.lit(0.0)
    in_buckets = facts.latencies.select(*SERIES, f.explode("buckets").alias("name", "count")).select(
        *SERIES,
        f.col("name").try_cast("int").alias("bucket"),
        f.col("count").cast("double").alias("count"),
        zero.alias("sum"),
        f.lit(None).cast("double").alias("minimum"),
        f.lit(None).cast("double").alias("maximum"),
        zero.alias("negative"),
        zero.alias("measured"),
    )
    of_histograms = facts.latencies.where("count > 0").select(
        *SERIES,
        f.lit(None).cast("int").alias("bucket"),
        zero.alias("count"),
        f.col("sum_s").alias("sum"),
        f.col("min_s").alias("minimum"),
        f.col("max_s").alias("maximum"),
        f.when(f.col("min_s") < 0, 1.0).otherwise(0.0).alias("negative"),
        f.col("count").cast("double").alias("measured"),
    )
    # The schema allows names of buckets up to 999.
    known = in_buckets.where(f.col("bucket").between(0, LAST))
    return of_deliveries.unionByName(known).unionByName(of_histograms)
