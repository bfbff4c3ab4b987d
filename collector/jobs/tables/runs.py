"""The table of the runs: the number of peers and records, their time span, and the number of missing records."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ringmq.collector.jobs.schema import DELIVERY, KIND, LATENCIES, SAMPLE
from ringmq.collector.jobs.tables.columns import RUNS
from ringmq.collector.jobs.tables.facts import Facts


def runs(facts: Facts) -> DataFrame:
    """A row for each run."""
    starts = facts.records.groupBy("run", "peer", "boot").agg(
        f.min("landed").alias("began"),
        f.max("landed").alias("ended"),
        *[
            f.count_if(f.col(KIND) == kind).alias(name)
            for name, kind in (("samples", SAMPLE), ("deliveries", DELIVERY), ("latencies", LATENCIES))
        ],
        # Peers number their records without gaps, so every absent number between the lowest and the highest was lost.
        (f.max("number").cast("double") - f.min("number") + 1 - f.count("number")).alias("missing"),
        f.coalesce(f.max("unrecorded").cast("double"), f.lit(0.0)).alias("unrecorded"),
    )
    total = starts.groupBy("run").agg(
        f.count_distinct("peer").alias("peers"),
        f.count(f.lit(1)).alias("starts"),
        f.min("began").alias("began"),
        (f.max("ended") - f.min("began")).alias("lasted"),
        *[f.sum(name).alias(name) for name in ("samples", "deliveries", "latencies", "missing", "unrecorded")],
    )
    return total.select(RUNS.names)
