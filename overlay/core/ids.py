"""Ids of peers and keys of topics: 128-bit numbers on the ring, and the geometry between them.

Pure arithmetic on the circle of 2^128 numbers. Nothing here knows peers, links or time.
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
    """A number on the ring: the id of a peer or the key of a topic."""

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
            raise ValueError(f"an id must have {ID_BYTES} bytes, got {len(raw)}")
        return cls.from_bytes(raw, "big")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read 32 hexadecimal digits; raises ValueError for anything else."""
        if len(text) != DIGITS or not set(text) <= HEXADECIMAL:
            raise ValueError(f"an id must have {DIGITS} hexadecimal digits, got {text[: 2 * DIGITS]!r}")
        return cls(int(text, 16))


MAX_HASH_SEED: Final = (1 << 32) - 1
hash128: Final = mmh3.hash128
"""The hash of names: call it with name, seed, signed=False. mmh3 5.3 misreads a fourth positional argument. `key_of`
takes twice as long, for its Id."""


def key_of(name: str | bytes) -> Id:
    """The key of a name, its hash. MurmurHash3 is not cryptographic: names can be aimed at a peer."""
    return Id(hash128(name, 0, signed=False))


def clockwise(start: int, end: int) -> int:
    """Length of the way upwards from `start` to `end`, past zero if `end` is smaller."""
    return (end - start) & MASK


def nearness(key: int, peer_id: int) -> tuple[int, int]:
    """Sorts ids by closeness to `key`; of two equally far ids, the counterclockwise one wins.

    The tie rule makes ownership a function: each key has exactly one owner in each set of peers.
    """
    way = (peer_id - key) & MASK
    back = SPACE - way
    return (way, 1) if way < back else (back, 0)


def shared_digits(first: int, second: int) -> int:
    """The length, in digits, of the prefix that two ids have in common."""
    return (ID_BITS - (first ^ second).bit_length()) // DIGIT_BITS


def digit(number: int, row: int) -> int:
    """Digit number `row` of an id, the most significant being number 0."""
    return (number >> (ID_BITS - DIGIT_BITS * (row + 1))) & (BASE - 1)
