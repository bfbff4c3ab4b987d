"""The folder of an experiment's results: written beside the earlier folder, and replaces it once it is complete."""

from __future__ import annotations

import csv
import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

import msgspec

from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.outcome import Outcome, Row

SUMMARY: Final = "summary.json"
SUMMARISED_ROWS: Final = 100
"""Rows of the longest table in the summary; longer tables are only in their CSV files."""


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Create the folder of all results if needed, and lock it against other experiments. Raises ExperimentError."""
    with plain_errors(out):
        out.mkdir(parents=True, exist_ok=True)
        lock = os.open(out, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ExperimentError(f"--out: another experiment writes to {out}: use another folder") from None
        yield
    finally:
        os.close(lock)


@contextmanager
def fresh_folder(out: Path, name: str) -> Iterator[Path]:
    """An empty folder beside the results of this name. It is removed at the end unless `keep` has moved it."""
    folder = out / f".{name}.new"
    with plain_errors(out):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(folder: Path, out: Path, name: str, quick: bool, seed: int, outcome: Outcome) -> Path:
    """Write the outcome into the folder, and replace the earlier results by the folder. Raises ExperimentError."""
    kept, old = out / name, out / f".{name}.old"
    with plain_errors(out):
        for table, rows in outcome.tables.items():
            write_csv(folder / f"{table}.csv", rows)
        summary = msgspec.json.encode(summary_of(name, quick, seed, outcome), enc_hook=str)
        (folder / SUMMARY).write_bytes(msgspec.json.format(summary) + b"\n")
        shutil.rmtree(old, ignore_errors=True)
        if kept.exists():
            kept.rename(old)
        folder.rename(kept)
        shutil.rmtree(old, ignore_errors=True)
    return kept


def summary_of(name: str, quick: bool, seed: int, outcome: Outcome) -> dict[str, object]:
    """The outcome in the form of `summary.json`."""
    return {
        "experiment": name,
        "quick": quick,
        "seed": seed,
        "interrupted": outcome.interrupted,
        "quantities": [asdict(quantity) | {"holds": quantity.holds} for quantity in outcome.quantities],
        "left_out": outcome.left_out,
        "plots": [plot.name for plot in outcome.plots],
        "tables": {name: rows for name, rows in outcome.tables.items() if len(rows) <= SUMMARISED_ROWS},
        "settings": outcome.settings,
    }


def write_csv(file: Path, rows: Sequence[Row]) -> None:
    """Write the columns of the first row. The elements of a list are separated by spaces."""
    with file.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, list(rows[0]) if rows else [], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


@contextmanager
def plain_errors(out: Path) -> Iterator[None]:
    """Turn an OSError into an ExperimentError with one line."""
    try:
        yield
    except OSError as error:
        raise ExperimentError(f"--out: cannot write to {out}: {error.strerror or error}") from error
