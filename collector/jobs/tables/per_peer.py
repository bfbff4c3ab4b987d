"""The table of the peers: a row for each, then the total and the average of each run (Figure 3.4 of the thesis)."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables import boots
from ringmq.collector.jobs.tables.columns import PER_PEER, Unit
from ringmq.collector.jobs.tables.facts import Facts, latency_s, reached_clients

PEER: Final = "peer"
TOTAL: Final = "total"
AVERAGE: Final = "average"
"""The values of the column `row`."""
CLIENT_LISTENER: Final = "mqtt"
"""The listener whose port is shown, if a peer has several."""
_NUMBERS: Final = [
    column.name for column in PER_PEER.columns if column.unit not in (Unit.TEXT, Unit.PEER) and column.name != "number"
]
_GREATEST: Final = ("run_time",)
"""Columns whose total is the greatest value instead of the sum."""
_MEANS: Final = {"avg_latency": ("sum", "measured"), "avg_ring_latency": ("ring_sum", "ring_measured")}
"""Columns whose total is the mean over all messages, with the columns of their sums and counts."""


def by_peer(facts: Facts) -> DataFrame:
    """A row for each peer of a run, with the columns from which `per_peer` computes the total and the average."""
    # A full join: a peer may have samples without deliveries, and deliveries without samples.
    peers = boots.by_peer(facts.samples).join(_latencies(facts), ["run", "peer"], "full")
    first = f.try_element_at(f.map_values("listeners"), f.lit(1))
    listener = f.coalesce(f.try_element_at("listeners", f.lit(CLIENT_LISTENER)), first)
    peers = peers.withColumns(
        {
            "port": f.regexp_extract(listener, ":([0-9]+)$", 1),
            "ip": f.regexp_extract("address", r"^\[?(.*?)\]?(?::[0-9]+)?$", 1),
            "pid": f.col("pid").cast("string"),
            "measured": f.coalesce("measured", f.lit(0.0)),
            "negative": f.coalesce("negative", f.lit(0.0)),
            "row": f.lit(PEER),
        }
    )
    # Peers of one machine are numbered by port, as a number and not as text.
    order = Window.partitionBy("run").orderBy(f.col("port").try_cast("int"), "address", "peer")
    return peers.withColumn("number", f.row_number().over(order))


def per_peer(peers: DataFrame) -> DataFrame:
    """The table, made from `by_peer`."""
    total = {name: f.max(name) if name in _GREATEST else f.sum(name) for name in _NUMBERS}
    total |= {name: f.try_divide(f.sum(value), f.sum(count)) for name, (value, count) in _MEANS.items()}
    average = {name: f.avg(name) for name in _NUMBERS}
    rows = peers.select(PER_PEER.names)
    for row, cells in ((TOTAL, total), (AVERAGE, average)):
        summary = peers.groupBy("run").agg(*[cell.alias(name) for name, cell in cells.items()])
        rows = rows.unionByName(summary.withColumn("row", f.lit(row)), allowMissingColumns=True)
    return rows


def _latencies(facts: Facts) -> DataFrame:
    """The number and sum of the latencies of deliveries to the clients of each peer.

    The columns with `ring_` exclude messages that the peer's own clients published.
    """
    counted = reached_clients()
    # Deliveries that reached no client are not filtered out but counted as zero: every peer with a record must have a
    # row in the table.
    deliveries = facts.deliveries.select(
        "run",
        "peer",
        "hops",
        f.when(counted, 1.0).otherwise(0.0).alias("count"),
        f.when(counted, latency_s()).otherwise(0.0).alias("seconds"),
        f.when(counted & (latency_s() < 0), 1.0).otherwise(0.0).alias("negative"),
    )
    histograms = facts.latencies.select(
        "run",
        "peer",
        "hops",
        f.col("count").cast("double").alias("count"),
        f.col("sum_s").alias("seconds"),
        f.when(f.col("min_s") < 0, 1.0).otherwise(0.0).alias("negative"),
    )
    from_the_ring = f.col("hops") > 0
    sums = (
        deliveries.unionByName(histograms)
        .groupBy("run", "peer")
        .agg(
            f.sum("count").alias("measured"),
            f.sum("seconds").alias("sum"),
            f.sum(f.when(from_the_ring, f.col("count"))).alias("ring_measured"),
            f.sum(f.when(from_the_ring, f.col("seconds"))).alias("ring_sum"),
            f.sum("negative").alias("negative"),
        )
    )
    return sums.withColumns({name: f.try_divide(value, count) for name, (value, count) in _MEANS.items()})
