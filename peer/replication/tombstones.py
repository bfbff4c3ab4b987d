"""Topics whose retained message was cleared or has expired, so that a peer that was away cannot bring it back.

A partition keeps its tombstones for `tomb_s`; this table remains. Coordinator and shadows of the topic
at that time keep it for `cleared_s`, for the last `max_cleared` topics, and it overrules an older message. A message
comes back only if a peer was away for longer, or if no peer with the tombstone owns the topic's partition any more.
"""

from __future__ import annotations

from math import inf
from typing import Final

from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.record import Number, RecordKind, SharedRecord
from ringmq.peer.replication.tombstone_table import TombstoneTable

AT_ONCE: Final = 64
"""When there are too many tombstones, this fraction of them is forgotten together. Each deletion on the disk goes
through the whole table, which has no index by time."""


class Tombstones:
    """One per core."""

    __slots__ = ("_state", "_tombs")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._tombs = TombstoneTable()

    def __len__(self) -> int:
        return len(self._tombs)

    def number_of(self, topic: str) -> Number | None:
        """The number of the clearing of a topic."""
        return self._tombs.get(topic)

    def overrule(self, record: SharedRecord) -> SharedRecord:
        """The newer of a record and the clearing of its topic."""
        if record.kind is not RecordKind.RETAINED:
            return record
        known = self._tombs.get(record.name)
        if known is None or known < record.number or (known == record.number and record.gone):
            return record
        return SharedRecord(RecordKind.RETAINED, record.name, None, known, True)

    def heard(self, record: SharedRecord) -> None:
        """Note a record that is now valid for its topic."""
        if not record.gone:
            # The message is newer than the tombstone, or `overrule` would have replaced it before.
            self._tombs.pop(record.name)
            return
        self.restore(record.name, record.number, self._state.clock.now)
        most = self._state.config.max_cleared
        if len(self._tombs) > most:
            self._forget(1 + most // AT_ONCE)

    def restore(self, topic: str, number: Number, at: float) -> None:
        """Add the tombstone of a topic. Call it in the order of time."""
        # A peer whose wall clock is slow must still give later stamps than the clearing (hybrid logical clock, Kulkarni
        # 2014).
        self._state.observe(number[0])
        self._tombs.put(topic, number, at)

    def sweep(self) -> None:
        """Forget old tombstones. Call it periodically."""
        before = self._state.clock.now - self._state.config.cleared_s
        self._forget(len(self._tombs), before)
        self._tombs.slim()

    def _forget(self, most: int, before: float = inf) -> None:
        """Forget up to `most` tombstones from before that time, the oldest first."""
        last = None
        for _ in range(most):
            at = self._tombs.oldest_at()
            if at is None or at >= before:
                break
            self._tombs.pop_oldest()
            last = at
        if last is not None:
            self._state.forget(self._state.clock.now - last)
