"""Topics whose retained message was cleared, or has expired: so that nobody who was away brings it back.

A place remembers for `tomb_s` what is gone, and is forgotten then; this is what is left of it. It is known to who was
the topic's coordinator or its shadow at that time, for `cleared_s` and of the last `max_cleared` topics. An older
message is overruled by it. So one comes back only if a peer was away for longer, or if none of those who knew better is
among the nearest to the topic's key any more.
"""

from __future__ import annotations

from peer.pubsub.messages import Kind, Number, Record
from peer.pubsub.state import State


class Cleared:
    """One per core. In the order of their coming, so that the oldest are forgotten first."""

    __slots__ = ("_state", "_topics")

    def __init__(self, state: State) -> None:
        self._state = state
        self._topics: dict[str, tuple[int, int, float]] = {}
        """The number of the clearing, and when it came."""

    def __len__(self) -> int:
        return len(self._topics)

    def of(self, topic: str) -> Record | None:
        """The clearing of a topic."""
        known = self._topics.get(topic)
        return None if known is None else _clearing(topic, known[:2])

    def overrule(self, record: Record) -> Record:
        """What is true of a topic, once this record is known: itself, or a clearing that came after it."""
        if record.kind is not Kind.RETAINED:
            return record
        known = self._topics.get(record.name)
        return record if known is None or known[:2] < record.number else _clearing(record.name, known[:2])

    def heard(self, record: Record) -> None:
        """This holds of its topic now."""
        if record.gone:
            self.restore(record.name, record.number, self._state.now)
            if len(self._topics) > self._state.config.max_cleared:
                self._forget(next(iter(self._topics)))
        else:
            self._topics.pop(record.name, None)

    def restore(self, topic: str, number: Number, at: float) -> None:
        """In the order of time."""
        self._state.clock = max(self._state.clock, number[0])
        self._topics.pop(topic, None)
        self._topics[topic] = (*number, at)

    def sweep(self) -> None:
        """Forget what is old. To be called now and then."""
        before = self._state.now - self._state.config.cleared_s
        while self._topics:
            topic, (_, _, at) = next(iter(self._topics.items()))
            if at >= before:
                break
            self._forget(topic)

    def _forget(self, topic: str) -> None:
        del self._topics[topic]
        self._state.disk.forget(topic)


def _clearing(topic: str, number: Number) -> Record:
    return Record(Kind.RETAINED, topic, None, number, True)
