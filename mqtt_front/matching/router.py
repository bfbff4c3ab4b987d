"""The sessions that receive messages to a topic: the subscriptions of this peer's clients, and a cache of answers.

Owns the subscriptions, and keeps tries and cache in step with them. Knows no packet, no connection and no other peer: a
session is any object whose equality is identity, and the caller decides what happens to a message.

**The cache.** A topic in use costs one dict lookup. A changed subscription ends the answers that its filter is part of,
and no others. A new filter without wildcards drops its one topic. A new filter with wildcards drops all topics, and no
answers: their next messages cost a match each. So all that is dropped was paid for by the publish that brought it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Generic, TypeVar

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.filter_trie import FilterTrie, Placements, placement_of
from ringmq.mqtt_front.matching.receivers import (
    FilterEntries,
    Receiver,
    ReceiverCache,
    Receivers,
    SharedGroup,
    Sources,
    merged,
)
from ringmq.mqtt_front.matching.topics import check_filter, check_topic_name, has_wildcard, parse_shared

S = TypeVar("S", bound=Hashable)


class SubscriptionRefusedError(PacketError):
    """A subscription beyond a limit (QUOTA_EXCEEDED): the SUBACK reports it, and the client stays connected."""

    def __init__(self, text: str) -> None:
        super().__init__(Reason.QUOTA_EXCEEDED, text)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterLimits:
    """Bounds of one router. A subscription beyond a bound is refused; a cached answer is evicted."""

    subscriptions: int = 1_000_000
    """Total of all sessions. Each subscription takes some 500 bytes and its filter's text."""
    subscriptions_per_session: int = 100_000
    """Enough for a bridge with a filter per device."""
    placements: int = 512
    """Different sets of levels with a `+`, over all filters. A publish to a new topic visits at most this number of
    nodes per level. Real clients together use a few dozen."""
    placements_per_session: int = 32
    """Lower, so that no single client can use up the total."""
    cached_topics: int = 16_384
    """More than the number of topics in steady use. A change of a filter full of `+` may visit all of them."""
    cached_bytes: int = 64 * 2**20
    """Estimated; bounds long names and long lists of receivers. The newest answer stays, whatever its size."""


@dataclass(frozen=True, slots=True)
class Added:
    """The effect of a subscription."""

    replaced: bool
    """The session had a subscription with the same filter, which was replaced [MQTT-3.8.4-3]."""
    first: bool
    """No session had this filter before. Shared filters count with their `$share/name/`."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The effect of an unsubscription."""

    existed: bool
    last: bool
    """No session has this filter any more."""


@dataclass(frozen=True, slots=True)
class RouterStatistics:
    sessions: int
    subscriptions: int
    shared_subscriptions: int
    """Shared subscriptions among `subscriptions`."""
    filters: int
    """Different filters; shared filters with their `$share/name/`."""
    placements: int
    cached_topics: int
    cached_bytes: int
    evictions: int
    """Cached topics dropped for a bound, since the start."""
    refusals: int
    """Subscriptions over a limit, since the start."""


class _SessionFilters(Generic[S]):
    """The subscriptions of one session by filter, and their placements."""

    __slots__ = ("filters", "placements")

    def __init__(self, limits: RouterLimits) -> None:
        self.filters: dict[str, Receiver[S]] = {}
        self.placements = Placements(limits.placements_per_session)

    def put(self, topic_filter: str, receiver: Receiver[S]) -> None:
        """Add a subscription, or replace the subscription with the same filter."""
        if topic_filter not in self.filters:
            self.placements.add(placement_of(_inner(topic_filter)))
        self.filters[topic_filter] = receiver

    def remove(self, topic_filter: str) -> None:
        del self.filters[topic_filter]
        self.placements.remove(placement_of(_inner(topic_filter)))


class Router(Generic[S]):
    """The subscriptions of this peer's clients."""

    def __init__(self, limits: RouterLimits | None = None, apart: Callable[[str], bool] = lambda topic: False) -> None:
        """`apart`: whether the broker has other plans for messages to a topic than for others to the same receivers."""
        self._limits = limits or RouterLimits()
        self._apart = apart
        self._sessions: dict[S, _SessionFilters[S]] = {}
        self._unshared: FilterTrie[FilterEntries[S, Receiver[S]]] = FilterTrie()
        self._shared: FilterTrie[FilterEntries[str, SharedGroup[S]]] = FilterTrie()
        self._placements = Placements(self._limits.placements)
        self._cache: ReceiverCache[S] = ReceiverCache(self._limits.cached_topics, self._limits.cached_bytes)
        self.answers: Mapping[str, Receivers[S]] = self._cache.answers
        """A live view of the cached answers: `receivers` without a call, unless the answer has `ended`."""
        self._subscriptions = 0
        self._shared_subscriptions = 0
        self._groups = 0
        self._refusals = 0
        self.answers_made = 0
        """Number of cache misses since the start."""

    def receivers(self, topic: str) -> Receivers[S]:
        """The receivers of a message to `topic`, which need not be valid. Raises PacketError (TOPIC_NAME_INVALID).

        Ask again for every message: the answer holds until a subscription changes.
        """
        answer = self.answers.get(topic)
        return self._answer(topic) if answer is None or answer.ended else answer

    def forget_answers(self) -> None:
        """Drop the cached answers, to free the memory of topics that are no longer in use."""
        self._cache.clear()

    def filters(self, session: S) -> Mapping[str, Receiver[S]]:
        """The current subscriptions of a session by filter, as it sent them, in the order of subscribing.

        A live view: read it at once, or copy it.
        """
        own = self._sessions.get(session)
        return MappingProxyType(own.filters if own else {})

    def subscribe(
        self,
        session: S,
        topic_filter: str,
        qos: int,
        no_local: bool = False,
        retain_as_published: bool = False,
        subscription_id: int | None = None,
    ) -> Added:
        """Add a subscription, or replace the session's subscription with the same filter.

        Raises PacketError for an invalid filter, SubscriptionRefusedError when a limit is reached; nothing has changed
        then. The caller must refuse `no_local` with a shared filter [MQTT-3.8.3-4].
        """
        check_filter(topic_filter)
        own = self._sessions.get(session)
        ids = () if subscription_id is None else (subscription_id,)
        receiver = Receiver(session, qos, no_local, retain_as_published, ids)
        known = own.filters.get(topic_filter) if own else None
        if own is None or known is None:
            own = self._admitted(session, topic_filter)
        first = False
        # An unchanged subscription, which many clients send after each reconnect, must not drop cached answers.
        if known != receiver:
            own.put(topic_filter, receiver)
            first = self._add(topic_filter, receiver)
        return Added(replaced=known is not None, first=first)

    def unsubscribe(self, session: S, topic_filter: str) -> Removed:
        """End a subscription, by its filter as it was subscribed to [MQTT-3.10.4-1]."""
        own = self._sessions.get(session)
        if own is None or topic_filter not in own.filters:
            return Removed(existed=False, last=False)
        own.remove(topic_filter)
        if not own.filters:
            del self._sessions[session]
        return Removed(existed=True, last=self._remove(topic_filter, session))

    def forget(self, session: S) -> list[str]:
        """End all subscriptions of a session; returns the filters that no session has any more."""
        own = self._sessions.pop(session, None)
        return [name for name in own.filters if self._remove(name, session)] if own else []

    def statistics(self) -> RouterStatistics:
        return RouterStatistics(
            sessions=len(self._sessions),
            subscriptions=self._subscriptions,
            shared_subscriptions=self._shared_subscriptions,
            filters=len(self._unshared) + self._groups,
            placements=len(self._placements),
            cached_topics=len(self.answers),
            cached_bytes=self._cache.size_bytes,
            evictions=self._cache.evictions,
            refusals=self._refusals,
        )

    def _admitted(self, session: S, topic_filter: str) -> _SessionFilters[S]:
        """Count a new subscription, unless a limit refuses it."""
        limits = self._limits
        placement = placement_of(_inner(topic_filter))
        own = self._sessions.get(session)
        if own is None:
            own = _SessionFilters(limits)
        fault = None
        # All checks come before any change, or a refused subscription would leave half of itself behind.
        if self._subscriptions >= limits.subscriptions:
            fault = f"the limit of {limits.subscriptions} subscriptions is reached"
        elif len(own.filters) >= limits.subscriptions_per_session:
            fault = f"the limit of {limits.subscriptions_per_session} subscriptions per session is reached"
        elif not (own.placements.allows(placement) and self._placements.allows(placement)):
            fault = (
                f"too many level sets with '+' ({len(own.placements)} of the session, {len(self._placements)} in all)"
            )
        if fault:
            self._refusals += 1
            raise SubscriptionRefusedError(fault)
        self._placements.add(placement)
        self._sessions[session] = own
        self._subscriptions += 1
        return own

    def _add(self, topic_filter: str, receiver: Receiver[S]) -> bool:
        """Store a subscription in the tries; returns whether it is the first with its filter."""
        shared = parse_shared(topic_filter)
        if shared:
            name, inner = shared
            first = self._join(name, inner, receiver)
        else:
            inner = topic_filter
            subscribers = self._unshared.get(inner)
            first = subscribers is None
            if subscribers is None:
                subscribers = FilterEntries()
                self._unshared.put(inner, subscribers)
                self._drop_topics_of(inner)
            self._cache.end(subscribers)
            subscribers[receiver.session] = receiver
        return first

    def _drop_topics_of(self, inner: str) -> None:
        """A filter is new."""
        if has_wildcard(inner):
            self._cache.drop_topics()
        else:
            self._cache.drop(inner)

    def _join(self, name: str, inner: str, receiver: Receiver[S]) -> bool:
        groups = self._shared.get(inner)
        if groups is None:
            groups = FilterEntries()
            self._shared.put(inner, groups)
            self._drop_topics_of(inner)
        # Groups of one filter differ by their share names (§4.8.2): each gets its own copy of a message.
        group = groups.get(name)
        first = group is None
        if group is None:
            self._cache.end(groups)
            group = groups[name] = SharedGroup(name, inner)
            self._groups += 1
        before = len(group)
        group.join(receiver)
        self._shared_subscriptions += len(group) - before
        return first

    def _remove(self, topic_filter: str, session: S) -> bool:
        """Remove a subscription from the tries; returns whether it was the last with its filter."""
        shared = parse_shared(topic_filter)
        inner = shared[1] if shared else topic_filter
        if shared:
            last = self._leave(shared[0], inner, session)
        else:
            subscribers = self._unshared.get(inner)
            assert subscribers is not None, "a session has a filter that is not in the trie"
            self._cache.end(subscribers)
            del subscribers[session]
            last = not subscribers
            if last:
                self._unshared.remove(inner)
        self._subscriptions -= 1
        self._placements.remove(placement_of(inner))
        return last

    def _leave(self, name: str, inner: str, session: S) -> bool:
        groups = self._shared.get(inner)
        assert groups is not None, "a session has a shared filter that is not in the trie"
        groups[name].leave(session)
        self._shared_subscriptions -= 1
        last = not len(groups[name])
        if last:
            self._cache.end(groups)
            del groups[name]
            self._groups -= 1
            if not groups:
                self._shared.remove(inner)
        return last

    def _answer(self, topic: str) -> Receivers[S]:
        check_topic_name(topic)
        self.answers_made += 1
        unshared = self._unshared.match(topic)
        shared = self._shared.match(topic) if len(self._shared) else []
        sources: Sources = (*unshared, *shared)
        apart = self._apart(topic)
        answer = self._cache.find(sources, apart)
        if answer is None:
            groups = tuple([group for by_name in shared for group in by_name.values()])
            answer = Receivers(merged(unshared), groups, sources, apart)
        self._cache.put(topic, answer)
        return answer


def _inner(topic_filter: str) -> str:
    shared = parse_shared(topic_filter)
    return shared[1] if shared else topic_filter
