"""How many latencies are in which bucket of `logger.histogram`, of deliveries and of histograms alike."""

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
    """As `logger.histogram.bucket_of`, but the number itself."""
    bounds = f.array(*map(f.lit, _BOUNDS))
    near = f.ceil(f.log(f.greatest(seconds, f.lit(FIRST_S)) / FIRST_S) / log(GROWTH)).cast("int")
    near = f.least(near, f.lit(LAST))
    # A logarithm may miss by one what is at a bound.
    below = (near > 0) & (seconds <= f.get(bounds, near - 1))
    above = (near < LAST) & (seconds > f.get(bounds, near))
    return f.when(below, near - 1).when(above, near + 1).otherwise(near)


def value_of(bucket: Column) -> Column:
    """The seconds that stand for all in a bucket, as `logger.histogram.value_of`."""
    return f.pow(f.lit(GROWTH), bucket - 0.5) * FIRST_S


def counts(facts: Facts) -> DataFrame:
    """A row for each series and bucket. What is known of a whole histogram alone stands in a row without a bucket."""
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
    nothing = f.lit(0.0)
    in_buckets = facts.latencies.select(*SERIES, f.explode("buckets").alias("name", "many")).select(
        *SERIES,
        f.col("name").try_cast("int").alias("bucket"),
        f.col("many").cast("double").alias("count"),
        nothing.alias("sum"),
        f.lit(None).cast("double").alias("minimum"),
        f.lit(None).cast("double").alias("maximum"),
        nothing.alias("negative"),
        nothing.alias("measured"),
    )
    as_whole = facts.latencies.where("count > 0").select(
        *SERIES,
        f.lit(None).cast("int").alias("bucket"),
        nothing.alias("count"),
        f.col("sum_s").alias("sum"),
        f.col("min_s").alias("minimum"),
        f.col("max_s").alias("maximum"),
        f.when(f.col("min_s") < 0, 1.0).otherwise(0.0).alias("negative"),
        f.col("count").cast("double").alias("measured"),
    )
    known = in_buckets.where(f.col("bucket").between(0, LAST))
    return of_deliveries.unionByName(known).unionByName(as_whole)
