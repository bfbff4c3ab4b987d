"""Reduces the Parquet to all tables, and puts them into the data folder at once, each as a file of JSON lines.

Knows what the tables share; how each is computed, `collector.jobs.tables` knows. No rows come to this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ringmq.collector.data_folder import REDUCED, below
from ringmq.collector.folders import Folders
from ringmq.collector.jobs.tables import columns, facts, histograms
from ringmq.collector.jobs.tables.boxes import boxes
from ringmq.collector.jobs.tables.columns import HEADS, Head
from ringmq.collector.jobs.tables.dead import dead
from ringmq.collector.jobs.tables.facts import Facts
from ringmq.collector.jobs.tables.latencies import latencies
from ringmq.collector.jobs.tables.per_peer import AVERAGE, TOTAL, by_peer, per_peer
from ringmq.collector.jobs.tables.rates import rates
from ringmq.collector.jobs.tables.runs import runs
from ringmq.collector.jobs.tables.stress import stress


def reduce(spark: SparkSession, data: str, tell: Callable[[str], None]) -> None:
    """Write all tables of a data folder, in the place of those that were there. Tells the name of each before.

    Raises CollectorError if there is nothing to reduce.
    """
    found = facts.read(spark, data)
    folders = Folders(spark)
    fresh = below(data, f"{REDUCED}.new")
    folders.remove(fresh)
    with tables(found) as all_tables:
        for name, rows in all_tables.items():
            tell(name)
            _sorted(rows, HEADS[name]).write.json(below(fresh, name), ignoreNullFields=True)
    folders.replace(below(data, REDUCED), fresh)


@contextmanager
def tables(found: Facts) -> Iterator[dict[str, DataFrame]]:
    """The rows of all tables by their names. What several share is computed once, and kept as long as this is open."""
    peers = by_peer(found).cache()
    counts = histograms.counts(found).cache()
    try:
        yield {
            columns.RUNS.name: runs(found),
            columns.PER_PEER.name: per_peer(peers),
            columns.BOXES.name: boxes(peers),
            columns.RATES.name: rates(found.samples),
            columns.STRESS.name: stress(found.deliveries),
            columns.LATENCIES.name: latencies(counts),
            columns.DEAD.name: dead(found),
        }
    finally:
        peers.unpersist()
        counts.unpersist()


def _sorted(rows: DataFrame, head: Head) -> DataFrame:
    """In one file, in the order of the table."""
    order = [_place(name) if name == "row" else f.col(name) for name in head.order]
    return rows.select(head.names).coalesce(1).sortWithinPartitions(*order)


def _place(name: str) -> Column:
    """The total and the average come last."""
    return f.when(f.col(name) == TOTAL, 1).when(f.col(name) == AVERAGE, 2).otherwise(0)
