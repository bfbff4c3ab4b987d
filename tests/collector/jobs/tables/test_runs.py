"""The table of the runs."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from ringmq.collector.jobs.tables.columns import RUNS
from ringmq.collector.jobs.tables.runs import runs
from ringmq.logger.records import Record
from tests.collector.making import delivery, facts, latencies, rows, sample


def table(spark: SparkSession, records: list[Record], landed: dict[int, float] | None = None) -> dict[str, Any]:
    found = runs(facts(spark, records, landed))
    assert found.columns == RUNS.names
    return {row["run"]: row for row in rows(found)}


def test_recorded_and_missing_records_are_counted(spark: SparkSession) -> None:
    records: list[Record] = [
        sample(number=5, unrecorded=1),
        delivery(number=6),
        delivery(number=9),
        sample(number=10, unrecorded=3),
        latencies(number=0, boot=2),
        sample(number=1, boot=2, unrecorded=10),
        delivery(peer=1, number=7),
        delivery(peer=1, number=7, run="s"),
    ]
    landed = {index: 100.0 + index for index in range(len(records))}
    assert table(spark, records, landed) == {
        "r": {
            "run": "r", "peers": 2, "starts": 3, "began": 100.0, "lasted": 6.0,
            "samples": 3, "deliveries": 3, "latencies": 1, "missing": 2.0, "unrecorded": 13.0,
        },
        "s": {
            "run": "s", "peers": 1, "starts": 1, "began": 107.0, "lasted": 0.0,
            "samples": 0, "deliveries": 1, "latencies": 0, "missing": 0.0, "unrecorded": 0.0,
        },
    }  # fmt: skip


def test_largest_numbers_do_not_overflow(spark: SparkSession) -> None:
    found = table(spark, [delivery(number=0), delivery(number=(1 << 63) - 1)])
    assert found["r"]["missing"] == 2.0**63 - 2


def test_no_records_give_no_rows(spark: SparkSession) -> None:
    assert table(spark, []) == {}
