"""The table of refused lines."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ringmq.collector.jobs.schema import STORED
from ringmq.collector.jobs.tables.columns import DEAD
from ringmq.collector.jobs.tables.dead import dead
from ringmq.collector.jobs.tables.facts import LETTER, Facts
from tests.collector.making import PEERS, delivery, rows, stored


def test_reasons_are_counted_without_positions_and_ids(spark: SparkSession) -> None:
    empty = dict.fromkeys(STORED.names)
    by_stream = [{**empty, "kind": "dead", "reason": reason} for reason in ("not JSON", "not JSON", "line too long")]
    lines = spark.createDataFrame([tuple(row.values()) for row in by_stream], STORED)
    reasons = [
        "JSON is malformed: invalid character (byte 4)",
        "JSON is malformed: invalid character (byte 17)",
        f"a record of peer {PEERS[0]} under the topic of another peer",
        f"a record of peer {PEERS[1]} under the topic of another peer",
        None,
    ]
    letters = spark.createDataFrame([(reason,) for reason in reasons], LETTER)
    found = dead(Facts(lines.unionByName(stored(spark, [delivery()])), letters))
    assert found.columns == DEAD.names
    assert {(row["by"], row["reason"]): row["lines"] for row in rows(found)} == {
        ("stream", "not JSON"): 2,
        ("stream", "line too long"): 1,
        ("ingest", "JSON is malformed: invalid character…"): 2,
        ("ingest", "a record of peer … under the topic of another peer"): 2,
        ("ingest", "not a dead letter itself"): 1,
    }


def test_no_refused_lines_give_no_rows(spark: SparkSession) -> None:
    assert rows(dead(Facts(stored(spark, []), spark.createDataFrame([], LETTER)))) == []
