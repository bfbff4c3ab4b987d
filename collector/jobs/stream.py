"""From the landing folder into Parquet: a streaming query that writes each record once and sets aside what is none.

Owns what becomes of a line, and the query over all files of lines. What a record is, `checking` says.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from msgspec import NODEFAULT, inspect
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from ringmq.collector.data_folder import CHECKPOINT, PARQUET, below
from ringmq.collector.errors import CollectorError
from ringmq.collector.folders import Folders
from ringmq.collector.ingest.spool import LANDING
from ringmq.collector.jobs.schema import DEAD, KIND, MEMBERS, PARTITIONS, STORED
from ringmq.collector.jobs.validation import LAST_SECOND, is_sound, parsed, why_not

FILES: Final = "*.jsonl"
REMEMBER_S: Final = 600
"""So long after it was landed a record is known when it comes again. The ingest lands each once; this is for copies of
its files, and for several ingests. Each record takes some 100 bytes on the disk meanwhile."""
LOOK_S: Final = 1
"""Between two looks at how far the query is."""
BATCH_MB: Final = 256
"""Of lines in one batch, at least one file: some 500,000 records, which a heap of 1 GB can take."""
PAUSE_S: Final = 10.0
"""From one batch to the next. Each writes files of its own, so shorter makes more and smaller ones."""
NO_RUN: Final = "-"
"""The folder of what is no record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class How:
    """Settings of a stream."""

    once: bool = False
    """To end when all that has landed is in the Parquet, instead of waiting for more."""
    pause_s: float = PAUSE_S
    batch_mb: float = BATCH_MB
    delete: bool = False
    """Whether a landed file is deleted when it is in the Parquet."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What became of the lines of one batch, or of all."""

    lines: int = 0
    records: int = 0
    """That are in the Parquet since."""
    dead: int = 0
    repeated: int = 0
    late: int = 0
    """Lost, as the clock of this machine was set back by more than half of REMEMBER_S."""

    def __add__(self, other: Progress) -> Progress:
        return Progress(
            self.lines + other.lines,
            self.records + other.records,
            self.dead + other.dead,
            self.repeated + other.repeated,
            self.late + other.late,
        )

    def __str__(self) -> str:
        parts = [f"{self.records:,} records", f"{self.dead:,} dead letters"]
        if self.repeated:
            parts.append(f"{self.repeated:,} repeated")
        if self.late:
            parts.append(f"{self.late:,} lost, as the clock was set back")
        return ", ".join(parts)


def rows_of(lines: DataFrame) -> DataFrame:
    """Of each line, a `value` of the `file`, a row of the Parquet: a record or a dead letter."""
    value, record, sound = f.col("value"), f.col("record"), f.col("sound")
    read = lines.withColumn("record", parsed(value)).withColumn("sound", is_sound(value, record))
    read = read.withColumn("reason", f.when(~sound, why_not(value, record))).withColumn("record", f.when(sound, record))
    now = f.unix_micros(f.current_timestamp()) / 1e6
    at = f.coalesce("record.at", now)
    columns = {}
    for member in [one for members in MEMBERS.values() for one in members]:
        those = [kind for kind, members in MEMBERS.items() if member in members]
        columns[member.encode_name] = _complete(member, record, f.col("record.kind").isin(those))
    columns |= {
        "landed": f.coalesce(f.when(f.col("record.landed").between(0, LAST_SECOND), f.col("record.landed")), at),
        "reason": f.col("reason"),
        "line": f.when(~sound, f.make_valid_utf8(value)),
        "file": f.when(~sound, f.col("file")),
        KIND: f.coalesce("record.kind", f.lit(DEAD)),
        "run": f.coalesce("record.run", f.lit(NO_RUN)),
        "hour": f.date_format(f.timestamp_seconds(at), "yyyy-MM-dd'T'HH"),
    }
    return read.select([columns[name].alias(name) for name in STORED.names])


def _complete(member: inspect.Field, record: Column, there: Column) -> Column:
    """A member, with its default if it is missing in a record that should have it."""
    value = record.getField(member.encode_name)
    if isinstance(member.type, inspect.StructType):
        inner = [_complete(one, value, f.lit(True)).alias(one.encode_name) for one in member.type.fields]
        return f.when(value.isNotNull(), f.struct(inner))
    if member.default is NODEFAULT or member.default is None:
        return value
    return f.coalesce(value, f.when(there, f.lit(member.default)))


def once_each(rows: DataFrame) -> DataFrame:
    """Without what came before; all dead letters."""
    dead = f.col(KIND) == DEAD
    key = f.struct(f.when(dead, f.uuid()).otherwise(f.col("peer")).alias("peer"), "boot", "number")
    # A wrong clock must not make its records late, which would lose them, nor all others after them.
    now = f.current_timestamp()
    earliest = now - f.make_dt_interval(secs=f.lit(REMEMBER_S / 2))
    landed = f.timestamp_seconds("landed")
    marked = rows.withColumn("key", key).withColumn("marked", f.least(now, f.greatest(earliest, landed)))
    unique = marked.withWatermark("marked", f"{REMEMBER_S} seconds").dropDuplicatesWithinWatermark(["key"])
    return unique.drop("key", "marked")


def start(spark: SparkSession, data: str, how: How) -> StreamingQuery:
    """Start the query, which goes on where an earlier one was. Whoever starts it must stop it."""
    lines = (
        spark.readStream.format("text")
        .option("lineSep", "\n")
        .option("pathGlobFilter", FILES)
        .option("maxBytesPerTrigger", str(max(1, int(how.batch_mb * 1e6))))
        .option("cleanSource", "delete" if how.delete else "off")
        .load(below(data, LANDING))
        .select("value", _decoded(f.col("_metadata.file_name")).alias("file"))
    )
    dead = f.count_if(f.col(KIND) == DEAD).alias("dead")
    read = rows_of(lines).observe("read", f.count(f.lit(1)).alias("lines"), dead)
    written = once_each(read).observe("written", f.count(f.lit(1)).alias("rows"))
    writer = (
        written.writeStream.format("parquet")
        .queryName("ringmq collect stream")
        .option("path", below(data, PARQUET))
        .option("checkpointLocation", below(data, CHECKPOINT))
        .partitionBy(*PARTITIONS)
    )
    trigger: dict[str, Any] = {"availableNow": True} if how.once else {"processingTime": f"{how.pause_s} seconds"}
    return writer.trigger(**trigger).start()


def _decoded(name: Column) -> Column:
    """Spark tells names of files as parts of URLs, where a plus stands for itself."""
    return f.coalesce(f.try_url_decode(f.replace(name, f.lit("+"), f.lit("%2B"))), name)


def run(spark: SparkSession, data: str, how: How, tell: Callable[[Progress], None]) -> Progress:
    """Stream until all is done, with `how.once`, or for ever. Tells each batch; returns the sum of all.

    Raises CollectorError if nothing can have landed there.
    """
    folders = Folders(spark)
    if how.once and not folders.exists(below(data, LANDING)):
        raise CollectorError(f"data: nothing has landed in {data}: run ringmq collect ingest first")
    folders.make(below(data, LANDING))
    query = start(spark, data, how)
    total, told = Progress(), -1
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(LOOK_S))
            for one in query.recentProgress:
                if one["batchId"] > told and one["observedMetrics"]:
                    told = one["batchId"]
                    total += progress_of(one)
                    tell(progress_of(one))
    finally:
        query.stop()
    return total


def progress_of(told: Mapping[str, Any]) -> Progress:
    """What Spark tells of a batch, in our words."""
    read, rows = told["observedMetrics"]["read"], told["observedMetrics"]["written"]["rows"]
    late = sum(one["numRowsDroppedByWatermark"] for one in told["stateOperators"])
    repeated = read["lines"] - rows - late
    return Progress(read["lines"], rows - read["dead"], read["dead"], repeated, late)
