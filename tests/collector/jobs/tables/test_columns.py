"""The heads of the tables, which programs and people rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.collector.jobs.tables.columns import HEADS, PERCENTILES, Head

DOCUMENTATION = Path(__file__).resolve().parents[4] / "docs" / "collector_tables.md"


@pytest.mark.parametrize("head", HEADS.values(), ids=lambda head: head.name)
def test_columns_have_unique_names_and_define_the_order(head: Head) -> None:
    assert len(set(head.names)) == len(head.names)
    assert set(head.order) <= set(head.names)
    assert any(column.shown for column in head.columns)


@pytest.mark.parametrize("head", HEADS.values(), ids=lambda head: head.name)
def test_document_lists_each_column(head: Head) -> None:
    """Each column has a row below the title of its table."""
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
