"""From landed records to tables, by a real Spark in a process of its own."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from collector.errors import CollectorError
from collector.tables.heads import HEADS
from experiments.benchmarks.made_records import batches
from experiments.lab.errors import ExperimentError
from experiments.lab.reducing import keep_parquet, tables
from tests.collector.conftest import QUICK


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", QUICK)


def test_all_tables_with_all_columns(tmp_path: Path) -> None:
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


def test_what_goes_wrong_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(
        ExperimentError, match=r"^data: nothing has landed in .*/none: run ringmq collect ingest first$"
    ):
        tables(tmp_path / "none")


def test_without_java_it_is_said_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(CollectorError, match="Spark needs Java"):
        tables(tmp_path)
