"""Totals of each peer over all its starts, from samples, whose counters begin at zero with each start."""

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
"""Columns of counters that grow until the next start, with their paths in a sample."""
SHORTEST_S: Final = 1e-6
"""The shortest time over which a rate is computed. With this limit every rate is finite, for any times that peers
report."""
PEER_KEY: Final = ("run", "peer")


def dispatching_of_sample() -> Column:
    """The dispatching of a peer, with its fan-out if it has one."""
    return f.when(f.col("fanout") > 0, f.concat_ws(" ", "dispatching", "fanout")).otherwise(f.col("dispatching"))


def by_peer(samples: DataFrame) -> DataFrame:
    """A row for each peer of a run: totals over its starts, their growth between samples, and its last state."""
    # Floating point numbers: sums of the largest counters do not overflow, and numbers below 2^53 are exact.
    counters = f.struct([f.col(path).cast("double").alias(name) for name, path in COUNTERS.items()])
    state = f.struct("address", "listeners", "pid", dispatching_of_sample().alias("dispatching"), "memory_bytes")
    # Ordered by number, not by time: the clock of a peer may be set back.
    boots = samples.groupBy(*PEER_KEY, "boot").agg(
        f.min_by(counters, "number").alias("first"),
        f.max_by(counters, "number").alias("last"),
        f.max_by(state, "number").alias("state"),
        f.max("landed").alias("landed"),
        *[f.max(name).alias(name) for name in ("subscriptions", "topics", "memory_bytes")],
    )
    peers = boots.groupBy(*PEER_KEY).agg(
        f.count(f.lit(1)).alias("starts"),
        *[f.sum(f"last.{name}").alias(name) for name in COUNTERS],
        *[f.sum(f.col(f"last.{name}") - f.col(f"first.{name}")).alias(f"more_{name}") for name in COUNTERS],
        f.max_by("state", f.struct("landed", "boot")).alias("state"),
        *[f.max(name).cast("double").alias(name) for name in ("subscriptions", "topics", "memory_bytes")],
    )
    return peers.select(
        *PEER_KEY,
        "starts",
        *COUNTERS,
        *[f"state.{name}" for name in ("address", "listeners", "pid", "dispatching")],
        f.col("state.memory_bytes").cast("double").alias("memory_usage"),
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
    return reduce(lambda left, right: left + right, [f.col(name) for name in names])


def _speed(*names: str) -> Column:
    """Growth per second between the first and the last sample of each start; null with a single sample."""
    return per_second(_sum(*[f"more_{name}" for name in names]), f.col("more_run_time"))


def per_second(growth: Column, seconds: Column) -> Column:
    """Growth per second; null for a time below SHORTEST_S."""
    return f.when(f.abs(seconds) >= SHORTEST_S, growth / seconds)
