"""Reduces the Parquet to all tables, and replaces the tables of a data folder at once, each a file of JSON lines.

Knows the intermediate results that tables share; `collector.jobs.tables` computes each table. Rows stay in Spark.
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


def reduce(spark: SparkSession, data: str, report: Callable[[str], None]) -> None:
    """Write all tables of a data folder, replacing earlier tables. Reports the name of each table before its job.

    Raises CollectorError if there are no records.
    """
    all_facts = facts.read(spark, data)
    folders = Folders(spark)
    # The earlier tables stay until all new ones are complete, so a failure loses nothing.
    fresh = below(data, f"{REDUCED}.new")
    folders.remove(fresh)
    with tables(all_facts) as all_tables:
        for name, rows in all_tables.items():
            report(name)
            _sorted(rows, HEADS[name]).write.json(below(fresh, name), ignoreNullFields=True)
    folders.replace(below(data, REDUCED), fresh)


@contextmanager
def tables(all_facts: Facts) -> Iterator[dict[str, DataFrame]]:
    """The rows of all tables by their names. Shared intermediate results stay cached while this is open."""
    peers = by_peer(all_facts).cache()
    counts = histograms.counts(all_facts).cache()
    try:
        yield {
            columns.RUNS.name: runs(all_facts),
            columns.PER_PEER.name: per_peer(peers),
            columns.BOXES.name: boxes(peers),
            columns.RATES.name: rates(all_facts.samples),
            columns.STRESS.name: stress(all_facts.deliveries),
            columns.LATENCIES.name: latencies(counts),
            columns.DEAD.name: dead(all_facts),
        }
    finally:
        peers.unpersist()
        counts.unpersist()


def _sorted(rows: DataFrame, head: Head) -> DataFrame:
    """The rows in one file, in the order of the table."""
    order = [_row_order(name) if name == "row" else f.col(name) for name in head.order]
    return rows.select(head.names).coalesce(1).sortWithinPartitions(*order)


def _row_order(name: str) -> Column:
    """A sort key: peers first, then the total and the average."""
    return f.when(f.col(name) == TOTAL, 1).when(f.col(name) == AVERAGE, 2).otherwise(0)
