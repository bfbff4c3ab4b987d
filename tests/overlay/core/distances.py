"""The distance between two ids, computed apart from `nearness`, so that tests can compare the two."""

from __future__ import annotations

from ringmq.overlay.core.ids import MASK, SPACE


def distance(first: int, second: int) -> int:
    """Length of the shorter way round between two numbers."""
    way = (second - first) & MASK
    return way if way <= SPACE >> 1 else SPACE - way
