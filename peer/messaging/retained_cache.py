"""Numbers of the retained messages that clients here may want: the last number of each topic.

The front has the messages themselves. A message that was fetched may come a second time, since it was also sent to all
subscribers: that copy is dropped, and clients that subscribed meanwhile get the fetched message. So every client gets
it once, as a retained or as a live message.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringmq.mqtt_front.matching.topic_trie import TopicTrie
from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.record import Number, SharedRecord

LOW_BITS: Final = (1 << 63) - 1


def stamp_of(stamp: int, origin: Id) -> Number:
    """The number of a retained message: its time, and at equal times its publisher."""
    # Both parts of a Number are below 2^63 on the wire and an id has 128 bits, so its high bits are cut off.
    return stamp, origin & LOW_BITS


class RetainedCache:
    """One per engine. It is as large as the front's retained messages at most: other topics are not kept."""

    __slots__ = ("_fetched", "_numbers", "_state")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._numbers: TopicTrie[Number] = TopicTrie()
        self._fetched: dict[str, Number] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def fetched(self, record: SharedRecord, promised: bool = False) -> None:
        """A retained message was fetched from its coordinator or root. `promised`: clients here have a filter for it in
        force, so that the live copy is no repetition for them, and must not be dropped."""
        if self._newer(record.name, record.number):
            if not promised:
                self._fetched[record.name] = record.number
            self._state.clients.retained(record.name, b"" if record.gone else record.body)

    def repeats(self, origin: Id, publication: Publication) -> bool:
        """Whether a message sent to all subscribers was fetched before, or is older than the fetched message."""
        known = self._fetched.get(publication.topic)
        number = stamp_of(publication.stamp, origin)
        # An older message of the same publisher would break its order. Publishers have no order between each other, so
        # an older message of another publisher must still be delivered.
        return known is not None and known[1] == number[1] and number <= known

    def live(self, origin: Id, publication: Publication) -> None:
        """A retained message was published that matches a filter here."""
        if self._newer(publication.topic, stamp_of(publication.stamp, origin)):
            self._state.clients.retained(publication.topic, b"" if publication.clears else publication.body)

    def _newer(self, topic: str, number: Number) -> bool:
        self._state.observe(number[0])
        known = self._numbers.values.get(topic)
        if known is not None and known >= number:
            return False
        self._numbers.put(topic, number)
        return True

    def forget(self, topic_filter: str, wanted: Callable[[str], bool]) -> None:
        """A filter is removed: forget topics that no other filter here matches."""
        for topic, _ in list(self._numbers.match(inner_of(topic_filter))):
            if not wanted(topic):
                self._numbers.remove(topic)
                self._fetched.pop(topic, None)
                self._state.clients.retained(topic, b"")
        # A dict of Python keeps its largest size after its entries are removed.
        self._fetched = slimmed(self._fetched)
