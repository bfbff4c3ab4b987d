"""Tables from landed records, by a real Spark in its own process."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.experiments.load.synthetic_records import batches
from ringmq.experiments.studies.harness import spark_reduce
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome
from ringmq.experiments.studies.harness.spark_reduce import keep_parquet, reduce, tables
from tests.collector.conftest import QUICK
from tests.experiments.studies.making import request


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)


def test_tables_have_all_columns_and_the_parquet_is_kept(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", tmp_path / "folder"
    landing = data / "landing"
    landing.mkdir(parents=True)
    folder.mkdir()
    for number, batch in enumerate(itertools.islice(batches(3000, 1, "small"), 30)):
        (landing / f"{number}.jsonl").write_bytes(batch.lines)
    found = tables(data)
    assert set(found) == set(HEADS)
    assert all(list(row) == HEADS[name].names for name, rows in found.items() for row in rows)
    assert {row["run"] for row in found["per_peer"]} == {"small"}
    assert found["dead"] == []
    keep_parquet(data, folder)
    kept = folder / "parquet"
    assert list(kept.rglob("*.parquet"))
    assert not (kept / "_spark_metadata").exists()
    assert not (data / "parquet").exists()


@pytest.mark.parametrize("breakdowns", [1, 2])
def test_failed_spark_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breakdowns: int) -> None:
    data, folder = tmp_path / "data", tmp_path / "folder"
    for kind in ("landing", "parquet"):
        (data / kind).mkdir(parents=True)
    folder.mkdir()
    left = [ExperimentError("its JVM has ended")] * breakdowns

    def broken(data: Path) -> dict[str, list[dict[str, object]]]:
        if left:
            raise left.pop()
        return {"runs": [{"run": "a"}]}

    monkeypatch.setattr(spark_reduce, "tables", broken)
    asked, progress = request(folder)
    outcome = Outcome()
    found = reduce(data, asked, outcome)
    assert progress.said[0] == "trying again: its JVM has ended"
    if breakdowns == 1:
        assert (found, outcome.left_out, outcome.broken) == ({"runs": [{"run": "a"}]}, [], False)
        assert [kept.name for kept in folder.iterdir()] == ["parquet"]
    else:
        assert (found, outcome.broken) == ({}, True)
        assert outcome.left_out == progress.said[1:]
        assert outcome.left_out == ["tables of the collector: its JVM has ended; the records are in landing/"]
        assert [kept.name for kept in folder.iterdir()] == ["landing"]


def test_reduce_without_records_fails_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ExperimentError, match=r"^data: there are no landed records in .*/none: run ringmq collect ingest first$"
    ):
        tables(tmp_path / "none")


def test_missing_java_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(CollectorError, match="Spark needs Java"):
        tables(tmp_path)
