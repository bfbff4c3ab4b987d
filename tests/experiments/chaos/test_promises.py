"""Each promise of the checker stands in its document, word by word."""

from __future__ import annotations

from pathlib import Path
from re import findall

import pytest

from ringmq.experiments.chaos.promises import ALL, BY_NAME, STANDARD, Promise
from ringmq.experiments.chaos.scenarios import SCENARIOS

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("promise", [promise for promise in ALL if promise.document != STANDARD])
def test_the_sentence_stands_in_the_document(promise: Promise) -> None:
    text = " ".join((ROOT / promise.document).read_text(encoding="utf-8").split())
    assert promise.sentence in text


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(ALL) > 20


def test_each_scenario_shows_a_row_of_the_table_of_promises() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    table = text.split("## What holds")[1].split("\n## ")[0]
    shown = [
        name for row in table.splitlines() if row.startswith("|") for name in findall(r"`(\w+)`", row.split("|")[-2])
    ]
    assert sorted(shown) == sorted(SCENARIOS)
