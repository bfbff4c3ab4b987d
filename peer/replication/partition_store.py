"""The records of this peer by partition, with the terms that it obeys. Merges by rank; knows nothing of other peers.

Records of a partition are here because this peer coordinates it, shadows it, or did so before and has not handed them
over yet. The store also knows of each partition whether these may be all that are in force.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from ringmq.overlay.core.ids import Id, key_of
from ringmq.overlay.core.messages import Peer
from ringmq.peer.replication.record import Epoch, Key, Number, RecordKind, SharedRecord, digest_of
from ringmq.peer.replication.space import NUMBERS, PARTITIONS

MAX_PEERS: Final = 4096
"""Homes whose `Peer` is shared between records. Beyond, all are forgotten, and later records have their own."""
UNUSED: Final = 0
"""Nobody has coordinated a partition, as far as this peer knows."""
PARTIAL: Final = 1
"""Records in force may be missing in a copy."""
WHOLE: Final = 2
"""A copy has all records in force: the coordinator grants nothing that is not here."""
WHOLE_BEFORE: Final = 3
"""A copy was whole when the peer asked for it that this peer obeys now. That peer may grant more, and no other."""
_NONE: Final[Mapping[Key, SharedRecord]] = MappingProxyType({})
_LOW: Final = (1 << 64) - 1

FLAGS: Final = 0xFF
"""The flags by which records are counted. Others choose them, and must not make the counts many."""
Sort = tuple[RecordKind, int, bool]
"""The kind of a record, its flags, and whether it is gone."""
Changed = Callable[[int, SharedRecord | None, SharedRecord | None], None]
"""Called with the partition, and a record before and after its change; None if there is none."""


class PartitionStore:
    """One per engine."""

    __slots__ = (
        "_changed", "_digests", "_ends", "_homes", "_me", "_records", "_stays", "acting", "counts", "epochs", "whole",
    )  # fmt: skip

    def __init__(
        self, me: Callable[[], Peer], changed: Changed, stays: Callable[[SharedRecord], bool] = lambda record: False
    ) -> None:
        """`me` is called when the first epoch is asked for: records of the disk are taken before the peer has begun.
        `stays` says of a record that is gone whether it is more than a tombstone, and not forgotten as one."""
        self._me = me
        self._changed = changed
        self._stays = stays
        self._records: dict[int, dict[Key, SharedRecord]] = {}
        self._digests: dict[int, int] = {}
        """Of partitions that somebody has asked about."""
        self._ends: deque[tuple[float, int, Key, Number]] = deque()
        """Tombstones in the order of their time."""
        self._homes: dict[Id, Peer] = {}
        self.counts: Counter[Sort] = Counter()
        """How many records there are of each sort. To count them for a status would take half a second with a million,
        and nothing else would be done meanwhile."""
        self.epochs: dict[int, Epoch] = {}
        self.acting = bytearray(PARTITIONS)
        """1 for each partition that this peer coordinates."""
        self.whole = bytearray(PARTITIONS)
        """UNUSED, PARTIAL, WHOLE or WHOLE_BEFORE for each partition."""

    def records(self, partition: int) -> Mapping[Key, SharedRecord]:
        return self._records.get(partition, _NONE)

    def partitions(self) -> Iterable[int]:
        """The partitions with records, in no order."""
        return list(self._records)

    def get(self, partition: int, key: Key) -> SharedRecord | None:
        records = self._records.get(partition)
        return None if records is None else records.get(key)

    def followed(self) -> list[int]:
        """Partitions with coordinators that this peer knows, and is none of."""
        me, acting = self._me().id, self.acting
        return [partition for partition, epoch in self.epochs.items() if not acting[partition] and epoch.actor != me]

    def epoch(self, partition: int) -> Epoch:
        return self.epochs.get(partition) or Epoch(0, self._me().id)

    def above(self, epoch: Epoch, first: int, last: int) -> list[int]:
        """The partitions of a range whose epochs are higher than this one."""
        # Neighbouring partitions share the `Epoch` that one message brought, so most need no comparison.
        known, none = self.epochs.get, Epoch(0, self._me().id)
        earlier, higher = none, none > epoch
        found: list[int] = []
        for partition in NUMBERS[first : last + 1]:
            there = known(partition, none)
            if there is not earlier:
                earlier, higher = there, there > epoch
            if higher:
                found.append(partition)
        return found

    def obey(self, partition: int, epoch: Epoch) -> None:
        """No lower epoch counts any more. The coordinator of another one may have granted what is not here."""
        if self.epochs.get(partition) != epoch:
            self.epochs[partition] = epoch
            self.whole[partition] = PARTIAL

    def give(self, partition: int, epoch: Epoch) -> int:
        """The actor of this epoch gets the records. Returns whether these are WHOLE, PARTIAL or UNUSED."""
        state = self.whole[partition]
        if state == WHOLE_BEFORE:
            state = WHOLE if self.epoch(partition).actor == epoch.actor else PARTIAL
        self.epochs[partition] = epoch
        self.whole[partition] = WHOLE_BEFORE if state == WHOLE else state
        return state

    def forget_given(self) -> None:
        """What was given away may not be all any more."""
        self.whole = self.whole.replace(bytes([WHOLE_BEFORE]), bytes([PARTIAL]))

    def take(self, partition: int, record: SharedRecord, now: float) -> bool:
        """Merge a record; returns whether it was news."""
        records = self._records.get(partition)
        if records is None:
            records = self._records[partition] = {}
        key = record.key
        before = records.get(key)
        if before is not None and before.rank() >= record.rank():
            return False
        record = self._compact(record)
        records[key] = record
        self._follow(partition, before, record)
        if record.gone:
            self._ends.append((now, partition, key, record.number))
        self._changed(partition, before, record)
        return True

    def _compact(self, record: SharedRecord) -> SharedRecord:
        """The same record with the `Peer` of other records of its home: each is decoded with an object of its own."""
        home = record.home
        if home is None:
            return record
        known = self._homes.get(home.id)
        if known is home:
            return record
        if known != home:
            if len(self._homes) >= MAX_PEERS:
                self._homes.clear()
            self._homes[home.id] = known = home
        boot, count = record.number
        # Entries are numbered by (boot, count): each repeats the boot, a time in ms and thus an object of 32 bytes.
        number = (known.boot, count) if boot == known.boot else record.number
        return SharedRecord(
            record.kind, record.name, known, number, record.gone, record.confirmed, record.flags, record.body
        )

    def lapsed(self, partition: int, record: SharedRecord) -> bool:
        """Whether a lease has expired at one of two peers only. An unsubscribe would have a higher number."""
        known = self.get(partition, record.key)
        if known is None or record.kind is not RecordKind.ENTRY:
            return False
        return known.number == record.number and known.gone is not record.gone

    def forget(self, partition: int, key: Key) -> None:
        """Remove a record without a trace."""
        records = self._records.get(partition)
        if records is None:
            return
        before = records.pop(key, None)
        self._follow(partition, before, None)
        if not records:
            del self._records[partition]
        if before is not None:
            self._changed(partition, before, None)

    def drop(self, partition: int) -> None:
        """Remove all records of a partition that has other owners."""
        records = self._records.pop(partition, None)
        self._digests.pop(partition, None)
        self.whole[partition] = PARTIAL
        for record in (records or {}).values():
            self._count(record, -1)
            self._changed(partition, record, None)

    def forget_gone(self, before: float) -> None:
        """Forget the tombstones from before that time: each peer does so by itself."""
        ends = self._ends
        while ends and ends[0][0] < before:
            _, partition, key, number = ends.popleft()
            record = self.get(partition, key)
            # It may have come back since; if it has ended again, a later tombstone is in the queue.
            if record is not None and record.gone and record.number == number and not self._stays(record):
                self.forget(partition, key)

    def digest(self, partition: int) -> int:
        """Equal for two peers that have the same records of a partition, without its tombstones."""
        digest = self._digests.get(partition)
        if digest is None:
            digest = 0
            for record in self.records(partition).values():
                if not record.gone:
                    digest ^= _digest(record)
            self._digests[partition] = digest
        return digest

    def _follow(self, partition: int, before: SharedRecord | None, after: SharedRecord | None) -> None:
        """Let the counts, and the digest of a partition, follow a change."""
        if before is not None:
            self._count(before, -1)
        if after is not None:
            self._count(after, 1)
        digest = self._digests.get(partition)
        if digest is not None:
            if before is not None and not before.gone:
                digest ^= _digest(before)
            if after is not None and not after.gone:
                digest ^= _digest(after)
            self._digests[partition] = digest

    def _count(self, record: SharedRecord, change: int) -> None:
        self.counts[record.kind, record.flags & FLAGS, record.gone] += change

    def __iter__(self) -> Iterator[tuple[int, SharedRecord]]:
        for partition, records in self._records.items():
            for record in records.values():
                yield partition, record


def _digest(record: SharedRecord) -> int:
    _, name, home_id = record.key
    name_hash = (key_of(name) & _LOW) ^ (home_id & _LOW) ^ record.kind << 1 ^ record.confirmed << 2
    return digest_of(name_hash, record.number)
