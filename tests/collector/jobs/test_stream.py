"""The streaming query in one process: lines become rows, and each record is stored once."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from ringmq.collector.data_folder import PARQUET
from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs.schema import STORED
from ringmq.collector.jobs.stream import REMEMBER_S, StreamProgress, StreamSettings, progress_of, rows_of, run
from ringmq.logger.records import Record
from tests.collector.making import AT, delivery, land, latencies, line, sample, stored

ONCE = StreamSettings(once=True)


def stream(spark: SparkSession, data: Path, settings: StreamSettings = ONCE) -> StreamProgress:
    return run(spark, str(data), settings, lambda _: None)


def stored_rows(spark: SparkSession, data: Path) -> DataFrame:
    return spark.read.schema(STORED).parquet(str(data / PARQUET))


def test_rows_are_records_with_defaults(spark: SparkSession) -> None:
    records: list[Record] = [
        sample(peer=2, unrecorded=4),
        delivery(at=0.0),
        delivery(duplicate=True),
        latencies(buckets={"3": 4}),
    ]
    lines = [line(records[0], landed=7.5), *map(line, records[1:])]
    lines[1] = lines[1].replace(',"duplicate":false', "").replace('"v":1,', "")
    found = rows_of(spark.createDataFrame([(text, "a.jsonl") for text in lines], "value string, file string"))
    assertDataFrameEqual(found, stored(spark, records, landed={0: 7.5}))


def test_impossible_landing_time_is_replaced_by_the_time_of_the_record(spark: SparkSession) -> None:
    text = line(delivery(), landed=1)
    lines = [text.replace('"landed":1', f'"landed":{landed}') for landed in ("-1", "1e300", "-1e400", "1e400", "null")]
    found = rows_of(spark.createDataFrame([(changed, "") for changed in lines], "value string, file string")).collect()
    assert [(row.kind, row.landed) for row in found] == [("delivery", AT)] * 5


def test_bad_lines_become_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    """A thousand bad lines of six kinds among a thousand good lines."""
    good = [line(delivery(number=number), landed=time.time()) for number in range(1000)]
    bad = [
        good[0].replace('"v":1', '"v":2'),
        good[1][:40],
        "garbage",
        good[2].replace('"hops":0', '"hops":"0"'),
        good[3].replace('"hops":0', '"hops":-1'),
        good[4].encode().replace(b"a/b", b"\xff"),
    ]
    land(tmp_path, "a+b c%20[ü]", [either for index, text in enumerate(good) for either in (text, bad[index % 6])])
    assert stream(spark, tmp_path) == StreamProgress(2000, 1000, 1000)
    found = stored_rows(spark, tmp_path)
    assert found.where("kind = 'delivery'").select("number").distinct().count() == 1000
    dead = found.where("kind = 'dead'").groupBy("reason", "file", "run").count().collect()
    assert {(row.reason, row.file, row.run): row["count"] for row in dead} == {
        ("unsupported version 2", "a+b c%20[ü].jsonl", "-"): 167,
        ("not JSON", "a+b c%20[ü].jsonl", "-"): 334,
        ("a member of a wrong type, or a number too large", "a+b c%20[ü].jsonl", "-"): 167,
        ("hops is below 0", "a+b c%20[ü].jsonl", "-"): 166,
        ("not UTF-8", "a+b c%20[ü].jsonl", "-"): 166,
    }
    lines = {row.line for row in found.where("kind = 'dead'").collect()}
    assert lines >= {"garbage", bad[0], bad[1], bad[3], bad[4]}


def test_each_record_is_stored_once(spark: SparkSession, tmp_path: Path) -> None:
    now = time.time()
    records = [delivery(number=number) for number in range(4)]
    # The clock of the ingest may have any time.
    times = [now - 10 * REMEMBER_S, now, now + 10 * REMEMBER_S, 0.0]
    reported: list[StreamProgress] = []
    land(tmp_path, "1", [line(record, landed) for record, landed in zip(records[:3], times, strict=False)])
    assert run(spark, str(tmp_path), ONCE, reported.append) == StreamProgress(3, 3, 0)
    assert sum(reported, StreamProgress()) == StreamProgress(3, 3, 0)
    land(tmp_path, "2", [line(record, landed) for record, landed in zip(records[1:], times[1:], strict=True)])
    land(tmp_path, "3", [line(records[3], now)] * 2)
    assert stream(spark, tmp_path) == StreamProgress(5, 1, 0, repeated=4)
    assert stream(spark, tmp_path) == StreamProgress()
    assert sorted(row.number for row in stored_rows(spark, tmp_path).collect()) == [0, 1, 2, 3]


def test_records_with_any_landing_time_are_stored(spark: SparkSession, tmp_path: Path) -> None:
    """Even if a wrong clock gives a time long ago, or an earlier record has a time in a year."""
    for name, landed in (("1", time.time() + 365 * 86_400), ("2", time.time()), ("3", 0.0), ("4", 1.0)):
        land(tmp_path, name, [line(delivery(number=int(name)), landed)])
    reported: list[StreamProgress] = []
    run(spark, str(tmp_path), StreamSettings(once=True, batch_mb=1e-6), reported.append)
    assert [progress.records for progress in reported if progress.lines] == [1, 1, 1, 1]
    assert stored_rows(spark, tmp_path).count() == 4


def test_folders_are_by_kind_run_and_hour(spark: SparkSession, tmp_path: Path) -> None:
    land(tmp_path, "1", [line(delivery(at=AT, run="2024")), line(sample(at=3600.0, run="2024-01-01"))])
    stream(spark, tmp_path)
    folders = {str(file.parent.relative_to(tmp_path / PARQUET)) for file in (tmp_path / PARQUET).rglob("*.parquet")}
    assert folders == {"kind=delivery/run=2024/hour=2023-11-14T22", "kind=sample/run=2024-01-01/hour=1970-01-01T01"}
    assert {(row.run, row.hour) for row in stored_rows(spark, tmp_path).collect()} == {
        ("2024", "2023-11-14T22"),
        ("2024-01-01", "1970-01-01T01"),
    }


def test_landed_files_are_deleted_on_request(
    spark: SparkSession, tmp_path: Path, eventually: Callable[..., object]
) -> None:
    for name in "12":
        land(tmp_path, name, [line(delivery())])
        assert stream(spark, tmp_path, StreamSettings(once=True, delete=True)).records == 1
    # Spark deletes a file when the batch after its own has begun.
    eventually(lambda: not (tmp_path / "landing" / "1.jsonl").exists())


def test_stream_without_a_landing_folder_raises(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CollectorError, match=r"there are no landed records in .*: run ringmq collect ingest first"):
        stream(spark, tmp_path)


def test_progress_of_a_batch_is_read_from_spark() -> None:
    batch = {
        "observedMetrics": {"read": {"lines": 10, "dead": 2}, "written": {"rows": 7}},
        "stateOperators": [{"numRowsDroppedByWatermark": 1}],
    }
    progress = progress_of(batch)
    assert progress == StreamProgress(lines=10, records=5, dead=2, repeated=2, late=1)
    assert str(progress) == "5 records, 2 dead letters, 2 repeated, 1 lost because the clock was set back"
    assert str(StreamProgress(3, 3)) == "3 records, 0 dead letters"
