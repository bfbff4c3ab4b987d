"""What this peer knows of retained messages that its clients may want: which one of a topic is the last.

The messages themselves are the front's. A message that came in answer to a question may come a second time, since it
was also sent to all subscribers: that copy is held back, and whoever subscribed meanwhile is given the kept one. So
everybody gets it once, as retained or as live.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringmq.mqtt_front.matching.topic_trie import TopicTrie
from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id
from ringmq.peer.engines.coordinated.messages import Number, Record
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.partitions import inner_of
from ringmq.peer.messaging.publication import Publication

LOW_BITS: Final = (1 << 63) - 1


def stamp_of(stamp: int, origin: Id) -> Number:
    """The number of a retained message: by time, and of two at the same time by their publishers."""
    return stamp, origin & LOW_BITS


class RetainedCache:
    """One per core. Bounded by what the front keeps, as only what its clients want is kept."""

    __slots__ = ("_fetched", "_numbers", "_state")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._numbers: TopicTrie[Number] = TopicTrie()
        self._fetched: dict[str, Number] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def fetched(self, record: Record) -> None:
        """An answer to a question."""
        if self._newer(record.name, record.number):
            self._fetched[record.name] = record.number
            self._state.clients.retained(record.name, b"" if record.gone else record.body)

    def repeats(self, origin: Id, publication: Publication) -> bool:
        """Whether a message sent to all subscribers is one that was fetched before, or one that it replaced."""
        known = self._fetched.get(publication.topic)
        number = stamp_of(publication.stamp, origin)
        return known is not None and known[1] == number[1] and number <= known

    def live(self, origin: Id, publication: Publication) -> None:
        """A retained message was published; somebody here wants it."""
        if self._newer(publication.topic, stamp_of(publication.stamp, origin)):
            self._state.clients.retained(publication.topic, b"" if publication.clears else publication.body)

    def _newer(self, topic: str, number: Number) -> bool:
        self._state.hybrid_clock = max(self._state.hybrid_clock, number[0])
        known = self._numbers.values.get(topic)
        if known is not None and known >= number:
            return False
        self._numbers.put(topic, number)
        return True

    def forget(self, topic_filter: str, wanted: Callable[[str], bool]) -> None:
        """A filter has gone: forget what only it wanted."""
        for topic, _ in list(self._numbers.match(inner_of(topic_filter))):
            if not wanted(topic):
                self._numbers.remove(topic)
                self._fetched.pop(topic, None)
                self._state.clients.retained(topic, b"")
        self._fetched = slimmed(self._fetched)
