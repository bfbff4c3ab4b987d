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
"""What the column `row` says."""
CLIENT_LISTENER: Final = "mqtt"
"""Whose port is shown, if a peer has several."""
_NUMBERS: Final = [
    column.name for column in PER_PEER.columns if column.unit not in (Unit.TEXT, Unit.PEER) and column.name != "number"
]
_GREATEST: Final = ("run_time",)
"""Of which the total row has the greatest, not the sum."""
_OVER_MESSAGES: Final = {"avg_latency": ("sum", "measured"), "avg_ring_latency": ("ring_sum", "ring_measured")}
"""Of which it has the mean over all messages: the columns with the sums, and with how many there are."""


def by_peer(facts: Facts) -> DataFrame:
    """A row for each peer of a run, without the total and the average, and with what these are made from."""
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
    order = Window.partitionBy("run").orderBy(f.col("port").try_cast("int"), "address", "peer")
    return peers.withColumn("number", f.row_number().over(order))


def per_peer(peers: DataFrame) -> DataFrame:
    """The table, made from `by_peer`."""
    total = {name: f.max(name) if name in _GREATEST else f.sum(name) for name in _NUMBERS}
    total |= {name: f.try_divide(f.sum(value), f.sum(many)) for name, (value, many) in _OVER_MESSAGES.items()}
    average = {name: f.avg(name) for name in _NUMBERS}
    rows = peers.select(PER_PEER.names)
    for row, cells in ((TOTAL, total), (AVERAGE, average)):
        found = peers.groupBy("run").agg(*[cell.alias(name) for name, cell in cells.items()])
        rows = rows.unionByName(found.withColumn("row", f.lit(row)), allowMissingColumns=True)
    return rows


def _latencies(facts: Facts) -> DataFrame:
    """Of what reached the clients of each peer: how many, and the sum. The same without what its own clients sent.

    A peer whose deliveries reached no client has a row of zeros: a peer that says anything is in the table.
    """
    counted = reached_clients()
    deliveries = facts.deliveries.select(
        "run",
        "peer",
        "hops",
        f.when(counted, 1.0).otherwise(0.0).alias("many"),
        f.when(counted, latency_s()).otherwise(0.0).alias("seconds"),
        f.when(counted & (latency_s() < 0), 1.0).otherwise(0.0).alias("negative"),
    )
    histograms = facts.latencies.select(
        "run",
        "peer",
        "hops",
        f.col("count").cast("double").alias("many"),
        f.col("sum_s").alias("seconds"),
        f.when(f.col("min_s") < 0, 1.0).otherwise(0.0).alias("negative"),
    )
    far = f.col("hops") > 0
    sums = (
        deliveries.unionByName(histograms)
        .groupBy("run", "peer")
        .agg(
            f.sum("many").alias("measured"),
            f.sum("seconds").alias("sum"),
            f.sum(f.when(far, f.col("many"))).alias("ring_measured"),
            f.sum(f.when(far, f.col("seconds"))).alias("ring_sum"),
            f.sum("negative").alias("negative"),
        )
    )
    return sums.withColumns({name: f.try_divide(*sums_of) for name, sums_of in _OVER_MESSAGES.items()})
