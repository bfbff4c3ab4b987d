"""The subscriptions of the clients here: the trees that this peer must be in for them, and their retained messages.

A filter waits until its tree reaches this peer, then for the retained message of its topic, and is in force after that.
It stays so while the tree repairs itself.
"""

from __future__ import annotations

from enum import Enum, auto

from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.matching.filter_trie import FilterTrie
from ringmq.peer.engines.scribe.context import TreeContext
from ringmq.peer.engines.scribe.errors import SharedFilterError
from ringmq.peer.engines.scribe.messages import RootFetch, RootFetched
from ringmq.peer.engines.scribe.places import is_wild, key_of_place, place_of
from ringmq.peer.engines.scribe.trees import Trees
from ringmq.peer.messaging.retained_cache import RetainedCache
from ringmq.peer.messaging.shared_filters import is_shared
from ringmq.peer.replication.record import SharedRecord


class JoinStage(Enum):
    JOINING = auto()
    FETCHING = auto()
    IN_FORCE = auto()


class OwnFilter:
    """One filter of the clients here."""

    __slots__ = ("dones", "filter", "place", "since_us", "stage")

    def __init__(self, topic_filter: str) -> None:
        self.filter = topic_filter
        self.place = place_of(topic_filter)
        self.stage = JoinStage.JOINING
        self.since_us = 0
        """When it was in force, on the clock that retained messages are numbered by."""
        self.dones: list[Done] = []

    def then(self, done: Done) -> None:
        """Call this when it is in force."""
        self.dones.append(done)

    def fetch(self) -> None:
        """Messages reach this peer; the retained message is missing."""
        self.stage = JoinStage.FETCHING

    def finish(self, now_us: int) -> list[Done]:
        """It is in force: the calls that waited for that."""
        self.stage, self.since_us = JoinStage.IN_FORCE, now_us
        dones, self.dones = self.dones, []
        return dones


class ScribeSubscriber:
    """One per core."""

    __slots__ = ("_by_place", "_filters", "_own", "_retained_cache", "_state", "_trees")

    def __init__(self, state: TreeContext, trees: Trees, retained_cache: RetainedCache) -> None:
        self._state = state
        self._trees = trees
        self._retained_cache = retained_cache
        self._own: dict[str, OwnFilter] = {}
        self._by_place: dict[str, dict[str, OwnFilter]] = {}
        self._filters: FilterTrie[OwnFilter] = FilterTrie()

    def __len__(self) -> int:
        return len(self._own)

    def wants(self, topic: str) -> bool:
        """Whether a filter here matches a topic."""
        return any(True for _ in self._filters.match(topic))

    def wants_by(self, place: str, topic: str) -> bool:
        """Whether one does that lives at this place."""
        return place in self._by_place and any(own.place == place for own in self._filters.match(topic))

    def in_force(self, topic_filter: str) -> bool:
        own = self._own.get(topic_filter)
        return own is not None and own.stage is JoinStage.IN_FORCE

    def add(self, topic_filter: str, done: Done) -> None:
        """Raises SharedFilterError for a shared filter."""
        if is_shared(topic_filter):
            raise SharedFilterError(f"{topic_filter!r}: Scribe serves no shared filters")
        own = self._own.get(topic_filter)
        if own is not None:
            if own.stage is JoinStage.IN_FORCE:
                done(Reason.SUCCESS)
            else:
                own.then(done)
            return
        own = self._own[topic_filter] = OwnFilter(topic_filter)
        own.then(done)
        self._filters.put(topic_filter, own)
        self._by_place.setdefault(own.place, {})[topic_filter] = own
        if self._trees.enter(own.place):
            self._joined(own)

    def remove(self, topic_filter: str) -> None:
        own = self._own.pop(topic_filter, None)
        if own is None:
            return
        self._filters.remove(topic_filter)
        self._retained_cache.forget(topic_filter, self.wants)
        at_place = self._by_place[own.place]
        del at_place[topic_filter]
        if not at_place:
            del self._by_place[own.place]
            self._trees.exit(own.place)
        # The filter may not be in force yet: then a SUBACK still waits for these calls.
        self._over(own)

    def attached(self, place: str) -> None:
        """Messages reach this peer from the root of a place."""
        for own in list(self._by_place.get(place, {}).values()):
            if own.stage is JoinStage.JOINING:
                self._joined(own)

    def _joined(self, own: OwnFilter) -> None:
        """Publications arrive from now on. Fetch the retained message; filters with wildcards get none."""
        if is_wild(own.place):
            self._over(own)
        else:
            # The tree comes first: a retained message published between an earlier fetch and the parent's first
            # heartbeat would be missed.
            own.fetch()
            self._fetch(own, self._state.config.retry_s)

    def _fetch(self, own: OwnFilter, wait_s: float) -> None:
        if own.stage is JoinStage.FETCHING and self._own.get(own.filter) is own:
            self._state.tell_owner(key_of_place(own.place), RootFetch(own.filter))
            longer_s = min(2 * wait_s, self._state.config.slow_retry_s)
            self._state.after(wait_s, lambda: self._fetch(own, longer_s))

    def fetched(self, message: RootFetched) -> None:
        own = self._own.get(message.topic)
        if own is None or own.stage is not JoinStage.FETCHING:
            return
        record = message.record
        # If the record were taken, its live copy would be dropped as a repetition: clients of the other filter would
        # miss it.
        if record is not None and not self._comes_by_itself(record):
            self._retained_cache.fetched(record)
        self._over(own)

    def _comes_by_itself(self, record: SharedRecord) -> bool:
        """Whether another filter here was in force when it was published: then it has come, or is on its way to all."""
        published_us = record.number[0]
        filters = self._filters.match(record.name)
        return any(own.stage is JoinStage.IN_FORCE and own.since_us <= published_us for own in filters)

    def _over(self, own: OwnFilter) -> None:
        for done in own.finish(self._state.clock_us()):
            done(Reason.SUCCESS)
