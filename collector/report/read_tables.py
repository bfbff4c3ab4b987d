"""Reads reduced tables: where they are on this machine without Spark, elsewhere with it.

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
    """From a data folder on this machine. Raises CollectorError if it was not reduced, or that is damaged."""
    tables = {name: list(_rows_in(data / REDUCED / name)) for name in names if (data / REDUCED / name).is_dir()}
    return _known(tables, str(data))


def from_lines(lines: Mapping[str, Sequence[str]], data: str) -> Tables:
    """From the lines of each table, read elsewhere."""
    return _known({name: [msgspec.json.decode(line) for line in found] for name, found in lines.items()}, data)


def of_run(tables: Tables, run: str) -> Tables:
    """Without the rows of other runs. Raises CollectorError if there is no such run."""
    runs = sorted({row["run"] for rows in tables.values() for row in rows if "run" in row})
    if run not in runs:
        raise CollectorError(f"--run: there is no run {run!r}: there are {', '.join(runs) or 'none'}")
    return {name: [row for row in rows if row.get("run", run) == run] for name, rows in tables.items()}


def _known(tables: Tables, data: str) -> Tables:
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
