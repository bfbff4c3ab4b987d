"""Reading reduced tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.collector.errors import CollectorError
from ringmq.collector.report.read_tables import from_lines, only_run, read_local

TABLES = {"dead": ['{"by":"x","reason":"y","lines":1}'], "runs": ['{"run":"a","peers":3}', '{"run":"b"}']}


def make(data: Path) -> None:
    for name, lines in TABLES.items():
        folder = data / "reduced" / name
        folder.mkdir(parents=True)
        (folder / "part-0.json").write_text("".join(f"{line}\n" for line in lines))
        (folder / "_SUCCESS").write_text("")


def test_local_and_remote_tables_are_equal(tmp_path: Path) -> None:
    make(tmp_path)
    here = read_local(tmp_path, ["dead", "runs", "boxes"])
    assert here == from_lines(TABLES, "hdfs://x")
    assert list(here) == ["runs", "dead"]
    assert here["runs"] == [{"run": "a", "peers": 3}, {"run": "b"}]


def test_empty_table_is_read(tmp_path: Path) -> None:
    (tmp_path / "reduced" / "runs").mkdir(parents=True)
    assert read_local(tmp_path, ["runs"]) == {"runs": []}


def test_missing_tables_raise(tmp_path: Path) -> None:
    with pytest.raises(CollectorError, match=r"there are no tables in .*: run ringmq collect reduce first"):
        read_local(tmp_path, ["runs"])
    with pytest.raises(CollectorError, match="there are no tables in hdfs://x"):
        from_lines({}, "hdfs://x")


def test_damaged_table_raises(tmp_path: Path) -> None:
    make(tmp_path)
    (tmp_path / "reduced" / "runs" / "part-0.json").write_text('{"run":')
    with pytest.raises(CollectorError, match=r"part-0.json is damaged: run ringmq collect reduce again"):
        read_local(tmp_path, ["runs"])


def test_unreadable_table_raises(tmp_path: Path) -> None:
    (tmp_path / "reduced" / "runs" / "odd.json").mkdir(parents=True)
    with pytest.raises(CollectorError, match=r"cannot read .*odd.json: Is a directory"):
        read_local(tmp_path, ["runs"])


def test_only_run_removes_other_runs(tmp_path: Path) -> None:
    make(tmp_path)
    tables = read_local(tmp_path, TABLES)
    assert only_run(tables, "a") == {"runs": [{"run": "a", "peers": 3}], "dead": tables["dead"]}
    with pytest.raises(CollectorError, match="unknown run 'c', the tables have a, b"):
        only_run(tables, "c")
    with pytest.raises(CollectorError, match="the tables have no runs"):
        only_run({"runs": []}, "c")
