"""The heads of the tables, which programs and people rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.collector.jobs.tables.columns import HEADS, PERCENTILES, Head

DOCUMENTATION = Path(__file__).resolve().parents[4] / "docs" / "collector_tables.md"


@pytest.mark.parametrize("head", HEADS.values(), ids=lambda head: head.name)
def test_columns_are_named_once_and_sort_the_rows(head: Head) -> None:
    assert len(set(head.names)) == len(head.names)
    assert set(head.order) <= set(head.names)
    assert any(column.shown for column in head.columns)


@pytest.mark.parametrize("head", HEADS.values(), ids=lambda head: head.name)
def test_each_column_is_documented(head: Head) -> None:
    """With a row of its own below the title of its table."""
    text = DOCUMENTATION.read_text(encoding="utf-8")
    section = text.partition(f"\n## `{head.name}`")[2].partition("\n## ")[0]
    documented = {
        name.strip(" `")
        for line in section.splitlines()
        if line.startswith("| `")
        for name in line.split("|")[1].split(",")
    }
    assert documented == set(head.names)


def test_percentiles_ascend() -> None:
    assert list(PERCENTILES.values()) == sorted(PERCENTILES.values())
