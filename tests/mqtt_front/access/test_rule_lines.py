"""Bounded lines, comments, the names of users, and errors that are one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.access.rule_lines import (
    MAX_FILE_CHARS,
    MAX_LINE_CHARS,
    MAX_USER_NAME_CHARS,
    RuleFileError,
    fault_in_user_name,
    lines_of,
    shown,
)


def test_lines_keep_their_numbers() -> None:
    text = "\ufeff# about\n\n  one \r\n\t# more\ntwo # three\n\n"
    assert list(lines_of("f", text)) == [(3, "one"), (5, "two # three")]


def test_only_a_line_feed_ends_a_line() -> None:
    assert list(lines_of("f", "a\u2028b\x0bc\x85d")) == [(1, "a\u2028b\x0bc\x85d")]


def test_a_long_line_is_refused_and_not_shown() -> None:
    longest = "x" * MAX_LINE_CHARS
    assert list(lines_of("f", f"\n{longest}")) == [(2, longest)]
    with pytest.raises(RuleFileError) as caught:
        list(lines_of("f", f"\n{longest}x"))
    assert str(caught.value) == f"f:2: longer than {MAX_LINE_CHARS} characters"
    assert (caught.value.file, caught.value.line) == ("f", 2)


def test_a_long_file_is_refused() -> None:
    longest = "\n" * MAX_FILE_CHARS
    assert list(lines_of("f", longest)) == []
    with pytest.raises(RuleFileError, match=f"^f: longer than {MAX_FILE_CHARS} characters$"):
        list(lines_of("f", longest + "\n"))


@pytest.mark.parametrize(
    "name", ["a", "jo smith", "a#b", "$SYS", "ümläut", "名前", "+", "a/b", "x" * MAX_USER_NAME_CHARS]
)
def test_valid_user_names(name: str) -> None:
    assert fault_in_user_name(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "characters"),
        ("x" * (MAX_USER_NAME_CHARS + 1), "characters"),
        ("a:b", "':'"),
        ("#a", "'#'"),
        (" a", "space"),
        ("a ", "space"),
        ("a\tb", "control"),
        ("a\nb", "control"),
        ("a\0b", "control"),
        ("a\x7fb", "control"),
        ("a\u2028b", "control"),
        ("a\udc80b", "control"),
        ("\ufeffa", "control"),
    ],
)
def test_invalid_user_names(name: str, fault: str) -> None:
    assert fault in (fault_in_user_name(name) or "")


@given(st.text())
def test_a_good_name_survives_a_file(name: str) -> None:
    """What passes comes back from a line as it was, with anything behind a colon."""
    if fault_in_user_name(name) is None:
        ((_, line),) = lines_of("f", f"{name}:x\r\n")
        assert line.split(":") == [name, "x"]


def test_shown_text_is_one_short_line() -> None:
    assert shown("a\nb") == r"'a\nb'"
    assert len(shown("x" * 1000)) < 70
