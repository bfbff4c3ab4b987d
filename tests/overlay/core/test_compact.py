"""Tables that are mostly empty are replaced; others stay what they are."""

from __future__ import annotations

import sys

import pytest

from ringmq.overlay.core.compact import FEW, is_roomy, slimmed


@pytest.mark.parametrize("count", [0, 1, FEW, 1000, 5462, 100_000])
def test_a_table_that_was_filled_stays(count: int) -> None:
    table = dict.fromkeys(range(count))
    assert not is_roomy(table)
    assert slimmed(table) is table


@pytest.mark.parametrize("left", [0, 1, 100])
def test_one_that_was_emptied_is_made_anew(left: int) -> None:
    table = {number: str(number) for number in range(10_000)}
    for number in range(10_000 - left):
        del table[number]
    assert is_roomy(table)
    slim = slimmed(table)
    assert slim == table
    assert list(slim) == list(table)
    assert sys.getsizeof(slim) < sys.getsizeof(table) / 20
    assert not is_roomy(slim)
