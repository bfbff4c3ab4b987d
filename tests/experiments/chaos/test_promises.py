"""Each promise of the checker stands in its document, word by word."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringmq.experiments.chaos.promises import ALL, BY_NAME, STANDARD, Promise

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("promise", [promise for promise in ALL if promise.document != STANDARD])
def test_the_sentence_stands_in_the_document(promise: Promise) -> None:
    text = " ".join((ROOT / promise.document).read_text(encoding="utf-8").split())
    assert promise.sentence in text


def test_names_are_unique() -> None:
    assert len(BY_NAME) == len(ALL) > 20
