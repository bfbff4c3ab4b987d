"""Shared filters, `$share/name/filter`: a shared filter lives and matches where its inner filter does."""

from __future__ import annotations

from ringmq.mqtt_front.matching.topics import SHARED, parse_shared


def inner_of(topic_filter: str) -> str:
    """A filter without its `$share/name/`."""
    # Without a call for the others, which are many.
    shared = parse_shared(topic_filter) if topic_filter.startswith(SHARED) else None
    return shared[1] if shared else topic_filter


def is_shared(topic_filter: str) -> bool:
    return topic_filter.startswith(SHARED) and parse_shared(topic_filter) is not None
