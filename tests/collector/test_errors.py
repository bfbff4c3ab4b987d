"""Foreign error texts, as one line of bounded length."""

from __future__ import annotations

import pytest

from ringmq.collector.errors import MAX_CHARS, short


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one", "one"),
        ("\n  one \ntwo", "one"),
        ("", "unknown reason"),
        (" \n ", "unknown reason"),
        ("x" * MAX_CHARS, "x" * MAX_CHARS),
        ("x" * (MAX_CHARS + 1), "x" * (MAX_CHARS - 1) + "…"),
    ],
)
def test_short_is_the_first_line_cut_to_the_limit(text: str, shown: str) -> None:
    assert short(text) == shown
