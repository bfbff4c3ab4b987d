"""What somebody else says, as one line of bounded length."""

from __future__ import annotations

import pytest

from ringmq.collector.errors import MAX_CHARS, short


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one", "one"),
        ("\n  one \ntwo", "one"),
        ("", "no reason is known"),
        (" \n ", "no reason is known"),
        ("x" * MAX_CHARS, "x" * MAX_CHARS),
        ("x" * (MAX_CHARS + 1), "x" * (MAX_CHARS - 1) + "…"),
    ],
)
def test_short(text: str, shown: str) -> None:
    assert short(text) == shown
