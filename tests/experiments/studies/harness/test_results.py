"""The folder of results: complete or absent, and its files."""

from __future__ import annotations

import csv
import json
from contextlib import suppress
from pathlib import Path

import pytest

from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome, Quantity
from ringmq.experiments.studies.harness.results import SUMMARISED_ROWS, fresh_folder, keep, locked


def outcome(plot: Path | None = None, rows: int = 2) -> Outcome:
    return Outcome(
        quantities=[Quantity("latency", "§1", 14.0, 43.5, "%")],
        tables={"levels": [{"level": str(row), "value": 1.5, "missing": None, "all": [1, 2]} for row in range(rows)]},
        plots=[plot] if plot else [],
        settings={"where": Path("there"), "places": (1, 2)},
    )


def test_kept_folder_has_the_summary_the_tables_and_the_plots(tmp_path: Path) -> None:
    with locked(tmp_path / "out"), fresh_folder(tmp_path / "out", "nodes") as folder:
        plot = folder / "boxes.png"
        plot.write_bytes(b"png")
        kept = keep(folder, tmp_path / "out", "nodes", True, 7, outcome(plot))
    assert kept == tmp_path / "out" / "nodes"
    assert {file.name for file in kept.iterdir()} == {"boxes.png", "levels.csv", "summary.json"}
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["nodes"]
    summary = json.loads((kept / "summary.json").read_text())
    assert (summary["experiment"], summary["quick"], summary["seed"]) == ("nodes", True, 7)
    assert summary["quantities"][0]["holds"] is True
    assert summary["plots"] == ["boxes.png"]
    assert summary["settings"] == {"where": "there", "places": [1, 2]}
    assert summary["tables"]["levels"][1]["level"] == "1"
    with (kept / "levels.csv").open(newline="") as file:
        assert next(csv.DictReader(file)) == {"level": "0", "value": "1.5", "missing": "", "all": "1 2"}


def test_long_tables_are_not_in_the_summary(tmp_path: Path) -> None:
    with fresh_folder(tmp_path, "nodes") as folder:
        kept = keep(folder, tmp_path, "nodes", True, 7, outcome(rows=SUMMARISED_ROWS + 1))
    assert json.loads((kept / "summary.json").read_text())["tables"] == {}
    assert len((kept / "levels.csv").read_text().splitlines()) == SUMMARISED_ROWS + 2


def test_completed_run_replaces_earlier_results_and_failed_run_does_not(tmp_path: Path) -> None:
    with fresh_folder(tmp_path, "nodes") as folder:
        (folder / "old.png").write_bytes(b"")
        keep(folder, tmp_path, "nodes", True, 7, outcome())
    with suppress(ValueError), fresh_folder(tmp_path, "nodes") as folder:
        (folder / "half").write_bytes(b"")
        raise ValueError("broken")
    assert (tmp_path / "nodes" / "old.png").exists()
    with fresh_folder(tmp_path, "nodes") as folder:
        keep(folder, tmp_path, "nodes", True, 8, outcome())
    assert {file.name for file in (tmp_path / "nodes").iterdir()} == {"levels.csv", "summary.json"}
    assert [file.name for file in tmp_path.iterdir()] == ["nodes"]


def test_remains_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    left = tmp_path / ".nodes.new"
    left.mkdir()
    (left / "half").write_bytes(b"")
    with fresh_folder(tmp_path, "nodes") as folder:
        assert list(folder.iterdir()) == []
    assert not left.exists()


def test_second_experiment_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(ExperimentError, match="another experiment writes to"), locked(tmp_path):
        pass
    with locked(tmp_path):
        pass


def test_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ExperimentError, match="cannot write to"), locked(tmp_path / "file"):
        pass
    with pytest.raises(ExperimentError, match="cannot write to"), fresh_folder(tmp_path / "file", "nodes"):
        pass
