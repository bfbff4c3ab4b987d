"""A file of settings: what is read of it, and that whatever else it holds is one clear line."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.peer.errors import ConfigError
from ringmq.peer.settings.toml_file import MAX_FILE_BYTES, MAX_UNKNOWN, check_names, read_toml, shown


def deep(levels: int) -> dict[str, object]:
    table: dict[str, object] = {}
    for _ in range(levels):
        table = {"a": table}
    return table


def test_toml_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_bytes('name = "häll"\r\n[table]\nnumber = 7\n'.encode())
    assert read_toml(file) == {"name": "häll", "table": {"number": 7}}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a = " + b"[" * 100_000, "is nested too deeply"),
        (b"a = " + b"{a=" * 100_000, "is nested too deeply"),
        (b"a = " + b"1" * 5000, "is not TOML: "),
        (b"\xff\xfe", "is not TOML: "),
        (b"a = ", "is not TOML: "),
        (b"#" * (MAX_FILE_BYTES + 1), f"is longer than {MAX_FILE_BYTES} bytes"),
    ],
    ids=["arrays", "tables", "a long number", "no text", "no value", "too long"],
)
def test_invalid_file_fails_with_one_line(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "peer.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_toml(file)
    assert str(caught.value).startswith(f"config: {file} {says}")
    assert "\n" not in str(caught.value)


def test_longest_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_bytes(b"#" * MAX_FILE_BYTES)
    assert read_toml(file) == {}


def test_endless_file_is_refused() -> None:
    with pytest.raises(ConfigError, match=rf"^config: /dev/zero is longer than {MAX_FILE_BYTES} bytes$"):
        read_toml(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("rign", "peer.toml: unknown setting rign: did you mean ring?"),
        ("log-level", "peer.toml: unknown setting log-level: did you mean log_level?"),
        ("websocket", "peer.toml: unknown setting websocket: expected one of ring, log_level"),
        ("a\nb", "peer.toml: unknown setting 'a\\nb': expected one of ring, log_level"),
        ("x" * 9999, f"peer.toml: unknown setting '{'x' * 199}…: expected one of ring, log_level"),
    ],
)
def test_unknown_name_gets_a_hint(name: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_names({"ring": 1, name: 1}, ("ring", "log_level"), "peer.toml: unknown setting")
    assert str(caught.value) == says


def test_every_unknown_name_has_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        check_names(("rign", "ring", "websocket"), ("ring", "log_level"), "peer.toml: unknown setting")
    assert caught.value.lines == (
        "peer.toml: unknown setting rign: did you mean ring?",
        "peer.toml: unknown setting websocket: expected one of ring, log_level",
    )


@pytest.mark.parametrize(("more", "last"), [(0, "expected one of ring"), (1, "1 more"), (9, "9 more")])
def test_number_of_error_lines_is_limited(more: int, last: str) -> None:
    names = [f"strange {number}" for number in range(MAX_UNKNOWN + more)]
    with pytest.raises(ConfigError) as caught:
        check_names(names, ("ring",), "unknown setting")
    assert len(caught.value.lines) == MAX_UNKNOWN + bool(more)
    assert caught.value.lines[-1].endswith(f": {last}")


def test_known_names_are_accepted() -> None:
    check_names({"ring": 1}, ("ring", "log_level"), "peer.toml: unknown setting")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", "'a\\nb'"),
        (1.5, "1.5"),
        ("x" * 9999, "'" + "x" * 199 + "…"),
        (1 << 99_999, "this value"),
        (deep(9999), "this value"),
    ],
    ids=["lines", "short", "long", "a long number", "deep"],
)
def test_wrong_value_is_shown_on_one_line(value: object, text: str) -> None:
    assert shown(value) == text
