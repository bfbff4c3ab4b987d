"""Memory of tables: a dict or set of Python never gets smaller by itself when most of its entries are removed."""

from __future__ import annotations

import sys
from collections.abc import Sized
from typing import Final, TypeVar

ENTRY_BYTES: Final = 256
"""Several times the memory that a table takes for each entry it has space for."""
FEW: Final = 100
"""Entries whose memory is not worth a copy."""

Key = TypeVar("Key")
Value = TypeVar("Value")


def is_roomy(table: Sized) -> bool:
    """Whether a dict or a set is mostly empty, and large."""
    return sys.getsizeof(table) > ENTRY_BYTES * (len(table) + FEW)


def slimmed(table: dict[Key, Value]) -> dict[Key, Value]:
    """The same table, or a smaller copy to replace it if it is mostly empty."""
    return dict(table) if is_roomy(table) else table
