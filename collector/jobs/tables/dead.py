"""The table of what was set aside, by the ingest and by the stream: how many lines for which reason."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables.columns import DEAD
from ringmq.collector.jobs.tables.facts import Facts

_PARTICULARS: Final = r" \(byte [0-9]+\)|\b[0-9a-f]{32}\b"
"""What makes reasons different that are the same: places and peers."""


def dead(facts: Facts) -> DataFrame:
    """A row for each reason."""
    by_ingest = facts.letters.select(f.lit("ingest").alias("by"), "reason")
    by_stream = facts.dead.select(f.lit("stream").alias("by"), "reason")
    reason = f.regexp_replace(f.coalesce("reason", f.lit("not a dead letter itself")), _PARTICULARS, "…")
    letters = by_ingest.unionByName(by_stream).withColumn("reason", reason)
    return letters.groupBy("by", "reason").agg(f.count(f.lit(1)).alias("lines")).select(DEAD.names)
