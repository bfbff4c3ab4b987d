"""Values as people read them: with units, in few characters, and without what could steer a terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from ringmq.collector.jobs.tables.columns import Unit

NONE: Final = "-"
SHORT: Final = 8
"""So many digits of an id tell two peers of one ring apart."""
MAX_CHARS: Final = 60
"""Of a text in a table."""
MAX_NUMBERS: Final = 5
"""Of a list in a table."""
_PREFIXES: Final = ("", "k", "M", "G", "T", "P", "E")


def told(value: Any, unit: Unit, own_unit: str = "") -> str:
    """A value of a column with this unit; `own_unit` is that of the row, where each has another."""
    if value is None:
        return NONE
    match unit:
        case Unit.NUMBERS:
            return _list(value, own_unit)
        case Unit.MIXED:
            return _quantity(value, own_unit)
        case Unit.TEXT:
            return text(str(value))
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


def text(found: str) -> str:
    """Of somebody else's choosing: it must not steer the terminal, nor fill it."""
    shown = found if len(found) <= MAX_CHARS else found[: MAX_CHARS - 1] + "…"
    return "".join([sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in shown])


def _quantity(value: float, unit: str) -> str:
    if unit == "s":
        return _seconds(value)
    power = 0
    while abs(value) >= 999.95 and power < len(_PREFIXES) - 1:
        value /= 1000
        power += 1
    return f"{value:.{1 if power else 0}f} {_PREFIXES[power]}{unit}"


def _seconds(value: float) -> str:
    """Three digits; above two minutes as hours, minutes and seconds."""
    size = abs(value)
    if size >= 120:
        minutes, seconds = divmod(round(value), 60)
        return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
    for factor, name in ((1, "s"), (1e3, "ms")):
        if size * factor >= 1:
            return f"{_three(value * factor)} {name}"
    return f"{_three(value * 1e6)} µs"


def _three(value: float) -> str:
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{min(max(digits, 0), 2)}f}"


def _time(value: float) -> str:
    try:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return NONE


def _list(values: Sequence[float], unit: str) -> str:
    if not values:
        return NONE
    shown = " ".join([_quantity(value, unit) for value in values[:MAX_NUMBERS]])
    return shown if len(values) <= MAX_NUMBERS else f"{shown} and {len(values) - MAX_NUMBERS} more"
