"""Reduces the Parquet to all tables, and replaces the tables of a data folder at once, each a file of JSON lines.

Knows the intermediate results that tables share; `collector.tables` computes each table. No rows come to this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from collector.folders import Folders
from collector.places import REDUCED, below
from collector.tables import facts, heads, histograms
from collector.tables.boxes import boxes
from collector.tables.dead import dead
from collector.tables.facts import Facts
from collector.tables.heads import HEADS, Head
from collector.tables.latencies import latencies
from collector.tables.per_peer import AVERAGE, TOTAL, by_peer, per_peer
from collector.tables.rates import rates
from collector.tables.runs import runs
from collector.tables.stress import stress


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
            heads.RUNS.name: runs(all_facts),
            heads.PER_PEER.name: per_peer(peers),
            heads.BOXES.name: boxes(peers),
            heads.RATES.name: rates(all_facts.samples),
            heads.STRESS.name: stress(all_facts.deliveries),
            heads.LATENCIES.name: latencies(counts),
            heads.DEAD.name: dead(all_facts),
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
