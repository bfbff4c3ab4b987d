"""Answers of a coordinator to homes that look for retained messages: some messages in each turn, however many match."""

from __future__ import annotations

from collections import deque
from typing import Final

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.retained_index import RetainedIndex
from ringmq.peer.engines.partitioned.messages import Find, Found
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.copying import PIECE_BYTES, Records
from ringmq.peer.replication.followers import ItemStreams
from ringmq.peer.replication.partition_store import PartitionStore
from ringmq.peer.replication.record import RecordKind
from ringmq.peer.replication.rows import RowWriter
from ringmq.peer.replication.space import partitions_in, runs_of

LOOKED_AT_ONCE: Final = 1000
"""Topics in one turn, some 2 ms. A peer that looked through a million would answer nobody else meanwhile."""
MAX_FINDS: Final = 256
"""Questions of one home that are answered at the same time; beyond, they are left to their repetition."""


class Search:
    """A question, and how far its answer is."""

    __slots__ = ("after", "filters", "home", "ident", "wanted")

    def __init__(self, home: Peer, message: Find, filters: list[str], wanted: set[int]) -> None:
        self.home = home
        self.ident = message.ident
        self.filters = deque(filters)
        self.after: str | None = None
        self.wanted = wanted


class Finds:
    """One per engine."""

    __slots__ = ("_index", "_records", "_running", "_searches", "_state", "_store", "_streams")

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemStreams,
        store: PartitionStore,
        records: Records,
        index: RetainedIndex,
    ) -> None:
        self._state = state
        self._streams = streams
        self._store = store
        self._records = records
        self._index = index
        self._searches: deque[Search] = deque()
        self._running = False

    def find(self, sender: Peer, message: Find, filters: list[str]) -> None:
        """A home asks for these filters of its message, which are valid."""
        acting = self._store.acting
        asked = list(partitions_in(message.runs))
        wanted = {partition for partition in asked if acting[partition]}
        if len(wanted) < len(asked):
            elsewhere = runs_of(partition for partition in asked if not acting[partition])
            self._streams.send(sender, Found(message.ident, (), (), elsewhere))
        if wanted and len(self._searches) < MAX_FINDS:
            self._searches.append(Search(sender, message, filters, wanted))
            if not self._running:
                self._running = True
                self._turn()

    def _turn(self) -> None:
        """Go on with the first question; the others wait, so that each is answered as soon as it can be."""
        left = LOOKED_AT_ONCE
        while self._searches and left > 0:
            search = self._searches[0]
            # A question without filters is answered too.
            left -= self._look(search) if search.filters else 1
            if not search.filters:
                self._searches.popleft()
                acting = self._store.acting
                covered = runs_of(partition for partition in search.wanted if acting[partition])
                # Partitions that were handed over meanwhile are asked for again.
                others = runs_of(partition for partition in search.wanted if not acting[partition])
                self._streams.send(search.home, Found(search.ident, (), covered, others))
        self._running = bool(self._searches)
        if self._running:
            self._state.after(0.0, self._turn)

    def _look(self, search: Search) -> int:
        topic_filter = inner_of(search.filters[0])
        found, search.after = self._index.look_through(topic_filter, search.after, LOOKED_AT_ONCE)
        writer = RowWriter()
        for topic, partition in found:
            # All partitions that this peer coordinates are looked through; a question for a few of them is rare.
            if partition not in search.wanted:
                continue
            record = self._store.get(partition, (RecordKind.RETAINED, topic, 0))
            if record is not None and not record.gone:
                writer.add(partition, self._records.told(record))
            if writer.size >= PIECE_BYTES:
                self._streams.send(search.home, Found(search.ident, tuple(writer.rows), ()))
                writer = RowWriter()
        if writer.rows:
            self._streams.send(search.home, Found(search.ident, tuple(writer.rows), ()))
        if search.after is None:
            search.filters.popleft()
            return max(1, len(found))
        return LOOKED_AT_ONCE
