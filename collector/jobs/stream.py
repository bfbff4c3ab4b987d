"""The streaming query from the landing folder into Parquet: it writes each record once, and keeps bad lines apart.

Owns the conversion of lines to rows, and the query over all landed files. `checking` decides which lines are records.
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
from ringmq.collector.jobs.validation import LAST_SECOND, is_sound, parsed, refusal_reason

FILES: Final = "*.jsonl"
REMEMBER_S: Final = 600
"""A record that arrives again within this time after landing is dropped. The ingest lands each record once; this is for
copies of its files, and for several ingests. Until then each record takes some 100 bytes on the disk."""
LOOK_S: Final = 1
"""The time between two looks at the progress of the query."""
BATCH_MB: Final = 256
"""The lines of one batch, but at least one file: some 500,000 records, which fit into a heap of 1 GB."""
PAUSE_S: Final = 10.0
"""The time between two batches. Each batch writes files of its own, so shorter pauses make more and smaller files."""
NO_RUN: Final = "-"
"""The folder of lines that are not records, in place of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """Settings of a stream."""

    once: bool = False
    """Whether to end when all landed records are in the Parquet, instead of waiting for more."""
    pause_s: float = PAUSE_S
    batch_mb: float = BATCH_MB
    delete: bool = False
    """Whether to delete landed files whose records are in the Parquet."""


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """Counts of the lines of one batch, or of several."""

    lines: int = 0
    records: int = 0
    """New records in the Parquet."""
    dead: int = 0
    repeated: int = 0
    late: int = 0
    """Records lost because the clock of this machine was set back by more than half of REMEMBER_S."""

    def __add__(self, other: StreamProgress) -> StreamProgress:
        return StreamProgress(
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
            parts.append(f"{self.late:,} lost because the clock was set back")
        return ", ".join(parts)


def rows_of(lines: DataFrame) -> DataFrame:
    """The row of the Parquet, a record or a dead letter, for each line: its `value` and the `file` it comes from."""
    value, record, sound = f.col("value"), f.col("record"), f.col("sound")
    read = lines.withColumn("record", parsed(value)).withColumn("sound", is_sound(value, record))
    read = read.withColumn("reason", f.when(~sound, refusal_reason(value, record)))
    # A line that is not sound may have been parsed all the same. None of its values may reach the Parquet.
    read = read.withColumn("record", f.when(sound, record))
    now = f.unix_micros(f.current_timestamp()) / 1e6
    at = f.coalesce("record.at", now)
    columns = {}
    for member in [member for members in MEMBERS.values() for member in members]:
        kinds = [kind for kind, members in MEMBERS.items() if member in members]
        columns[member.encode_name] = _with_default(member, record, f.col("record.kind").isin(kinds))
    columns |= {
        # Files that peers wrote themselves have no `landed`, and any value may stand in a copied file.
        "landed": f.coalesce(f.when(f.col("record.landed").between(0, LAST_SECOND), f.col("record.landed")), at),
        "reason": f.col("reason"),
        "line": f.when(~sound, f.make_valid_utf8(value)),
        "file": f.when(~sound, f.col("file")),
        KIND: f.coalesce("record.kind", f.lit(DEAD)),
        "run": f.coalesce("record.run", f.lit(NO_RUN)),
        "hour": f.date_format(f.timestamp_seconds(at), "yyyy-MM-dd'T'HH"),
    }
    return read.select([columns[name].alias(name) for name in STORED.names])


def _with_default(member: inspect.Field, record: Column, applies: Column) -> Column:
    """A member; its default if it is missing in a record of a kind to which it `applies`."""
    value = record.getField(member.encode_name)
    if isinstance(member.type, inspect.StructType):
        inner = [_with_default(field, value, f.lit(True)).alias(field.encode_name) for field in member.type.fields]
        return f.when(value.isNotNull(), f.struct(inner))
    if member.default is NODEFAULT or member.default is None:
        return value
    return f.coalesce(value, f.when(applies, f.lit(member.default)))


def deduplicated(rows: DataFrame) -> DataFrame:
    """The rows without repeated records. All dead letters stay."""
    dead = f.col(KIND) == DEAD
    # Dead letters have no peer, boot and number. A random key makes each of them unique.
    key = f.struct(f.when(dead, f.uuid()).otherwise(f.col("peer")).alias("peer"), "boot", "number")
    # The watermark follows the latest time, and older rows are dropped. A wrong clock must make neither its own records
    # late, nor all records after them.
    now = f.current_timestamp()
    earliest = now - f.make_dt_interval(secs=f.lit(REMEMBER_S / 2))
    landed = f.timestamp_seconds("landed")
    marked = rows.withColumn("key", key).withColumn("marked", f.least(now, f.greatest(earliest, landed)))
    unique = marked.withWatermark("marked", f"{REMEMBER_S} seconds").dropDuplicatesWithinWatermark(["key"])
    return unique.drop("key", "marked")


def start(spark: SparkSession, data: str, settings: StreamSettings) -> StreamingQuery:
    """Start the query, which continues where the last one ended. The caller must stop it."""
    lines = (
        spark.readStream.format("text")
        .option("lineSep", "\n")
        .option("pathGlobFilter", FILES)
        .option("maxBytesPerTrigger", str(max(1, int(settings.batch_mb * 1e6))))
        .option("cleanSource", "delete" if settings.delete else "off")
        .load(below(data, LANDING))
        .select("value", _decoded(f.col("_metadata.file_name")).alias("file"))
    )
    dead = f.count_if(f.col(KIND) == DEAD).alias("dead")
    read = rows_of(lines).observe("read", f.count(f.lit(1)).alias("lines"), dead)
    written = deduplicated(read).observe("written", f.count(f.lit(1)).alias("rows"))
    writer = (
        written.writeStream.format("parquet")
        .queryName("ringmq collect stream")
        .option("path", below(data, PARQUET))
        .option("checkpointLocation", below(data, CHECKPOINT))
        .partitionBy(*PARTITIONS)
    )
    trigger: dict[str, Any] = (
        {"availableNow": True} if settings.once else {"processingTime": f"{settings.pause_s} seconds"}
    )
    return writer.trigger(**trigger).start()


def _decoded(name: Column) -> Column:
    """The name of a file, which Spark gives in URL encoding."""
    # Spark does not encode a plus, which `try_url_decode` would read as a space.
    return f.coalesce(f.try_url_decode(f.replace(name, f.lit("+"), f.lit("%2B"))), name)


def run(
    spark: SparkSession, data: str, settings: StreamSettings, report: Callable[[StreamProgress], None]
) -> StreamProgress:
    """Stream until all landed records are stored, with `settings.once`, or for ever.

    Reports each batch, and returns the sum of all. Raises CollectorError if there is no landing folder.
    """
    folders = Folders(spark)
    if settings.once and not folders.exists(below(data, LANDING)):
        raise CollectorError(f"data: there are no landed records in {data}: run ringmq collect ingest first")
    folders.make(below(data, LANDING))
    query = start(spark, data, settings)
    total, last_batch = StreamProgress(), -1
    try:
        ended = False
        while not ended:
            ended = bool(query.awaitTermination(LOOK_S))
            # `recentProgress` contains earlier batches again, and entries without metrics for an idle query.
            for progress in query.recentProgress:
                if progress["batchId"] > last_batch and progress["observedMetrics"]:
                    last_batch = progress["batchId"]
                    total += progress_of(progress)
                    report(progress_of(progress))
    finally:
        query.stop()
    return total


def progress_of(batch: Mapping[str, Any]) -> StreamProgress:
    """The counts in Spark's progress of a batch."""
    read, rows = batch["observedMetrics"]["read"], batch["observedMetrics"]["written"]["rows"]
    late = sum(operator["numRowsDroppedByWatermark"] for operator in batch["stateOperators"])
    # Spark does not count dropped duplicates: they are the lines that were neither written nor late.
    repeated = read["lines"] - rows - late
    return StreamProgress(read["lines"], rows - read["dead"], read["dead"], repeated, late)
