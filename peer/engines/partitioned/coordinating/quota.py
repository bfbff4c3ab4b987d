"""The room of coordinated partitions: live entries and the shapes of their filters, retained messages, tombstones.

Follows each change of a record, so that a question costs a look-up. Knows neither homes nor messages.
"""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeVar

from ringmq.peer.engines.partitioned.names import EXACT, shape_of
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.record import SharedRecord

MAX_SHAPES: Final = 64
"""Shapes of wildcard filters in one partition. A publisher looks up each of them for every new topic below the prefix,
so more would let one client slow down all publishers."""
MAX_ENTRIES: Final = 100_000
"""Live entries in one partition: a next coordinator visits all of them without a pause, which takes about a second. All
wildcard filters with one literal prefix are in one partition."""
MAX_RETAINED: Final = 100_000
"""Live retained messages in one partition. Only names that were made for it bring so many together."""
MAX_RECORDS: Final = 250_000
"""Both, with tombstones: a client that subscribes and unsubscribes, or retains and clears, leaves one a time."""

T = TypeVar("T")


class Quota:
    """One per coordinator."""

    __slots__ = ("_entries", "_retained", "_shapes")

    def __init__(self) -> None:
        self._entries: Counter[int] = Counter()
        self._retained: Counter[int] = Counter()
        self._shapes: dict[int, Counter[bytes]] = {}
        """Shapes of live wildcard entries. All three by partition."""

    def refuses_entry(self, partition: int, topic_filter: str, records: int) -> bool:
        """Whether there is no room for a further live entry. `records` is the number of all records there."""
        if records >= MAX_RECORDS or self._entries[partition] >= MAX_ENTRIES:
            return True
        shape = shape_of(inner_of(topic_filter))
        shapes = self._shapes.get(partition)
        return shape != EXACT and shapes is not None and shape not in shapes and len(shapes) >= MAX_SHAPES

    def refuses_retained(self, partition: int, gone: bool, records: int) -> bool:
        """The same for a retained message of a further topic, or for its end."""
        return records >= MAX_RECORDS or (not gone and self._retained[partition] >= MAX_RETAINED)

    def entry_came(self, partition: int, record: SharedRecord) -> None:
        """A live entry is in a coordinated partition."""
        self._entries[partition] += 1
        shape = shape_of(inner_of(record.name))
        if shape != EXACT:
            self._shapes.setdefault(partition, Counter())[shape] += 1

    def entry_left(self, partition: int, record: SharedRecord) -> None:
        _less(self._entries, partition)
        shape = shape_of(inner_of(record.name))
        if shape != EXACT and partition in self._shapes:
            _less(self._shapes[partition], shape)

    def left(self, partition: int) -> None:
        """A partition is coordinated elsewhere now."""
        self._entries.pop(partition, None)
        self._shapes.pop(partition, None)

    def retained_changed(self, partition: int, before: SharedRecord | None, after: SharedRecord | None) -> None:
        """A record of a retained message changed, in a partition that this peer coordinates or not."""
        change = (after is not None and not after.gone) - (before is not None and not before.gone)
        if change > 0:
            self._retained[partition] += 1
        elif change < 0:
            _less(self._retained, partition)


def _less(counts: Counter[T], key: T) -> None:
    counts[key] -= 1
    if not counts[key]:
        del counts[key]
