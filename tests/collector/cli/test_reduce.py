"""`ringmq collect reduce` as a process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ringmq.collector.data_lock import lock_folder
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.collector.report.read_tables import read_local
from tests.collector.conftest import QUICK
from tests.collector.making import sample, stored
from tests.conftest import Process

Start = Callable[..., Process]


@pytest.fixture(autouse=True)
def _quick_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)


def test_tables_are_written_and_reported(spark: SparkSession, start: Start, tmp_path: Path) -> None:
    stored(spark, [sample()]).write.partitionBy("kind", "run", "hour").parquet(f"{tmp_path}/data/parquet")
    process = start("collect", "reduce", "--data", f"file:{tmp_path}/data", "--conf", "spark.sql.shuffle.partitions=1")
    assert process.popen.wait(90) == 0, process.err
    assert process.out == f"reduced: {len(HEADS)} tables in file:{tmp_path}/data/reduced\n"
    assert process.err == "".join(f"reducing: {name}\n" for name in HEADS)
    assert len(read_local(tmp_path / "data", HEADS)["per_peer"]) == 3


def test_reduce_without_records_fails_with_one_line(start: Start, tmp_path: Path) -> None:
    process = start("collect", "reduce", "--data", str(tmp_path))
    assert process.popen.wait(60) == 1
    assert process.err == f"ringmq: data: there are no records in {tmp_path}: run ringmq collect stream first\n"


def test_second_reduce_is_refused(start: Start, tmp_path: Path) -> None:
    with lock_folder(tmp_path, "reduce"):
        process = start("collect", "reduce", "--data", f"file://{tmp_path}")
        assert process.popen.wait(60) == 1
    assert process.err == f"ringmq: data: {tmp_path} is in use by another reduce: each needs its own\n"


def test_unknown_file_system_fails_with_one_line(start: Start) -> None:
    process = start("collect", "reduce", "--data", "nofs://host/data")
    assert process.popen.wait(60) == 1
    (line,) = process.err.splitlines()
    assert line.startswith("ringmq: Spark: ")
    assert "nofs" in line
