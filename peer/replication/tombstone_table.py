"""Many cleared topics, each with the number and time of its clearing, in a fraction of the memory that objects take.

A table with open addressing over arrays, in the order of insertion. Topics are identified by Python's hash, of 64 bits
and with a secret of the process: two of 100,000 topics collide with a probability of one in four thousand million.
"""

from __future__ import annotations

from array import array
from typing import Final

from ringmq.peer.replication.record import Number

EMPTY: Final = -1
LEFT: Final = -2
"""A removed slot: a search must go on behind it, where later topics may stand."""
NO_MORE: Final = -1
"""The stamp of a removed record."""
FEWEST_SLOTS: Final = 16
FEWEST: Final = 2
AT_FIRST: Final = 3
"""Slots for each record: the least, and the number after a rebuild."""


class TombstoneTable:
    """Some 40 bytes a topic."""

    __slots__ = ("_ats", "_chances", "_first", "_hashes", "_length", "_since", "_slots", "_stamps")

    def __init__(self) -> None:
        self._begin(FEWEST_SLOTS)

    def _begin(self, slots: int) -> None:
        self._slots = array("i", [EMPTY]) * slots
        self._hashes = array("q")
        self._stamps = array("q")
        self._chances = array("Q")
        self._since = 0.0
        self._ats = array("f")
        """Seconds since the first record: floats of 32 bits are exact to a hundredth of a second after a day."""
        self._first = 0
        """All records before this index are removed."""
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def get(self, topic: str) -> Number | None:
        """The number of the clearing of a topic."""
        slot = self._find(hash(topic))
        if slot is None:
            return None
        record = self._slots[slot]
        return self._stamps[record], self._chances[record]

    def put(self, topic: str, number: Number, at: float) -> None:
        """Append the newest tombstone, and remove an older one of its topic."""
        self.pop(topic)
        if FEWEST * (len(self._hashes) + 1) > len(self._slots):
            self._rebuild()
        self._append(hash(topic), *number, at)

    def pop(self, topic: str) -> None:
        slot = self._find(hash(topic))
        if slot is not None:
            self._remove(slot)

    def oldest_at(self) -> float | None:
        """The time of the oldest tombstone."""
        if not self._length:
            return None
        while self._stamps[self._first] == NO_MORE:
            self._first += 1
        return self._since + self._ats[self._first]

    def pop_oldest(self) -> None:
        """Remove the oldest tombstone. Requires a non-empty table."""
        self.oldest_at()
        slot = self._find(self._hashes[self._first])
        assert slot is not None, "every record stands in a slot"
        self._remove(slot)

    def slim(self) -> None:
        """Release the memory of removed tombstones."""
        if len(self._hashes) >= 2 * self._length and len(self._slots) > FEWEST_SLOTS:
            self._rebuild()

    def _append(self, topic: int, stamp: int, chance: int, at: float) -> None:
        slots = self._slots
        slot, mask = topic % len(slots), len(slots) - 1
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = len(self._hashes)
        self._hashes.append(topic)
        self._stamps.append(stamp)
        self._chances.append(chance)
        if not self._ats:
            self._since = at
        self._ats.append(at - self._since)
        self._length += 1

    def _find(self, topic: int) -> int | None:
        slots, hashes = self._slots, self._hashes
        slot, mask = topic % len(slots), len(slots) - 1
        while (record := slots[slot]) != EMPTY:
            if record >= 0 and hashes[record] == topic:
                return slot
            slot = (slot + 1) & mask
        return None

    def _remove(self, slot: int) -> None:
        self._stamps[self._slots[slot]] = NO_MORE
        self._slots[slot] = LEFT
        self._length -= 1

    def _rebuild(self) -> None:
        """Copy the remaining records into a table of the right size."""
        slots = FEWEST_SLOTS
        while slots < AT_FIRST * (self._length + 1):
            slots *= 2
        since, left = self._since, zip(self._hashes, self._stamps, self._chances, self._ats, strict=True)
        self._begin(slots)
        for topic, stamp, chance, at in left:
            if stamp != NO_MORE:
                self._append(topic, stamp, chance, since + at)
