"""Formats values for people: with units, in few characters, and without control characters for a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ringmq.collector.jobs.tables.columns import Unit

NONE: Final = "-"
SHORT: Final = 8
"""Shown digits of a peer id, enough to distinguish the peers of a ring."""
MAX_CHARS: Final = 60
"""The most characters of a text in a table."""
MAX_NUMBERS: Final = 5
"""The most numbers of a list in a table."""
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


def formatted(value: Any, unit: Unit, row_unit: str = "") -> str:
    """A value of a column with this unit; `row_unit` is the unit of the row, if the rows of a table differ in it."""
    if value is None:
        return NONE
    match unit:
        case Unit.NUMBERS:
            return _list(value, row_unit)
        case Unit.MIXED:
            return _quantity(value, row_unit)
        case Unit.TEXT:
            return safe_text(str(value))
        case Unit.PEER:
            return str(value)[:SHORT]
        case Unit.COUNT:
            return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"
        case Unit.NUMBER:
            return f"{value:,.2f}"
        case Unit.SHARE:
            return f"{100 * value:.1f} %"
        case Unit.PER_SECOND:
            return f"{value:,.1f}/s"
        case Unit.TIME:
            return _time(value)
        case Unit.SECONDS | Unit.BYTES | Unit.BYTES_PER_SECOND:
            return _quantity(value, unit.value)


def safe_text(text: str) -> str:
    """A text cut to MAX_CHARS, with replacements for unprintable characters."""
    # Clients choose topics: escape sequences in them would reach the terminal of the person who reads the table.
    shown = text if len(text) <= MAX_CHARS else text[: MAX_CHARS - 1] + "…"
    return "".join([sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in shown])


def _quantity(value: float, unit: str) -> str:
    if unit == "s":
        return _seconds(value)
    power = 0
    # 999.95 would be rounded to 1000.0 of this prefix.
    while abs(value) >= 999.95 and power < len(_PREFIXES) - 1:
        value /= 1000
        power += 1
    return f"{value:.{1 if power else 0}f} {_PREFIXES[power]}{unit}"


def _seconds(value: float) -> str:
    """A duration with three digits; from two minutes on as hours, minutes and seconds."""
    size = abs(value)
    if size >= 120:
        minutes, seconds = divmod(round(value), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    for factor, name in ((1, "s"), (1e3, "ms")):
        if size * factor >= 1:
            return f"{_three_digits(value * factor)} {name}"
    return f"{_three_digits(value * 1e6)} µs"


def _three_digits(value: float) -> str:
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{min(max(digits, 0), 2)}f}"


def _time(value: float) -> str:
    try:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):  # a year after 9999
        return NONE


def _list(values: Sequence[float], unit: str) -> str:
    if not values:
        return NONE
    shown = " ".join([_quantity(value, unit) for value in values[:MAX_NUMBERS]])
    return shown if len(values) <= MAX_NUMBERS else f"{shown} and {len(values) - MAX_NUMBERS} more"
