"""A fact that several peers keep copies of. Copies merge by rank, so the order in which they come does not matter.

Knows nothing of the meaning of names and bodies.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Count, Peer

MAX_NAME = 65_537
"""The longest name in bytes of UTF-8, and thus also in characters."""

Name = Annotated[str, Meta(max_length=MAX_NAME)]
Number = tuple[Count, Count]
MOST: Final = (1 << 63) - 1
"""The highest Count."""


class RecordKind(IntEnum):
    """The subject of a record."""

    ENTRY = 0
    """A home wants a filter; numbered by the home: (its boot, count)."""
    RETAINED = 1
    """The retained message of a topic; numbered by (time, publisher)."""
    CLIENT_ID = 2
    """The home that has the client with this id; numbered by the coordinator: (time, home)."""


Key = tuple[int, str, int]


class SharedRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A record of one partition. `home` is set for entries and client ids."""

    kind: RecordKind
    name: Name
    home: Peer | None
    number: Number
    gone: bool
    confirmed: bool = False
    """A retained message is on its way to all subscribers with QoS 1 or 2, and none of them can miss it. The homes
    before the present one have given up a client id."""
    flags: Count = 0
    """Opaque here. Equal numbers have equal flags."""
    body: bytes = b""

    @property
    def key(self) -> Key:
        # Entries of several homes stand side by side; a client id has one home.
        return self.kind, self.name, 0 if self.home is None or self.kind is RecordKind.CLIENT_ID else self.home.id

    def rank(self) -> tuple[Number, bool, bool]:
        """The record with the higher rank wins. If numbers are equal, an entry that has lapsed wins over the live
        entry; of other kinds the live record wins over its end."""
        return self.number, self.gone if self.kind is RecordKind.ENTRY else not self.gone, self.confirmed

    def ended(self, flags: int = 0) -> SharedRecord:
        """The end of this record. Only homes number entries; coordinators number all other records."""
        first, second = self.number
        # A higher one could neither be sent nor stored.
        number = self.number if self.kind is RecordKind.ENTRY else (min(first + 1, MOST), second)
        return SharedRecord(self.kind, self.name, self.home, number, True, False, flags)


EPOCHS: Final = 1 << 63
"""Numbers of epochs go round: of two, the one less than half a round ahead is the higher (as serial numbers, RFC 1982).
Otherwise one message with the highest number would leave no epoch for any later coordinator."""


def is_higher(number: int, than: int) -> bool:
    """Whether one number of an epoch is above another. 0 is below all others: there was no epoch."""
    if not number or number == than:
        return False
    return not than or (number - than) % EPOCHS < EPOCHS // 2


def next_epoch(number: int) -> int:
    return (number + 1) % EPOCHS or 1


class Epoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The term of one actor of a partition. A higher epoch ends all lower ones."""

    number: Count
    actor: Id

    def __gt__(self, other: Epoch) -> bool:
        return self.actor > other.actor if self.number == other.number else is_higher(self.number, other.number)

    def __lt__(self, other: Epoch) -> bool:
        return other > self

    def __ge__(self, other: Epoch) -> bool:
        return not other > self

    def __le__(self, other: Epoch) -> bool:
        return not self > other


_MASK = (1 << 64) - 1


def digest_of(name_hash: int, number: Number) -> int:
    """64 bits for a record. The digest of several is the exclusive or of theirs, so it follows each change at once."""
    # An own mix of the bits: Python's `hash` differs between builds, and two peers compare these.
    mixed = (name_hash ^ number[0] * 0x9E3779B97F4A7C15 ^ number[1] * 0xC2B2AE3D27D4EB4F) & _MASK
    mixed = ((mixed ^ mixed >> 33) * 0xFF51AFD7ED558CCD) & _MASK
    return mixed ^ mixed >> 33
