"""Retained messages: the last message of each topic, for later subscribers."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from ringmq.mqtt_front.matching.topic_trie import TopicTrie
from ringmq.mqtt_front.message import Message

MOST_STALE: Final = 1000
"""Stale entries that the heap of due times may hold, beside two for each message."""
MOST_AT_ONCE: Final = 5000
"""Entries that each `expire` visits, some 20 ms. The rest can wait: `get` hides expired messages anyway."""


class Retained:
    """A bounded tree of messages. Expired messages are not returned any more, and make room when `expire` is called."""

    __slots__ = ("_bytes", "_due", "_limit", "_limit_bytes", "_tree")

    def __init__(self, limit: int, limit_bytes: int) -> None:
        """How many, and how many bytes of payload together."""
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._due: list[tuple[float, str]] = []
        """A heap of when messages expire, also of some that have been replaced."""
        self._tree: TopicTrie[Message] = TopicTrie()

    def __len__(self) -> int:
        return len(self._tree)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._tree.values.values())

    def set(self, message: Message) -> bool:
        """Replace the message of a topic; an empty payload only removes it. False: there is no room for the message."""
        if not message.payload:
            self._remove(message.topic)
            return True
        before = self._tree.values.get(message.topic)
        if before is None and len(self._tree) >= self._limit:
            return False
        size = self._bytes + len(message.payload) - (0 if before is None else len(before.payload))
        if size > self._limit_bytes:
            # A later subscriber must not get the earlier message: it is not the last message of its topic any more.
            self._remove(message.topic)
            return False
        self._bytes = size
        self._tree.put(message.topic, message)
        if message.expires_at is not None:
            heappush(self._due, (message.expires_at, message.topic))
            # A replaced message leaves its entry in the heap, so a topic that is set all the time would let it grow.
            if len(self._due) > 2 * len(self._tree) + MOST_STALE:
                self._forget_stale()
        return True

    def _remove(self, topic: str) -> None:
        message = self._tree.remove(topic)
        if message is not None:
            self._bytes -= len(message.payload)

    def _forget_stale(self) -> None:
        self._due = [(message.expires_at, message.topic) for message in self if message.expires_at is not None]
        heapify(self._due)

    def deadline(self) -> float:
        """When `expire` has something to do."""
        return self._due[0][0] if self._due else inf

    def expire(self, now: float) -> list[str]:
        """Drop expired messages, `MOST_AT_ONCE` at most; returns their topics. `deadline` says whether more are due."""
        topics = []
        for _ in range(MOST_AT_ONCE):
            if self.deadline() > now:
                break
            topic = heappop(self._due)[1]
            message = self._tree.values.get(topic)
            if message is not None and message.expired(now):
                self._remove(topic)
                topics.append(topic)
        return topics

    def matching(self, topic_filter: str, now: float) -> list[Message]:
        """The messages that match a filter (without `$share`)."""
        messages = [self.get(topic, now) for topic, _ in self._tree.match(topic_filter)]
        return [message for message in messages if message is not None]

    def walk(self, topic_filter: str) -> Iterator[str | None]:
        """Their topics, in steps: None where a step finds nothing. Messages may come and go between two steps."""
        return self._tree.walk(topic_filter)

    def get(self, topic: str, now: float) -> Message | None:
        """The message of a topic, unless it has expired."""
        message = self._tree.values.get(topic)
        return None if message is None or message.expired(now) else message
