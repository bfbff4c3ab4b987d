"""A map from topic names to values that can be asked by filter: a tree of levels beside a dict.

Owns the tree, and that no empty branch stays in it. Knows nothing of what the values are, and sets no bound: how many
topics there may be is its owner's to say. Names and filters come in checked; a shared filter without `$share/name/`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

from ringmq.mqtt_front.matching.topics import has_wildcard

V = TypeVar("V")

ENTRY_BYTES: Final = 256
FEW: Final = 100
"""A dict that takes more than so much for each entry, and so many more, is mostly empty. It stays as large as it was
unless it is filled anew."""


class _TopicNode:
    """One level of some topics; `topic` is the whole name if one ends here."""

    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _TopicNode] = {}
        self.topic: str | None = None


class TopicTree(Generic[V]):
    """Topic names and their values.

    What matches a filter comes in the order of the tree: a topic before those below it, branches in the order in which
    they appeared. So it is the same after the same history, yet neither by name nor by time: MQTT has no order there.
    """

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._root = _TopicNode()
        self.values: Mapping[str, V] = self._values
        """A live view for reading by name, as fast as a dict: oldest first, replaced values in their old place."""

    def __len__(self) -> int:
        return len(self._values)

    def put(self, topic: str, value: V) -> None:
        """Set or replace the value of a topic."""
        if topic not in self._values:
            self._plant(topic)
        self._values[topic] = value

    def remove(self, topic: str) -> V | None:
        """Take a topic out and give its value; None if it was not there."""
        if topic not in self._values:
            return None
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].topic = None
        for parent, level in zip(reversed(path[:-1]), reversed(levels), strict=True):
            child = parent.children[level]
            if child.children or child.topic is not None:
                break
            del parent.children[level]
        value = self._values.pop(topic)
        self._slim()
        return value

    def _slim(self) -> None:
        """Keep no room for many that have gone. The dict stays the same one: others see it."""
        if sys.getsizeof(self._values) > ENTRY_BYTES * (len(self._values) + FEW):
            left = self._values.copy()
            self._values.clear()
            self._values.update(left)

    def clear(self) -> None:
        """Take out all."""
        self._values.clear()
        self._root = _TopicNode()

    def match(self, topic_filter: str) -> list[tuple[str, V]]:
        """All topics that match, with their values: a list of its own, so that the tree may change meanwhile."""
        if not has_wildcard(topic_filter):
            return [(topic_filter, self._values[topic_filter])] if topic_filter in self._values else []
        return [(topic, self._values[topic]) for topic in self.walk(topic_filter) if topic is not None]

    def take(self, topic_filter: str) -> list[tuple[str, V]]:
        """Take out all topics that match, with their values."""
        taken = self.match(topic_filter)
        if 2 * len(taken) <= len(self):
            for topic, _ in taken:
                self.remove(topic)
            return taken
        # Less work than finding the way to each: to plant what stays anew.
        for topic, _ in taken:
            del self._values[topic]
        self._slim()
        self._root = _TopicNode()
        for topic in self._values:
            self._plant(topic)
        return taken

    def _plant(self, topic: str) -> None:
        node = self._root
        for level in topic.split("/"):
            child = node.children.get(level)
            if child is None:
                child = node.children[level] = _TopicNode()
            node = child
        node.topic = topic

    def walk(self, topic_filter: str) -> Iterator[str | None]:
        """The topics that match, place by place; None for a place without one, so that who walks can stop in between.

        The tree may change between two steps. What is there from the first to the last is found, and nothing twice.
        """
        if not has_wildcard(topic_filter):
            yield topic_filter if topic_filter in self._values else None
            return
        levels = topic_filter.split("/")
        batches = [([self._root], 0)]
        while batches:
            nodes, place = batches[-1]
            if not nodes:
                batches.pop()
                continue
            node = nodes.pop()
            level = levels[place] if place < len(levels) else None
            if level == "#" or level == "+":
                if node.children:
                    batches.append((self._below(node), place + (level == "+")))
            elif level is not None and level in node.children:
                batches.append(([node.children[level]], place + 1))
            yield node.topic if level is None or level == "#" else None

    def _below(self, node: _TopicNode) -> list[_TopicNode]:
        """The last first. A wildcard does not stand for what begins with `$` at the root [MQTT-4.7.2-1]."""
        if node is self._root:
            return [child for name, child in reversed(node.children.items()) if not name.startswith("$")]
        return list(reversed(node.children.values()))
