"""The filters that sessions on the disk have with QoS 1 or 2: messages for them must wait while this peer is away.

Counts subscriptions, and knows no session.
"""

from __future__ import annotations


class LastingFilters:
    """One per broker."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        """The number of such subscriptions to each filter."""

    def __contains__(self, topic_filter: str) -> bool:
        return topic_filter in self._counts

    def change(self, topic_filter: str, before: bool, after: bool) -> bool:
        """A subscription counted before, and counts after. Returns whether that changes the filter."""
        if before == after:
            return False
        count = self._counts.get(topic_filter, 0) + (1 if after else -1)
        if not count:
            del self._counts[topic_filter]
            return True
        self._counts[topic_filter] = count
        return after and count == 1
