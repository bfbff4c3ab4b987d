"""The topics with retained messages at this peer, in order, so that a filter finds those below its literal prefix."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict

from ringmq.mqtt_front.matching.topics import has_wildcard, literal_prefix, matches


class RetainedIndex:
    """One per engine. The value of a topic is its partition."""

    __slots__ = ("_topics",)

    def __init__(self) -> None:
        self._topics: SortedDict[str, int] = SortedDict()

    def __len__(self) -> int:
        return len(self._topics)

    def add(self, topic: str, partition: int) -> None:
        self._topics[topic] = partition

    def remove(self, topic: str) -> None:
        self._topics.pop(topic, None)

    def partition_of(self, topic: str) -> int | None:
        return self._topics.get(topic)

    def look_through(self, topic_filter: str, after: str | None, most: int) -> tuple[list[tuple[str, int]], str | None]:
        """Look at the next `most` topics that a filter may match. Returns the matching ones, each with its partition,
        and the last topic looked at, to go on behind it; None if there are no more."""
        if not has_wildcard(topic_filter):
            partition = self._topics.get(topic_filter)
            return ([] if partition is None else [(topic_filter, partition)]), None
        found, last = [], None
        for seen, topic in enumerate(self._below(literal_prefix(topic_filter), topic_filter, after), 1):
            if matches(topic_filter, topic):
                found.append((topic, self._topics[topic]))
            if seen == most:
                last = topic
                break
        return found, last

    def _below(self, prefix: str, topic_filter: str, after: str | None) -> Iterator[str]:
        topics = self._topics
        if not prefix and not topic_filter.startswith("/"):
            yield from topics.irange(after, None, (False, True))
            return
        # `a/#` matches `a` too, which is not among the names that begin with `a/`, but stands before them.
        if after is None and prefix in topics:
            yield prefix
        # "0" is the character after "/": all names that begin with the prefix and a slash lie between the two.
        start = f"{prefix}/"
        low = start if after is None or after < start else after
        yield from topics.irange(low, f"{prefix}0", (low != after, False))
