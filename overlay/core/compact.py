"""The room that a table takes. Python's never get smaller by themselves when most of what was in them has gone."""

from __future__ import annotations

import sys
from collections.abc import Sized
from typing import Final, TypeVar

ENTRY_BYTES: Final = 256
"""Several times what a table takes for each entry that it has room for."""
FEW: Final = 100
"""Entries for which nobody need look."""

Key = TypeVar("Key")
Value = TypeVar("Value")


def is_roomy(table: Sized) -> bool:
    """Whether a dict or a set is mostly empty, and large."""
    return sys.getsizeof(table) > ENTRY_BYTES * (len(table) + FEW)


def slimmed(table: dict[Key, Value]) -> dict[Key, Value]:
    """The same table, or if it is mostly empty a smaller one to be put in its place."""
    return dict(table) if is_roomy(table) else table
