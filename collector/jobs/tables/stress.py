"""How the load of spreading messages lies on peers and links, and how deep the trees are."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables.columns import STRESS

LEVEL: Final = ("run", "dispatching")
MESSAGE: Final = (*LEVEL, "publisher", "sequence")


def stress(deliveries: DataFrame) -> DataFrame:
    """A row for each run and dispatching."""
    # Ids are long, and all deliveries have to be sorted by message: a number stands for who published it.
    facts = deliveries.select(
        *LEVEL,
        f.xxhash64("origin", "origin_boot").alias("publisher"),
        "sequence",
        "sender",
        "peer",
        "hops",
        f.col("sends").cast("double").alias("sends"),
        f.when(f.col("hops") > 0, 1.0).otherwise(0.0).alias("copies"),
        f.when(f.col("duplicate"), 1.0).otherwise(0.0).alias("again"),
    )
    copies = facts.where("copies > 0")
    result = _messages(facts)
    for other in (
        _repeats(copies),
        _load(facts, ("peer",), "peer", "sends"),
        _load(copies, ("sender", "peer"), "link", "copies"),
    ):
        result = result.join(other, [*LEVEL], "left")
    repeats = f.coalesce("repeats", f.lit(0.0))
    most = f.coalesce("most_copies", f.when(f.col("copies") > 0, 1.0))
    return result.withColumns(
        {
            "links": f.coalesce("links", f.lit(0)),
            "link_stress_mean": f.try_divide("copies", f.col("copies") - repeats),
            "link_stress_max": most,
            "duplicate_share": f.try_divide("duplicates", "copies"),
        }
    ).select(STRESS.names)


def _messages(facts: DataFrame) -> DataFrame:
    """What is told of single messages, over all of them. A peer that one came to again has still one part in it."""
    by_message = facts.groupBy(*MESSAGE).agg(
        f.sum("copies").alias("copies"),
        f.sum("again").alias("again"),
        f.max("hops").alias("depth"),
        f.sum("sends").alias("sends"),
        f.max("sends").alias("most_sends"),
        f.sum(1 - f.col("again")).alias("parts"),
    )
    return by_message.groupBy(*LEVEL).agg(
        f.count(f.lit(1)).alias("messages"),
        f.try_divide(f.sum("sends"), f.sum("parts")).alias("node_stress_mean"),
        f.max("most_sends").alias("node_stress_max"),
        f.mean("depth").alias("depth_mean"),
        f.max("depth").cast("double").alias("depth_max"),
        f.sum("again").alias("duplicates"),
        f.sum("copies").alias("copies"),
    )


def _repeats(copies: DataFrame) -> DataFrame:
    """How many copies crossed a link that their message had crossed before. Only messages with duplicates have such."""
    suspects = copies.where("again > 0").select(*MESSAGE).distinct()
    on_link = (
        copies.join(suspects, [*MESSAGE], "left_semi")
        .groupBy(*MESSAGE, "sender", "peer")
        .agg(f.sum("copies").alias("many"))
    )
    return on_link.groupBy(*LEVEL).agg(
        f.sum(f.col("many") - 1).alias("repeats"),
        f.max("many").alias("most_copies"),
    )


def _load(facts: DataFrame, named: tuple[str, ...], what: str, load: str) -> DataFrame:
    """How many of them there are, and the share of the whole load that is on the busiest."""
    each = facts.groupBy(*LEVEL, *named).agg(f.sum(load).alias("load"))
    return each.groupBy(*LEVEL).agg(
        f.count(f.lit(1)).alias(f"{what}s"),
        f.try_divide(f.max("load"), f.sum("load")).alias(f"busiest_{what}"),
    )
