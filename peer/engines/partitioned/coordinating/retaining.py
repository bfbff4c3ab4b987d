"""The retained messages of coordinated partitions: stored, copied to the shadows, acknowledged, ended when they expire.

Owns the expiries of retained messages and the index of their topics. Knows neither filters nor publishers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.quota import Quota
from ringmq.peer.engines.partitioned.coordinating.retained_index import RetainedIndex
from ringmq.peer.engines.partitioned.messages import Retain, Retained, Row
from ringmq.peer.engines.partitioned.truth import Truth
from ringmq.peer.messaging.body import aged, remaining_of
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.copying import Copying
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.record import RecordKind, SharedRecord
from ringmq.peer.replication.rows import Expiries
from ringmq.peer.replication.tombstones import Tombstones


class Requests(Protocol):
    """The part of a coordinator that answers of others depend on."""

    copying: Copying

    def serving(self, partition: int, sender: Peer, again: Callable[[], None]) -> bool:
        """Whether this peer coordinates a partition. Otherwise the request waits for that, or is refused."""

    def refer(self, sender: Peer, partitions: Iterable[int]) -> None:
        """Another peer coordinates these partitions."""

    def decides(self, partition: int) -> bool:
        """Whether this peer coordinates a partition, or is about to."""


class Retaining:
    """One per coordinator."""

    __slots__ = ("_cleared", "_expiries", "_quota", "_requests", "_state", "_streams", "_truth", "index")

    def __init__(
        self, state: MessagingContext, streams: ItemStreams, requests: Requests, quota: Quota, cleared: Tombstones
    ) -> None:
        self._state = state
        self._streams = streams
        self._requests = requests
        self._quota = quota
        self._cleared = cleared
        self._truth = Truth(state)
        self._expiries = Expiries(remaining_of, aged)
        self.index = RetainedIndex()

    def retain(self, sender: Peer, message: Retain) -> None:
        """Store a message; answer when the shadows have it too."""
        row, copying = message.row, self._requests.copying
        if row.kind is not RecordKind.RETAINED:
            return
        if not self._truth.accepts_retained(row.partition, row.name, row.number):
            return
        if not self._requests.serving(row.partition, sender, partial(self.retain, sender, message)):
            return
        record = SharedRecord(row.kind, row.name, None, row.number, row.gone, row.confirmed, row.flags, row.body)
        known = copying.store.get(row.partition, record.key)
        # Without a bound of ends, a client that clears ever new topics would fill the memory with tombstones.
        further = known is None or (known.gone and not row.gone)
        records = len(copying.store.records(row.partition))
        if further and self._quota.refuses_retained(row.partition, row.gone, records):
            self._streams.send(sender, Retained(row.name, row.number, self._state.hybrid_clock, True))
            return
        copying.put(row.partition, record)
        # A known message is answered too: its publisher repeats it until it has an answer.
        then = partial(self._retained, sender, row)
        copying.wait(row.partition, then, partial(self._requests.refer, sender, (row.partition,)))

    def _retained(self, publisher: Peer, row: Row) -> None:
        answer = Retained(row.name, row.number, self._state.hybrid_clock)
        # Items to other peers wait for the commit of this iteration in any case, but not items to this peer.
        self._state.when_safe(partial(self._streams.send, publisher, answer))

    def told(self, record: SharedRecord) -> SharedRecord:
        """The record as it is sent to another peer."""
        return self._expiries.told(record, self._state.clock.now)

    def changed(self, partition: int, before: SharedRecord | None, after: SharedRecord | None) -> None:
        self._quota.retained_changed(partition, before, after)
        if after is None:
            assert before is not None, "a change has a record before or after it"
            self.index.remove(before.name)
            self._expiries.forget(before.name)
            self._state.leave(before.name)
            return
        # Publishers get this clock with their leases, so that their next message is later than this record.
        self._state.observe(after.number[0])
        self._cleared.heard(after)
        self._expiries.changed(after, self._state.clock.now)
        self._state.keep(after.name, after)
        if after.gone:
            self.index.remove(after.name)
        else:
            self.index.add(after.name, partition)

    def expire(self) -> None:
        """End the messages that have expired, in partitions that this peer coordinates."""
        for topic in self._expiries.due(self._state.clock.now):
            self._expire(topic)

    def _expire(self, topic: str) -> None:
        copying = self._requests.copying
        partition = self.index.partition_of(topic)
        if partition is None or not copying.store.acting[partition]:
            return
        record = copying.store.get(partition, (RecordKind.RETAINED, topic, 0))
        if record is not None and not record.gone:
            copying.put(partition, record.ended())
