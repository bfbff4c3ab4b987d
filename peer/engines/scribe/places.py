"""Where subscriptions live: the place of a filter, the places a topic's publisher must know, and their keys.

A filter without wildcards lives at its topic. All others live at their literal prefix, apart from the filters of that
very topic: `a/b/+/c` and `a/b/#` at the place `a/b/#`, whose key is that of `a/b`; `#` and `+/x` at `#`, whose key is
that of the empty name. A shared filter lives where its inner filter does.
"""

from __future__ import annotations

from typing import Final

from ringmq.mqtt_front.matching.topics import has_wildcard, literal_prefix
from ringmq.overlay.core.ids import Id, key_of
from ringmq.peer.messaging.shared_filters import inner_of

ALL: Final = "#"
"""The place of filters whose first level is a wildcard."""
BELOW: Final = "/#"


def place_of(topic_filter: str) -> str:
    """The place that a valid filter lives at."""
    inner = inner_of(topic_filter)
    return below(literal_prefix(inner)) if has_wildcard(inner) else inner


def below(prefix: str) -> str:
    return prefix + BELOW if prefix else ALL


def is_wild(place: str) -> bool:
    """Whether it is a place of filters with wildcards."""
    return place == ALL or place.endswith(BELOW)


def wild_places_of(topic: str) -> tuple[str, ...]:
    """The places of all wildcard filters that can match the topic, the nearest first."""
    levels = topic.split("/")
    prefixes = ["/".join(levels[:count]) for count in range(len(levels), 0, -1)]
    # A first level that is empty gives the empty prefix too, whose place is that of all.
    return (*dict.fromkeys([*map(below, prefixes), ALL]),)


def places_of(topic: str) -> tuple[str, ...]:
    """Where a publisher to the topic finds all its subscribers."""
    return (topic, *wild_places_of(topic))


def key_of_place(place: str) -> Id:
    """Both places of one prefix have one key, so one coordinator."""
    return key_of(prefix_of(place))


def prefix_of(place: str) -> str:
    """The topic that a place is named after; empty for the place of all."""
    return place if not is_wild(place) else "" if place == ALL else place.removesuffix(BELOW)
