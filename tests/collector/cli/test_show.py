"""`ringmq collect show`: its output and its files."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.sql import SparkSession

from ringmq.collector.cli import show as show_command
from ringmq.collector.cli.show import show
from ringmq.collector.jobs.tables.columns import HEADS
from ringmq.collector.report.plots import PLOTS
from tests.conftest import Process


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Reduced tables, some of them empty."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in HEADS}
    rows["runs"] = [{"run": run, "peers": 2, "began": 0.0} for run in ("a", "b")]
    rows["per_peer"] = [{"run": "a", "row": "peer", "in_bytes": 1e6}, {"run": "b", "row": "peer", "in_bytes": 2e6}]
    rows["latencies"] = [
        {"run": "a", "by": "topic", "topic": f"t/{number}", "count": number, "p50": 0.001} for number in range(30)
    ] + [{"run": "a", "by": "all", "count": 435, "p50": 0.001}]
    for name, table in rows.items():
        folder = tmp_path / "data" / "reduced" / name
        folder.mkdir(parents=True)
        (folder / "part.json").write_text("".join(f"{json.dumps(row)}\n" for row in table))
    return tmp_path / "data"


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(show, list(map(str, arguments)))


def test_all_tables_are_shown(data: Path) -> None:
    output = invoke("--data", data).stdout
    for head in HEADS.values():
        assert head.title in output
    assert "1.0 MB" in output
    assert "10 more rows" in output


def test_selected_tables_and_run_are_shown(data: Path) -> None:
    output = invoke("--data", data, "--table", "per_peer", "--table", "runs", "--run", "b").stdout
    assert [line for line in output.splitlines() if "(run b)" in line] == [
        "Runs: recorded and missing records (run b)",
        "Peers (run b)",
    ]
    assert "2.0 MB" in output
    assert "1.0 MB" not in output


def test_rows_option_limits_the_rows(data: Path) -> None:
    assert "more rows" not in invoke("--data", data, "--rows", 30).stdout
    assert "29 more rows" in invoke("--data", data, "--rows", 1).stdout


def test_json_has_all_tables_and_columns(data: Path) -> None:
    found = json.loads(invoke("--data", data, "--format", "json").stdout)
    assert list(found) == list(HEADS)
    assert len(found["latencies"]) == 31
    assert list(found["per_peer"][0]) == HEADS["per_peer"].names


def test_csv_has_plain_numbers(data: Path) -> None:
    output = invoke("--data", data, "--format", "csv", "--table", "per_peer").stdout
    assert [row["in_bytes"] for row in csv.DictReader(output.splitlines())] == ["1000000", "2000000"]


def test_csv_needs_exactly_one_table(data: Path) -> None:
    done = invoke("--data", data, "--format", "csv")
    assert done.exit_code == 2
    assert "--format csv needs exactly one --table" in done.stderr


def test_out_writes_all_tables_and_plots(data: Path, tmp_path: Path) -> None:
    done = invoke("--data", data, "--table", "runs", "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        *(f"{name}.csv" for name in HEADS),
        *(f"{name}.png" for name in PLOTS),
    }
    assert done.stderr == f"written: {len(HEADS)} tables and {len(PLOTS)} plots in {tmp_path / 'out'}\n"
    assert "Peers" not in done.stdout


def test_unwritable_out_folder_fails(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = invoke("--data", data, "--out", tmp_path / "file" / "out")
    assert done.exit_code == 1
    assert f"--out: cannot write to {tmp_path / 'file' / 'out'}: Not a directory" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (["--run", "c"], 1, "--run: unknown run 'c', the tables have a, b"),
        (["--table", "none"], 2, "'none' is not one of"),
        (["--rows", "0"], 2, "0 is not in the range"),
    ],
)
def test_wrong_arguments_fail(data: Path, arguments: list[str], status: int, says: str) -> None:
    done = invoke("--data", data, *arguments)
    assert done.exit_code == status
    assert says in done.stderr


def test_show_without_tables_fails_with_one_line(ringmq: Callable[..., Process], tmp_path: Path) -> None:
    process = ringmq("collect", "show", "--data", str(tmp_path))
    assert process.popen.returncode == 1
    assert process.err == f"ringmq: data: there are no tables in {tmp_path}: run ringmq collect reduce first\n"


def test_remote_tables_are_read_with_spark(spark: SparkSession, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[object] = []

    @contextmanager
    def session(master: str, settings: object, *, verbose: bool) -> Iterator[SparkSession]:
        sessions.append((master, settings, verbose))
        yield spark

    monkeypatch.setattr(show_command, "session", session)
    monkeypatch.setattr(show_command, "local_path", lambda _: None)
    options = ["--master", "local[7]", "--conf", "spark.a=b"]
    elsewhere = invoke("--data", f"file://{data}", *options).stdout
    assert sessions == [("local[7]", {"spark.a": "b"}, False)]
    monkeypatch.undo()
    assert elsewhere == invoke("--data", data).stdout
