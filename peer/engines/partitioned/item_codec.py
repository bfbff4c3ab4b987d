"""Items of streams as bytes, and the columns of routes."""

from __future__ import annotations

import sys
from array import array
from typing import Final, Literal

from ringmq.overlay.core.codec import Codec
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.messages import Item

_codec: Final = Codec[Item](Item)
encode_item: Final = _codec.encode
decode_item: Final = _codec.decode

Width = Literal["B", "H", "I", "Q"]


def packed(column: array[int]) -> bytes:
    """A column in little-endian order, whatever this machine's."""
    if sys.byteorder == "little":
        return column.tobytes()
    swapped = array(column.typecode, column)
    swapped.byteswap()
    return swapped.tobytes()


def unpacked(raw: bytes, width: Width) -> array[int]:
    """Raises ProtocolError for bytes that are no whole number of integers."""
    column: array[int] = array(width)
    if len(raw) % column.itemsize:
        raise ProtocolError(f"a column of {len(raw)} bytes has no whole number of integers")
    column.frombytes(raw)
    if sys.byteorder != "little":
        column.byteswap()
    return column
