"""What the router has answered, by topic, within bounds.

Owns when an answer goes: because a filter that matches its topic has changed, or because it is the oldest and there are
too many. Knows no subscription and cannot make an answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import islice
from typing import Final, Generic, TypeVar

from ringmq.mqtt_front.matching.receivers import Receivers
from ringmq.mqtt_front.matching.topic_trie import TopicTree

S = TypeVar("S", bound=Hashable)

_ENTRY_BYTES: Final = 600
_LEVEL_BYTES: Final = 300
_RECEIVER_BYTES: Final = 32
"""Estimates of what an answer takes, which need not be right, only not far off. A receiver takes 8 when it is that of
its one subscription, and some 150 when it was made of several."""
_EVICTED_AT_ONCE: Final = 64
"""Finding the oldest key of a dict means passing the holes of those deleted before: worth it only for several."""


class ReceiverCache(Generic[S]):
    """Answers by topic, oldest first: the age is that of the answer, since a hit must cost no more than a lookup."""

    def __init__(self, most_topics: int, most_bytes: int) -> None:
        self._most_topics = most_topics
        self._most_bytes = most_bytes
        self._tree: TopicTree[Receivers[S]] = TopicTree()
        self.answers: Mapping[str, Receivers[S]] = self._tree.values
        """A live view for the lookup."""
        self.size_bytes = 0
        """An estimate."""
        self.evictions = 0
        """Answers that had to make place, since the start."""

    def put(self, topic: str, answer: Receivers[S]) -> None:
        """Keep an answer to a topic that has none. It stays whatever its size; the oldest make place."""
        self._tree.put(topic, answer)
        self.size_bytes += _size_bytes(topic, answer)
        while len(self._tree) > self._most_topics or self.size_bytes > self._most_bytes:
            oldest = list(islice(self.answers, min(_EVICTED_AT_ONCE, len(self._tree) - 1)))
            if not oldest:
                return
            for old in oldest:
                self.drop(old)
            self.evictions += len(oldest)

    def drop(self, topic_filter: str) -> None:
        """Forget the answers to all topics that a filter matches."""
        for topic, answer in self._tree.take(topic_filter):
            self.size_bytes -= _size_bytes(topic, answer)

    def clear(self) -> None:
        """Forget all of them."""
        self._tree.clear()
        self.size_bytes = 0


def _size_bytes(topic: str, answer: Receivers[S]) -> int:
    receivers = len(answer.each) + len(answer.groups)
    return _ENTRY_BYTES + 2 * len(topic) + _LEVEL_BYTES * topic.count("/") + _RECEIVER_BYTES * receivers
