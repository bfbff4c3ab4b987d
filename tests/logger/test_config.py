"""Settings of recording: a wrong value raises one clear line, and the document lists the same settings."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.logger.config import DELIVERIES, LEAST_INTERVAL_S, RANGES, RecordConfig, is_run
from ringmq.logger.record_files import KEPT, MAX_FILE_BYTES

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "records.md"


def test_every_number_has_a_range() -> None:
    numbers = {field.name for field in fields(RecordConfig) if field.type in ("int", "float")}
    assert set(RANGES) == numbers


@pytest.mark.parametrize("name", RANGES)
def test_range_ends_are_accepted_and_values_beyond_raise(name: str) -> None:
    least, most = RANGES[name]
    for value in (least, most):
        RecordConfig(**{name: value})  # type: ignore[arg-type]
    for value in (least - 1, most * 2, float("nan")):
        with pytest.raises(ValueError, match=f"{name} must be {least} to .*, got "):
            RecordConfig(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"interval_s": 0.01}, "interval_s must be 0 (no samples) or at least 0.1, got 0.01"),
        ({"deliveries": "all"}, "deliveries must be one of each, histogram, off, got 'all'"),
        ({"deliveries": "histogram", "interval_s": 0}, "deliveries is histogram, which needs an interval_s above 0"),
        (
            {"run": "a/b"},
            "run must be 1 to 64 letters, digits, dots, underscores and dashes, got 'a/b'",
        ),
    ],
)
def test_wrong_value_raises_one_clear_line(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=r"must be|needs") as error:
        RecordConfig(**settings)
    assert str(error.value) == line


def test_all_kinds_of_deliveries_are_accepted() -> None:
    assert [RecordConfig(deliveries=kind).deliveries for kind in DELIVERIES] == list(DELIVERIES)
    assert RecordConfig(interval_s=LEAST_INTERVAL_S, deliveries="histogram").interval_s == LEAST_INTERVAL_S


@pytest.mark.parametrize("run", ["a", "A.b_c-9", "x" * 64])
def test_valid_run_is_accepted(run: str) -> None:
    assert is_run(run)
    assert RecordConfig(run=run).run_name("ringmq") == run


@pytest.mark.parametrize("run", ["", "x" * 65, "a b", "a/b", "ä", "a\n", "\n"])
def test_invalid_run_raises(run: str) -> None:
    assert not is_run(run)
    with pytest.raises(ValueError, match="run must be "):
        RecordConfig(run=run)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=200))
def test_every_ring_name_gives_a_valid_run(ring: str) -> None:
    run = RecordConfig().run_name(ring)
    assert is_run(run)
    assert run == ring or not is_run(ring)


def test_document_lists_all_settings_and_defaults() -> None:
    section = DOCUMENT.read_text(encoding="utf-8").partition("## Settings\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", section, re.MULTILINE)
    assert [name for name, _ in rows] == [field.name for field in fields(RecordConfig)]
    for (name, default), field in zip(rows, fields(RecordConfig), strict=True):
        if field.default is None:
            assert "`" not in default, name
        else:
            assert default == f"`{_toml(field.default)}`", name


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)


def test_document_states_the_space_of_the_files() -> None:
    assert round((KEPT + 1) * MAX_FILE_BYTES, -8) == 600_000_000
    assert f"{KEPT} older" in DOCUMENT.read_text(encoding="utf-8")
