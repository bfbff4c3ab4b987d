"""Topics whose retained message was cleared, or has expired: so that nobody who was away brings it back.

A place remembers for `tomb_s` what is gone, and is forgotten then; this is what is left of it. It is known to who was
the topic's coordinator or its shadow at that time, for `cleared_s` and of the last `max_cleared` topics. An older
message is overruled by it. So one comes back only if a peer was away for longer, or if none of those who knew better is
among the nearest to the topic's key any more.
"""

from __future__ import annotations

from math import inf
from typing import Final

from ringmq.peer.engines.coordinated.messages import Kind, Number, Record
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.tombstone_table import TombstoneTable

AT_ONCE: Final = 64
"""Of one part in so many of the most that are known: as many are forgotten together when there are too many."""


class Tombstones:
    """One per core."""

    __slots__ = ("_state", "_tombs")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._tombs = TombstoneTable()

    def __len__(self) -> int:
        return len(self._tombs)

    def of(self, topic: str) -> Record | None:
        """The clearing of a topic."""
        known = self._tombs.get(topic)
        return None if known is None else _clearing(topic, known)

    def overrule(self, record: Record) -> Record:
        """What is true of a topic, once this record is known: itself, or a clearing that came after it."""
        if record.kind is not Kind.RETAINED:
            return record
        known = self._tombs.get(record.name)
        return record if known is None or known < record.number else _clearing(record.name, known)

    def heard(self, record: Record) -> None:
        """This holds of its topic now."""
        if not record.gone:
            self._tombs.pop(record.name)
            return
        self.restore(record.name, record.number, self._state.clock.now)
        most = self._state.config.max_cleared
        if len(self._tombs) > most:
            self._forget(1 + most // AT_ONCE)

    def restore(self, topic: str, number: Number, at: float) -> None:
        """In the order of time."""
        self._state.hybrid_clock = max(self._state.hybrid_clock, number[0])
        self._tombs.put(topic, number, at)

    def sweep(self) -> None:
        """Forget what is old. To be called now and then."""
        before = self._state.clock.now - self._state.config.cleared_s
        self._forget(len(self._tombs), before)
        self._tombs.slim()

    def _forget(self, most: int, before: float = inf) -> None:
        """Of the oldest, those from before that time."""
        last = None
        for _ in range(most):
            at = self._tombs.oldest_at()
            if at is None or at >= before:
                break
            self._tombs.pop_oldest()
            last = at
        if last is not None:
            self._state.forget(self._state.clock.now - last)


def _clearing(topic: str, number: Number) -> Record:
    return Record(Kind.RETAINED, topic, None, number, True)
