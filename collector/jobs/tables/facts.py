"""The input of the jobs: the records of each kind, as the stream has stored them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from ringmq.collector.data_folder import PARQUET, below
from ringmq.collector.errors import CollectorError
from ringmq.collector.folders import Folders
from ringmq.collector.ingest.spool import DEAD as LETTERS
from ringmq.collector.jobs.schema import DEAD, DELIVERY, KIND, LATENCIES, SAMPLE, STORED

LETTER: Final = "reason string"
"""The part of the ingest's dead letters that the jobs need."""


@dataclass(frozen=True, slots=True)
class Facts:
    """All records and dead letters of a data folder."""

    stored: DataFrame
    """Records and refused lines, each a row of `schema.STORED`."""
    letters: DataFrame
    """The dead letters of ingests."""

    @property
    def records(self) -> DataFrame:
        """The records of all kinds."""
        return self.stored.where(f.col(KIND) != DEAD)

    @property
    def samples(self) -> DataFrame:
        return self.stored.where(f.col(KIND) == SAMPLE)

    @property
    def deliveries(self) -> DataFrame:
        return self.stored.where(f.col(KIND) == DELIVERY)

    @property
    def latencies(self) -> DataFrame:
        return self.stored.where(f.col(KIND) == LATENCIES)

    @property
    def dead(self) -> DataFrame:
        """Lines that the stream refused."""
        return self.stored.where(f.col(KIND) == DEAD)


def read(spark: SparkSession, data: str) -> Facts:
    """The facts of a data folder. Raises CollectorError if it has no records."""
    folders = Folders(spark)
    missing = CollectorError(f"data: there are no records in {data}: run ringmq collect stream first")
    if not folders.exists(below(data, PARQUET)):
        raise missing
    stored = spark.read.schema(STORED).parquet(below(data, PARQUET))
    if stored.isEmpty():
        raise missing
    if folders.exists(below(data, LETTERS)):
        letters = spark.read.schema(LETTER).option("pathGlobFilter", "*.jsonl").json(below(data, LETTERS))
    else:
        letters = spark.createDataFrame([], LETTER)
    return Facts(stored, letters)


def latency_s() -> Column:
    """The latency of a delivery. It is negative if the clock of the receiver is behind."""
    return (f.col("received_ns") - f.col("sent_ns")) / 1e9


def reached_clients() -> Column:
    """Whether a delivery reached clients for the first time. Histograms of peers count the same deliveries."""
    return (f.col("clients") > 0) & ~f.col("duplicate")
