"""A wide filter: `parent/+`, registered by this peer itself in place of many filters below one parent, and its stages.

    ASKING ── granted ──▶ SERVING ── taken back ──▶ RETURNING ── empty ──▶ ENDED
    any of these ── lost ──▶ ENDED

While it is in force, every publication to a topic directly below its parent arrives here. So a filter below it is in
force as soon as its retained message is here: no coordinator, shadow or holder needs to know it. Counts what the wide
filter brings. Knows neither messages nor timers.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from math import inf
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from ringmq.mqtt_front.matching.topics import has_wildcard
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import EntryFlag
from ringmq.peer.engines.partitioned.subscribing.local_filter import HomePartition, LocalFilter
from ringmq.peer.messaging.body import aged, remaining_of
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import stamp_of
from ringmq.peer.messaging.shared_filters import is_shared

SHARE: Final = 10
"""At most one in SHARE of the messages that a wide filter brings may be unwanted ..."""
ALLOWANCE: Final = 16
"""... beyond these in each window: fewer than the messages that one filter below it saves in a ring of 10 peers."""
WINDOW_S: Final = 60.0
"""The time over which the messages are counted. A change of the topics in use is noticed within it."""
MOST_SERVED: Final = 1024
"""Filters that one wide filter serves. They must be registered together when it is lost, with some ten items for each
coordinator; further filters are registered at once."""
MOST_NOTED: Final = 256
"""Topics below a wide filter whose retained messages are noted. With more of them, it is taken back."""


class WideStage(Enum):
    ASKING = auto()
    """The coordinator has not granted it. Filters below it are registered."""
    SERVING = auto()
    """In force: filters below it need not be registered."""
    RETURNING = auto()
    """In force, and no longer needed when each filter that it served is granted by its own coordinator."""
    ENDED = auto()


class WideEvent(Enum):
    GRANTED = auto()
    TAKEN_BACK = auto()
    """It brings too much, or has not been used for a while."""
    EMPTY = auto()
    """No filter depends on it any more."""
    LOST = auto()
    """Its coordinator has refused or dropped it, or a client wants the same filter."""


TRANSITIONS: Final[Mapping[WideStage, Mapping[WideEvent, WideStage]]] = MappingProxyType(
    {
        WideStage.ASKING: {WideEvent.GRANTED: WideStage.SERVING, WideEvent.LOST: WideStage.ENDED},
        WideStage.SERVING: {WideEvent.TAKEN_BACK: WideStage.RETURNING, WideEvent.LOST: WideStage.ENDED},
        WideStage.RETURNING: {WideEvent.EMPTY: WideStage.ENDED, WideEvent.LOST: WideStage.ENDED},
        WideStage.ENDED: {},
    }
)


def parent_of(topic_filter: str) -> str | None:
    """The levels above the last one of a filter that a wide filter may serve; None for any other filter.

    Filters with wildcards get their retained messages from all coordinators in any case. `+` at the root would bring
    all topics of one level, and must not match those that begin with `$` [MQTT-4.7.2-1].
    """
    parent = topic_filter.rpartition("/")[0]
    if not parent or parent.startswith("$") or is_shared(topic_filter) or has_wildcard(topic_filter):
        return None
    return parent


def pattern_of(parent: str) -> str:
    """Not `parent/#`: fresh topics are direct children, and what lies deeper would be unwanted."""
    return f"{parent}/+"


class NotedMessage:
    """A retained message that came live."""

    __slots__ = ("at", "number", "origin", "publication")

    def __init__(self, origin: Id, publication: Publication, now: float) -> None:
        self.origin = origin
        self.publication = publication
        self.number = stamp_of(publication.stamp, origin)
        self.at = now

    def aged(self, now: float) -> tuple[Id, Publication] | None:
        """The message as it would come now; None: it has expired."""
        body = self.publication.body
        remaining_s = remaining_of(body)
        if remaining_s is None:
            return self.origin, self.publication
        remaining_s -= int(now - self.at)
        if remaining_s <= 0:
            return None
        return self.origin, replace(self.publication, body=aged(body, remaining_s))


class WideEntry(LocalFilter):
    """The registration of a wide filter. No client has it."""

    __slots__ = ()

    @property
    def flags(self) -> int:
        return EntryFlag.WIDE


class WideFilter(HomePartition):
    """For each filter that it serves it stands in the place of the partition, although it has no coordinator."""

    __slots__ = ("_noted", "_unwanted", "_wanted", "_window_at", "confirmed_by", "confirmed_until", "entry", "parent",
                 "returning", "stage", "used_at")  # fmt: skip

    def __init__(self, parent: str, entry: WideEntry, now: float) -> None:
        # No partition has this index.
        super().__init__(-1)
        self.parent = parent
        self.entry = entry
        self.stage = WideStage.ASKING
        self.used_at = now
        """When a client last subscribed to a filter that it serves."""
        self.returning: dict[str, LocalFilter] = {}
        """Filters that it served, and that are not granted by their own coordinators yet."""
        self.confirmed_by: Peer | None = None
        self.confirmed_until = -inf
        """The coordinator has the entry, and keeps it until this time at least whatever happens to the renewals."""
        self._noted: dict[str, NotedMessage] = {}
        """By topic; the oldest first."""
        self._wanted = 0
        self._unwanted = 0
        self._window_at = now

    def step(self, event: WideEvent) -> None:
        """Raises KeyError for an event that this stage does not have."""
        self.stage = TRANSITIONS[self.stage][event]

    def confirm(self, peer: Peer, until: float) -> None:
        if peer != self.confirmed_by:
            self.confirmed_by, self.confirmed_until = peer, until
        self.confirmed_until = max(self.confirmed_until, until)

    def doubt(self) -> None:
        """The coordinator may not have the entry: nothing further is served before it confirms that it has."""
        self.confirmed_by = None

    def serves(self, now: float) -> bool:
        """Whether a further filter below it can be in force at once."""
        # A peer that was paused or cut off may not have heard that its entries have ended.
        return (
            self.stage is WideStage.SERVING
            and self.confirmed_by is not None
            and self.confirmed_by == self.entry.partition.coordinator
            and now < self.confirmed_until
            and len(self.filters) < MOST_SERVED
        )

    def bears(self, topic_filter: str) -> bool:
        """Whether the messages of this filter, which is in force for clients, come by the wide filter."""
        return topic_filter in self.returning

    def brought(self, topic: str, wanted: bool, now: float) -> bool:
        """A publication to a topic below it has come. Returns whether it brings too much that is unwanted."""
        if now >= self._window_at + WINDOW_S:
            self._window_at, self._wanted, self._unwanted = now, 0, 0
        if not wanted:
            self._unwanted += 1
        elif topic in self.filters or topic in self.returning:
            self._wanted += 1
        # Others that are wanted would have come without it.
        return self._unwanted > ALLOWANCE and self._unwanted * SHARE > self._unwanted + self._wanted

    def note(self, origin: Id, publication: Publication, now: float) -> bool:
        """Note a retained message that came live: it may still be on its way to its coordinator when a client
        subscribes. Returns whether there are too many."""
        topic = publication.topic
        known = self._noted.get(topic)
        if known is None or known.number < stamp_of(publication.stamp, origin):
            self._noted.pop(topic, None)
            self._noted[topic] = NotedMessage(origin, publication, now)
        return len(self._noted) > MOST_NOTED

    def noted(self, topic: str, now: float, under_way_s: float) -> tuple[Id, Publication] | None:
        """The publisher and the last retained message of a topic, if it came live so lately that it may still be on
        its way to its coordinator."""
        while self._noted:
            oldest = next(iter(self._noted))
            if self._noted[oldest].at + under_way_s > now:
                break
            del self._noted[oldest]
        known = self._noted.get(topic)
        return None if known is None else known.aged(now)
