"""Retained messages: the last one of each topic, for those who subscribe later."""

from __future__ import annotations

from collections.abc import Iterator

from mqtt_front.message import Message
from mqtt_front.topic_tree import TopicTree


class Retained:
    """A bounded tree of messages. Expired ones are dropped when somebody looks at them."""

    __slots__ = ("_limit", "_tree")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tree: TopicTree[Message] = TopicTree()

    def __len__(self) -> int:
        return len(self._tree)

    def __iter__(self) -> Iterator[Message]:
        return iter(self._tree.values.values())

    def set(self, message: Message) -> bool:
        """Keep it in place of the one before; an empty payload only takes that away. False: there is no room."""
        if not message.payload:
            self._tree.remove(message.topic)
            return True
        if len(self._tree) >= self._limit and message.topic not in self._tree.values:
            return False
        self._tree.put(message.topic, message)
        return True

    def matching(self, topic_filter: str, now: float) -> list[Message]:
        """Those that a filter (without `$share`) matches."""
        found = []
        for topic, message in self._tree.match(topic_filter):
            if message.expired(now):
                self._tree.remove(topic)
            else:
                found.append(message)
        return found
