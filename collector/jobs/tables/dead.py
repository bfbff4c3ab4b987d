"""The table of lines that the ingest and the stream refused: the number of lines for each reason."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables.columns import DEAD
from ringmq.collector.jobs.tables.facts import Facts

_PARTICULARS: Final = r" \(byte [0-9]+\)|\b[0-9a-f]{32}\b"
"""Byte positions and peer ids, in which otherwise equal reasons differ."""


def dead(facts: Facts) -> DataFrame:
    """A row for each reason."""
    by_ingest = facts.letters.select(f.lit("ingest").alias("by"), "reason")
    by_stream = facts.dead.select(f.lit("stream").alias("by"), "reason")
    # Any file may lie in the folder of dead letters, so a line may have no reason.
    reason = f.regexp_replace(f.coalesce("reason", f.lit("not a dead letter itself")), _PARTICULARS, "…")
    letters = by_ingest.unionByName(by_stream).withColumn("reason", reason)
    return letters.groupBy("by", "reason").agg(f.count(f.lit(1)).alias("lines")).select(DEAD.names)
