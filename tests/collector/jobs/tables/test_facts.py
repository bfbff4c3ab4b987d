"""The facts read from a data folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs.schema import STORED
from ringmq.collector.jobs.tables import facts
from ringmq.logger.records import Record
from tests.collector.making import delivery, latencies, rows, sample, stored

RECORDS: list[Record] = [
    sample(),
    delivery(latency_ns=-500),
    delivery(clients=0),
    delivery(duplicate=True),
    latencies(),
]


@pytest.mark.parametrize("made", ["not", "empty"])
def test_folder_without_records_raises(spark: SparkSession, tmp_path: Path, made: str) -> None:
    if made == "empty":
        spark.createDataFrame([], STORED).write.parquet(f"{tmp_path}/parquet")
    with pytest.raises(CollectorError, match=r"there are no records in .*: run ringmq collect stream first"):
        facts.read(spark, str(tmp_path))


def test_kinds_of_records_are_separated(spark: SparkSession, tmp_path: Path) -> None:
    stored(spark, RECORDS).write.partitionBy("kind", "run", "hour").parquet(f"{tmp_path}/parquet")
    found = facts.read(spark, str(tmp_path))
    counted = [
        found.samples.count(),
        found.deliveries.count(),
        found.latencies.count(),
        found.records.count(),
        found.dead.count(),
        found.letters.count(),
    ]
    assert counted == [1, 3, 1, 5, 0, 0]
    assert found.stored.schema == STORED


def test_dead_letters_of_an_ingest_are_read(spark: SparkSession, tmp_path: Path) -> None:
    stored(spark, RECORDS).write.parquet(f"{tmp_path}/parquet")
    (tmp_path / "dead").mkdir()
    (tmp_path / "dead" / "1.jsonl").write_text('{"reason":"so","topic":"t","at":1.0,"line":"x"}\n')
    (tmp_path / "dead" / "1.part").write_text('{"reason":"not yet"}\n')
    assert rows(facts.read(spark, str(tmp_path)).letters) == [{"reason": "so"}]


def test_latency_and_reached_clients_of_deliveries(spark: SparkSession) -> None:
    deliveries = (
        stored(spark, RECORDS)
        .where("kind = 'delivery'")
        .select("number", facts.latency_s().alias("latency"), facts.reached_clients().alias("reached"))
    )
    assert [(row.latency, row.reached) for row in sorted(deliveries.collect())] == [
        (-5e-7, True),
        (0.0, False),
        (0.0, False),
    ]
