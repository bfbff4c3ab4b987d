"""Values formatted for people."""

from __future__ import annotations

from typing import Any

import pytest

from ringmq.collector.jobs.tables.columns import Unit
from ringmq.collector.report.format import MAX_CHARS, formatted, safe_text


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (None, Unit.COUNT, "-"),
        (1234567.0, Unit.COUNT, "1,234,567"),
        (0.25, Unit.COUNT, "0.2"),
        (0, Unit.BYTES, "0 B"),
        (999, Unit.BYTES, "999 B"),
        (999.96, Unit.BYTES, "1.0 kB"),
        (22_820_000.0, Unit.BYTES, "22.8 MB"),
        (1e30, Unit.BYTES, "1000000000000.0 EB"),
        (450_880, Unit.BYTES_PER_SECOND, "450.9 kB/s"),
        (450, Unit.PER_SECOND, "450.0/s"),
        (0.0512, Unit.SHARE, "5.1 %"),
        (2.0, Unit.NUMBER, "2.00"),
        (0, Unit.SECONDS, "0 µs"),
        (1.5e-9, Unit.SECONDS, "0.00 µs"),
        (2.345e-6, Unit.SECONDS, "2.35 µs"),
        (0.00131, Unit.SECONDS, "1.31 ms"),
        (-0.0131, Unit.SECONDS, "-13.1 ms"),
        (0.131, Unit.SECONDS, "131 ms"),
        (1.0, Unit.SECONDS, "1.00 s"),
        (85.0, Unit.SECONDS, "85.0 s"),
        (3725, Unit.SECONDS, "1:02:05"),
        (0, Unit.TIME, "1970-01-01 00:00:00"),
        (1e300, Unit.TIME, "-"),
        ("0123456789abcdef", Unit.PEER, "01234567"),
        ("a", Unit.TEXT, "a"),
        ([], Unit.NUMBERS, "-"),
    ],
)
def test_values_are_formatted_by_unit(value: Any, unit: Unit, words: str) -> None:
    assert formatted(value, unit) == words


@pytest.mark.parametrize(
    ("value", "unit", "own", "words"),
    [
        (24_200_000, Unit.MIXED, "bit/s", "24.2 Mbit/s"),
        (0.0013, Unit.MIXED, "s", "1.30 ms"),
        ([0.1, 0.2], Unit.NUMBERS, "s", "100 ms 200 ms"),
        ([1, 2, 3, 4, 5, 6, 7], Unit.NUMBERS, "bit/s", "1 bit/s 2 bit/s 3 bit/s 4 bit/s 5 bit/s and 2 more"),
    ],
)
def test_values_are_formatted_in_the_unit_of_their_row(value: Any, unit: Unit, own: str, words: str) -> None:
    assert formatted(value, unit, own) == words


def test_unprintable_and_long_texts_are_made_safe() -> None:
    assert safe_text("a\x1b[2Jb\n") == "a\N{REPLACEMENT CHARACTER}[2Jb\N{REPLACEMENT CHARACTER}"
    assert safe_text("ü" * 500) == "ü" * (MAX_CHARS - 1) + "…"
