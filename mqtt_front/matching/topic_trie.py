"""A map from topic names to values that can be queried by filter: a trie of levels beside a dict.

Owns the trie, and that no empty branch stays in it. Knows nothing about the values, and sets no bound on the number of
topics, which its owner does. Names and filters must be valid; a shared filter is passed without `$share/name/`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

from ringmq.mqtt_front.matching.topics import has_wildcard

V = TypeVar("V")

ENTRY_BYTES: Final = 256
FEW: Final = 100
"""A dict larger than ENTRY_BYTES for each of its entries and FEW more is mostly empty. Python never shrinks it, so it
must be refilled."""


class _TopicNode:
    """One level of some topics; `topic` is the whole name if a topic ends here."""

    __slots__ = ("children", "topic")

    def __init__(self) -> None:
        self.children: dict[str, _TopicNode] = {}
        self.topic: str | None = None

    def below(self, level: str) -> _TopicNode:
        """The child for a level, which is created if it is absent."""
        child = self.children.get(level)
        if child is None:
            child = self.children[level] = _TopicNode()
        return child

    def prune(self, level: str) -> bool:
        """Remove the child for a level if no topic ends at it or below it; returns whether it did."""
        child = self.children[level]
        if child.children or child.topic is not None:
            return False
        del self.children[level]
        return True


class TopicTrie(Generic[V]):
    """Topic names and their values.

    Matches come in the order of the trie: a topic before the topics below it, branches in the order of their creation.
    The order is reproducible, yet neither by name nor by time: MQTT defines none.
    """

    def __init__(self) -> None:
        self._values: dict[str, V] = {}
        self._root = _TopicNode()
        self.values: Mapping[str, V] = self._values
        """A live view for lookups by name: oldest first, replaced values in their old place."""

    def __len__(self) -> int:
        return len(self._values)

    def put(self, topic: str, value: V) -> None:
        """Set or replace the value of a topic."""
        if topic not in self._values:
            self._plant(topic)
        self._values[topic] = value

    def remove(self, topic: str) -> V | None:
        """Remove a topic and return its value; None if it is absent."""
        if topic not in self._values:
            return None
        levels = topic.split("/")
        path = [self._root]
        for level in levels:
            path.append(path[-1].children[level])
        path[-1].topic = None
        for parent, level in zip(reversed(path[:-1]), reversed(levels), strict=True):
            if not parent.prune(level):
                break
        value = self._values.pop(topic)
        self._slim()
        return value

    def _slim(self) -> None:
        """Free the memory of removed entries."""
        # The dict object stays, since `values` is a view of it that others hold.
        if sys.getsizeof(self._values) > ENTRY_BYTES * (len(self._values) + FEW):
            left = self._values.copy()
            self._values.clear()
            self._values.update(left)

    def clear(self) -> None:
        """Remove all topics."""
        self._values.clear()
        self._root = _TopicNode()

    def match(self, topic_filter: str) -> list[tuple[str, V]]:
        """All topics that match, with their values, as a list: the caller may change the trie while it iterates."""
        if not has_wildcard(topic_filter):
            return [(topic_filter, self._values[topic_filter])] if topic_filter in self._values else []
        return [(topic, self._values[topic]) for topic in self.walk(topic_filter) if topic is not None]

    def _plant(self, topic: str) -> None:
        node = self._root
        for level in topic.split("/"):
            node = node.below(level)
        node.topic = topic

    def walk(self, topic_filter: str) -> Iterator[str | None]:
        """The topics that match, node by node; None for a node without a match, so that the caller can pause anywhere.

        The trie may change between two steps. A topic that exists from the first to the last step is found, none twice.
        """
        if not has_wildcard(topic_filter):
            yield topic_filter if topic_filter in self._values else None
            return
        levels = topic_filter.split("/")
        # A batch is a copy of a node's children, so the trie may change while the caller pauses.
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
        """The children of a node, last first. At the root, wildcards do not match levels with `$` [MQTT-4.7.2-1]."""
        if node is self._root:
            return [child for name, child in reversed(node.children.items()) if not name.startswith("$")]
        return list(reversed(node.children.values()))
