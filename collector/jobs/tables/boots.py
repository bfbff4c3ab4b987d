"""From samples, whose counters begin at zero with each start of a peer: what a peer did over all its starts."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

COUNTERS: Final = {
    "client_in_bytes": "mqtt.bytes_in",
    "client_out_bytes": "mqtt.bytes_out",
    "ring_in_bytes": "overlay.bytes_in",
    "ring_out_bytes": "overlay.bytes_out",
    "published": "mqtt.messages_in",
    "tot_msg": "mqtt.messages_out",
    "client_dropped": "mqtt.dropped",
    "ring_dropped": "overlay.dropped",
    "run_time": "uptime_s",
    "cpu_time": "cpu_s",
}
"""What only grows until the next start; the names of the columns, and where they are in a sample."""
SHORTEST_S: Final = 1e-6
"""Nothing can be said of the speed in less. So no speed is beyond numbers, whatever peers say of their times."""
PLACE: Final = ("run", "peer")


def dispatching_of_sample() -> Column:
    """How a peer dispatches, with its fan-out if it has one."""
    return f.when(f.col("fanout") > 0, f.concat_ws(" ", "dispatching", "fanout")).otherwise(f.col("dispatching"))


def by_peer(samples: DataFrame) -> DataFrame:
    """A row for each peer of a run: totals since its starts, their growth between samples, and what it was at last."""
    # As floating point numbers: no sum of what peers say can run over, and all below 2^53 is exact.
    counters = f.struct([f.col(path).cast("double").alias(name) for name, path in COUNTERS.items()])
    said = f.struct("address", "listeners", "pid", dispatching_of_sample().alias("dispatching"), "memory_bytes")
    boots = samples.groupBy(*PLACE, "boot").agg(
        f.min_by(counters, "number").alias("first"),
        f.max_by(counters, "number").alias("last"),
        f.max_by(said, "number").alias("said"),
        f.max("landed").alias("landed"),
        *[f.max(name).alias(name) for name in ("subscriptions", "topics", "memory_bytes")],
    )
    peers = boots.groupBy(*PLACE).agg(
        f.count(f.lit(1)).alias("starts"),
        *[f.sum(f"last.{name}").alias(name) for name in COUNTERS],
        *[f.sum(f.col(f"last.{name}") - f.col(f"first.{name}")).alias(f"more_{name}") for name in COUNTERS],
        f.max_by("said", f.struct("landed", "boot")).alias("said"),
        *[f.max(name).cast("double").alias(name) for name in ("subscriptions", "topics", "memory_bytes")],
    )
    return peers.select(
        *PLACE,
        "starts",
        *COUNTERS,
        *[f"said.{name}" for name in ("address", "listeners", "pid", "dispatching")],
        f.col("said.memory_bytes").cast("double").alias("memory_usage"),
        f.col("memory_bytes").alias("memory_peak"),
        f.col("subscriptions").alias("tot_sub"),
        f.col("topics").alias("tot_topic"),
        _sum("client_in_bytes", "ring_in_bytes").alias("in_bytes"),
        _sum("client_out_bytes", "ring_out_bytes").alias("out_bytes"),
        _sum("client_dropped", "ring_dropped").alias("dropped"),
        _speed("tot_msg").alias("msg_rate"),
        _speed("client_in_bytes", "ring_in_bytes").alias("in_byte_speed"),
        _speed("client_out_bytes", "ring_out_bytes").alias("out_byte_speed"),
        _speed("cpu_time").alias("cpu_share"),
    )


def _sum(*names: str) -> Column:
    return reduce(lambda one, other: one + other, [f.col(name) for name in names])


def _speed(*names: str) -> Column:
    """Growth for each second between the first and the last sample of a start; null if there was but one."""
    return per_second(_sum(*[f"more_{name}" for name in names]), f.col("more_run_time"))


def per_second(growth: Column, seconds: Column) -> Column:
    """Null if the time is too short, or none."""
    return f.when(f.abs(seconds) >= SHORTEST_S, growth / seconds)
