"""Points of the ring: 128-bit ids of peers and keys of topics, and the geometry between them.

Pure arithmetic on the circle of 2^128 points. Nothing here knows of peers, links or time.
"""

from __future__ import annotations

from typing import Final, Self

import mmh3

ID_BITS: Final = 128
ID_BYTES: Final = ID_BITS // 8
SPACE: Final = 1 << ID_BITS
MASK: Final = SPACE - 1
DIGIT_BITS: Final = 4
"""Pastry's b: an id is read as digits to the base 2^b."""
DIGITS: Final = ID_BITS // DIGIT_BITS
BASE: Final = 1 << DIGIT_BITS
HEXADECIMAL: Final = frozenset("0123456789abcdefABCDEF")


class Id(int):
    """A point of the ring: the id of a peer or the key of a topic."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Id({self.hex()})"

    def hex(self) -> str:
        return f"{int(self):032x}"

    def short(self) -> str:
        """The first eight hexadecimal digits, for log lines and tables."""
        return f"{int(self) >> 96:08x}"

    def packed(self) -> bytes:
        return self.to_bytes(ID_BYTES, "big")

    @classmethod
    def unpack(cls, raw: bytes) -> Self:
        """Read 16 bytes; raises ValueError for any other length."""
        if len(raw) != ID_BYTES:
            raise ValueError(f"an id has {ID_BYTES} bytes, not {len(raw)}")
        return cls.from_bytes(raw, "big")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read 32 hexadecimal digits; raises ValueError for anything else."""
        if len(text) != DIGITS or not set(text) <= HEXADECIMAL:
            raise ValueError(f"an id has {DIGITS} hexadecimal digits, unlike {text[: 2 * DIGITS]!r}")
        return cls(int(text, 16))


def key_of(name: str | bytes) -> Id:
    """The point a name hashes to. MurmurHash3 is not cryptographic: names can be aimed at a peer."""
    return Id(mmh3.hash128(name, signed=False))


def clockwise(start: int, end: int) -> int:
    """How far one goes from `start` upwards, past zero if need be, until `end`."""
    return (end - start) & MASK


def distance(one: int, other: int) -> int:
    """The shorter way round between two points."""
    way = (other - one) & MASK
    return way if way <= SPACE >> 1 else SPACE - way


def nearness(key: int, point: int) -> tuple[int, int]:
    """Sorts points by closeness to `key`; of two equally far ones the counterclockwise wins.

    The tie rule makes ownership a function: for each key and each set of points one is the owner.
    """
    way = (point - key) & MASK
    back = SPACE - way
    return (way, 1) if way < back else (back, 0)


def shared_digits(one: int, other: int) -> int:
    """The length, in digits, of the prefix that two ids have in common."""
    return (ID_BITS - (one ^ other).bit_length()) // DIGIT_BITS


def digit(point: int, row: int) -> int:
    """Digit number `row` of an id, the most significant being number 0."""
    return (point >> (ID_BITS - DIGIT_BITS * (row + 1))) & (BASE - 1)
