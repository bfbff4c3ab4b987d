"""Reads reduced tables, from files of this machine or from lines that Spark has read elsewhere.

Owns the form of a table in memory: its rows as dictionaries, in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ringmq.collector.data_folder import REDUCED
from ringmq.collector.errors import CollectorError
from ringmq.collector.jobs.tables.columns import HEADS

Row = Mapping[str, Any]
Tables = dict[str, list[Row]]
"""The rows of each table, by its name."""


def read_local(data: Path, names: Iterable[str]) -> Tables:
    """The tables of a data folder on this machine. Raises CollectorError if there are none, or a table is damaged."""
    tables = {name: list(_rows_in(data / REDUCED / name)) for name in names if (data / REDUCED / name).is_dir()}
    return _in_order(tables, str(data))


def from_lines(lines: Mapping[str, Sequence[str]], data: str) -> Tables:
    """The tables of a data folder elsewhere, from the lines of each table."""
    return _in_order({name: [msgspec.json.decode(line) for line in texts] for name, texts in lines.items()}, data)


def only_run(tables: Tables, run: str) -> Tables:
    """The tables without the rows of other runs. Raises CollectorError for an unknown run."""
    runs = sorted({row["run"] for rows in tables.values() for row in rows if "run" in row})
    if run not in runs:
        raise CollectorError(f"--run: unknown run {run!r}, the tables have {', '.join(runs) or 'no runs'}")
    # The table of dead letters has no runs, and stays as it is.
    return {name: [row for row in rows if row.get("run", run) == run] for name, rows in tables.items()}


def _in_order(tables: Tables, data: str) -> Tables:
    if not tables:
        raise CollectorError(f"data: there are no tables in {data}: run ringmq collect reduce first")
    return {name: tables[name] for name in HEADS if name in tables}


def _rows_in(folder: Path) -> Iterator[Row]:
    for file in sorted(folder.glob("*.json")):
        try:
            yield from [msgspec.json.decode(line) for line in file.read_bytes().splitlines()]
        except OSError as error:
            raise CollectorError(f"data: cannot read {file}: {error.strerror}") from error
        except msgspec.DecodeError as error:
            raise CollectorError(f"data: {file} is damaged: run ringmq collect reduce again") from error
