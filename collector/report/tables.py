"""Formats tables: as lines for the terminal, as CSV and as JSON. Rows go in, text comes out."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any, Final

import msgspec

from ringmq.collector.jobs.tables.columns import HEADS, LATENCIES, RATES, Column, Head, Unit
from ringmq.collector.report.format import formatted
from ringmq.collector.report.read_tables import Row, Tables

LEFT_ALIGNED: Final = (Unit.TEXT, Unit.PEER, Unit.NUMBERS)
"""Units of columns that are aligned to the left; all others are aligned to the right."""


def as_lines(tables: Tables, most_rows: int) -> Iterator[str]:
    """All tables for the terminal, each with its title. Shows at most `most_rows` topics and steps of time."""
    for index, (name, rows) in enumerate(tables.items()):
        if index:
            yield ""
        yield from _lines(HEADS[name], rows, most_rows)


def _lines(head: Head, rows: Sequence[Row], most_rows: int) -> Iterator[str]:
    shown = _selected(head, rows, most_rows)
    columns = [column for column in head.columns if column.shown]
    runs = {row.get("run") for row in rows}
    title = head.title
    if len(runs) == 1 and columns[0].name == "run":
        title += f" (run {runs.pop()})"
        columns = columns[1:]
    yield title
    cells = [
        [formatted(row.get(column.name), column.unit, str(row.get("unit", ""))) for column in columns] for row in shown
    ]
    yield from _table(columns, cells)
    if len(shown) < len(rows):
        yield f"{len(rows) - len(shown):,} more rows"


def _selected(head: Head, rows: Sequence[Row], most_rows: int) -> Sequence[Row]:
    """The topics with the most messages, or steps of time at equal distances, with the last. Other tables: all rows."""
    if head is LATENCIES:
        topics = sorted([row for row in rows if row["by"] == "topic"], key=lambda row: -float(row["count"]))
        omitted = {id(row) for row in topics[most_rows:]}
        return [row for row in rows if id(row) not in omitted]
    if head is RATES:
        series: dict[tuple[Any, Any], list[Row]] = {}
        for row in rows:
            series.setdefault((row["run"], row.get("dispatching")), []).append(row)
        # Backwards, since the last step has the totals of its series.
        return [row for steps in series.values() for row in steps[:: -ceil(len(steps) / most_rows)][::-1]]
    return rows


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The lines of a table, each column as wide as its widest cell."""
    heads = [column.name for column in columns]
    widths = [max(map(len, cells)) for cells in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = [
            cell.ljust(width) if column.unit in LEFT_ALIGNED else cell.rjust(width)
            for cell, width, column in zip(row, widths, columns, strict=True)
        ]
        yield "  ".join(cells).rstrip()
    if not rows:
        yield "no rows"


def as_csv(head: Head, rows: Sequence[Row]) -> str:
    """One table with all columns, in the units of the documentation. A list is one cell, separated by spaces."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(head.names)
    for row in rows:
        writer.writerow([_cell(row.get(name)) for name in head.names])
    return target.getvalue()


def _cell(value: Any) -> object:
    if isinstance(value, list):
        return " ".join([str(_without_fraction(element)) for element in value])
    return _without_fraction(value)


def as_json(tables: Tables) -> str:
    """All tables with all columns, null where there is no value."""
    complete = {
        name: [{column: _without_fraction(row.get(column)) for column in HEADS[name].names} for row in rows]
        for name, rows in tables.items()
    }
    return msgspec.json.format(msgspec.json.encode(complete), indent=2).decode()


def _without_fraction(value: Any) -> Any:
    """A whole number as an integer; any other value unchanged."""
    # Spark computes sums as floating point numbers, and a count of 3.0 would look odd.
    return int(value) if isinstance(value, float) and value.is_integer() else value
