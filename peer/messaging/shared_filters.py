"""Shared filters, `$share/name/filter`: a shared filter lives and matches where its inner filter does."""

from __future__ import annotations

from ringmq.mqtt_front.matching.topics import parse_shared


def inner_of(topic_filter: str) -> str:
    """A filter without its `$share/name/`."""
    shared = parse_shared(topic_filter)
    return shared[1] if shared else topic_filter


def is_shared(topic_filter: str) -> bool:
    return parse_shared(topic_filter) is not None
