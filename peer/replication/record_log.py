"""The records of one place in the order of their last change, so that a follower can be sent the latest changes.

Merging takes the higher rank, so two logs that saw the same records are equal, whatever the order of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ringmq.overlay.core.compact import slimmed
from ringmq.peer.engines.coordinated.messages import Kind, Record

Key = tuple[int, str, int]


class RecordLog:
    """`position` counts the changes; `listed` is the position of the last change that publishers must know."""

    __slots__ = ("_records", "listed", "position")

    def __init__(self) -> None:
        self._records: dict[Key, tuple[int, Record]] = {}
        self.position = 0
        self.listed = 0

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter([record for _, record in self._records.values()])

    def __contains__(self, key: Key) -> bool:
        return key in self._records

    def get(self, key: Key) -> Record | None:
        found = self._records.get(key)
        return found[1] if found else None

    def position_of(self, key: Key) -> int:
        found = self._records.get(key)
        return found[0] if found else 0

    def put(self, record: Record, key: Key | None = None) -> bool:
        """Store a record if it is newer than the known one; returns whether it was. `key` saves computing its key."""
        key = record.key if key is None else key
        known = self.get(key)
        if known is not None and known.rank() >= record.rank():
            return False
        # A dict keeps the order of insertion: the changed record moves to the end, and `since` reads only the latest
        # changes.
        self._records.pop(key, None)
        self.position += 1
        self._records[key] = (self.position, record)
        # The third part of a rank, `confirmed`, matters to the coordinator and its shadows only.
        if record.kind is Kind.ENTRY and not (known is not None and known.rank()[:2] == record.rank()[:2]):
            self.listed = self.position
        return True

    def lapsed(self, record: Record) -> bool:
        """Whether a lease has expired at one of two peers only. An unsubscribe would have a higher number."""
        known = self.get(record.key)
        if known is None or record.kind is not Kind.ENTRY:
            return False
        return known.number == record.number and known.gone is not record.gone

    def forget(self, key: Key) -> None:
        """Remove a record, at the same position: each peer forgets tombstones by itself."""
        self._records.pop(key, None)

    def slim(self) -> None:
        """Release the memory of removed records."""
        self._records = slimmed(self._records)

    def since(self, position: int) -> list[Record]:
        """The records changed after a position, the oldest first."""
        found = []
        for at, record in reversed(self._records.values()):
            if at <= position:
                break
            found.append(record)
        found.reverse()
        return found

    def replace(self, records: Iterable[Record], position: int) -> None:
        """Become a copy of another log."""
        self._records = {}
        # The copied records come without positions, so each counts as changed at the last one.
        self.position = self.listed = position
        for record in records:
            self._records[record.key] = (position, record)
