"""Messages over time: the numbers and rates of messages that a run delivered to clients and received from them.

Computed from samples, whose interval is a setting of the peers. The growth of a counter between two samples is spread
evenly over the time between them.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from ringmq.collector.jobs.tables.boots import dispatching_of_sample, per_second
from ringmq.collector.jobs.tables.columns import RATES

WIDTHS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)
"""Widths of the steps of time. A run has the smallest width that gives at most MAX_STEPS steps."""
MAX_STEPS: Final = 600
"""The most steps of a run, more than a plot can show."""
START_FACTOR: Final = 2.0
"""The start of a peer counts as a sample of zeros, if the uptime of its first sample is at most this multiple of the
time from its first to its second sample."""
ROUNDING: Final = 1e-6
"""A part of the time between two samples that is smaller than this share of it is a rounding error."""


def rates(samples: DataFrame) -> DataFrame:
    """A row for each step of time of a run and dispatching."""
    spans = _spans(samples)
    run = Window.partitionBy("run")
    spans = spans.withColumn("zero", f.min("start").over(run))
    spans = spans.withColumns({"start": f.col("start") - f.col("zero"), "end": f.col("end") - f.col("zero")})
    spans = spans.withColumn("width", _width(f.max("end").over(run)))
    first = f.floor(f.col("start") / f.col("width"))
    last = f.greatest(first, f.ceil(f.col("end") / f.col("width")) - 1)
    parts = spans.withColumn("step", f.explode(f.sequence(first, last)))
    parts = parts.withColumns(
        {
            "from": f.greatest("start", f.col("step") * f.col("width")),
            "to": f.least("end", (f.col("step") + 1) * f.col("width")),
        }
    )
    part, whole = f.col("to") - f.col("from"), f.col("end") - f.col("start")
    parts = parts.where((whole <= 0) | (part > ROUNDING * whole))
    parts = parts.withColumn("share", f.when(whole > 0, part / whole).otherwise(1.0))
    steps = parts.groupBy("run", "dispatching", "step", "width").agg(
        f.try_divide(f.sum(f.col("to") - f.col("from")), f.count_distinct("peer")).alias("seen"),
        f.sum(f.col("share") * f.col("delivered")).alias("delivered"),
        f.sum(f.col("share") * f.col("published")).alias("published"),
    )
    # The samples cover only a part of the first and the last step of a run. Rates of these steps refer to that part.
    at_an_end = (f.col("step") == 0) | (f.col("step") == f.max("step").over(run))
    steps = steps.withColumn("seen", f.when(at_an_end, f.col("seen")).otherwise(f.col("width")))
    up_to_here = Window.partitionBy("run", "dispatching").orderBy("step").rowsBetween(Window.unboundedPreceding, 0)
    return steps.select(
        "run",
        "dispatching",
        "width",
        (f.col("step") * f.col("width")).alias("time"),
        f.round(f.sum("delivered").over(up_to_here)).alias("delivered"),
        f.round(f.sum("published").over(up_to_here)).alias("published"),
        per_second(f.col("delivered"), f.col("seen")).alias("delivery_rate"),
        per_second(f.col("published"), f.col("seen")).alias("publish_rate"),
    ).select(RATES.names)


def _spans(samples: DataFrame) -> DataFrame:
    """The time between two samples of a start, and the growth of its counters in that time."""
    start = ("run", "peer", "boot")
    spans = samples.select(
        *start,
        "number",
        "uptime_s",
        "landed",
        dispatching_of_sample().alias("dispatching"),
        f.col("mqtt.messages_out").cast("double").alias("out"),
        f.col("mqtt.messages_in").cast("double").alias("in"),
    )
    whole = Window.partitionBy(*start)
    order = whole.orderBy("number")
    # The clocks of peers may be wrong, so all times follow the clock of the ingest: a sample was taken at its uptime
    # after the start. The start is `landed` minus the uptime, of the sample that took the shortest way to the ingest.
    spans = spans.withColumns(
        {
            "began": f.min(f.col("landed") - f.col("uptime_s")).over(whole),
            "up_before": f.lag("uptime_s").over(order),
            "out_before": f.lag("out").over(order),
            "in_before": f.lag("in").over(order),
            "up_after": f.lead("uptime_s").over(order),
        }
    )
    to_next = f.col("up_after") - f.col("uptime_s")
    from_start = f.col("up_before").isNull() & (f.col("uptime_s") <= START_FACTOR * to_next)
    spans = spans.withColumns(
        {name: f.when(from_start, 0.0).otherwise(f.col(name)) for name in ("up_before", "out_before", "in_before")}
    ).where(f.col("up_before").isNotNull())
    return spans.select(
        "run",
        "peer",
        "dispatching",
        (f.col("began") + f.col("up_before")).alias("start"),
        (f.col("began") + f.greatest("up_before", "uptime_s")).alias("end"),
        (f.col("out") - f.col("out_before")).alias("delivered"),
        (f.col("in") - f.col("in_before")).alias("published"),
    )


def _width(span: Column) -> Column:
    wide_enough = f.filter(
        f.array(*[f.lit(float(width)) for width in WIDTHS_S]), lambda width: width * MAX_STEPS >= span
    )
    return f.coalesce(f.array_min(wide_enough), span / MAX_STEPS)
