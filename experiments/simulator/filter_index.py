"""Which of many filters match a topic, for checks and clients with thousands of filters.

Filters are sorted by their literal prefix, and `matches`, the reference of the front's and the engines' own structures,
decides about those that remain. So this index shares no code with what the checks check.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Generic, TypeVar

from ringmq.mqtt_front.matching.topics import has_wildcard, literal_prefix, matches

Item = TypeVar("Item")


class FilterIndex(Generic[Item]):
    """Items, each with a valid filter without `$share/name/`. A look-up costs the levels of the topic and the wildcard
    filters that begin like it."""

    __slots__ = ("_exact", "_wild")

    def __init__(self) -> None:
        self._exact: defaultdict[str, list[Item]] = defaultdict(list)
        self._wild: defaultdict[str, list[tuple[str, Item]]] = defaultdict(list)
        """By literal prefix."""

    def add(self, inner: str, item: Item) -> None:
        if has_wildcard(inner):
            self._wild[literal_prefix(inner)].append((inner, item))
        else:
            self._exact[inner].append(item)

    def remove(self, inner: str, item: Item) -> None:
        """Raises ValueError unless it is there."""
        if has_wildcard(inner):
            self._wild[literal_prefix(inner)].remove((inner, item))
        else:
            self._exact[inner].remove(item)

    def matching(self, topic: str) -> Iterator[Item]:
        """All items whose filters match a topic. Do not add or remove any meanwhile."""
        yield from self._exact.get(topic, ())
        # A set: the first level may be empty, and `a/#` also matches `a`.
        prefixes = {"", topic, *[topic[:end] for end, letter in enumerate(topic) if letter == "/"]}
        for prefix in sorted(prefixes):
            for inner, item in self._wild.get(prefix, ()):
                if matches(inner, topic):
                    yield item
