"""Receivers of a message: the router's answer for a topic, its cache, and the rotation inside a shared group.

Owns the records, the merge of a session's overlapping subscriptions, and when a cached answer ends: a filter that it
was made of has changed, or there are too many. All topics that the same filters match share one answer, so a new topic
costs a match. Knows no connection: whether a session can receive a message now, it asks its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import msgspec

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
S = TypeVar("S", bound=Hashable)

_TOPIC_BYTES: Final = 250
_ANSWER_BYTES: Final = 600
_RECEIVER_BYTES: Final = 32
"""Estimated sizes, which only need to be roughly right: of a topic beside its name, of an answer, and of a receiver in
it, which takes 8 bytes when it is the record of its one subscription, and some 150 when it was merged from several."""
_EVICTED_AT_ONCE: Final = 64
"""Finding the oldest key of a dict means passing the slots of deleted keys, which pays only for several at a time."""


class Receiver(msgspec.Struct, Generic[S], frozen=True):
    """A session and the options of its subscriptions. Also the record of a subscription, with at most one identifier.

    `subscription_ids` may hold an identifier twice, as the session gave it to two filters (5.0 §3.3.4).
    """

    session: S
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    subscription_ids: tuple[int, ...] = ()
    own: Receiver[S] | None = None
    """The options for messages that it published itself, if only some of its subscriptions have No Local."""


class SharedGroup(Generic[S]):
    """The sessions that share one filter under one share name, and the next of them in the rotation.

    It lives as long as it has members. Cached answers of the router hold it, and see its changes.
    """

    __slots__ = ("_members", "_next", "_rotation", "filter", "name")

    def __init__(self, name: str, inner_filter: str) -> None:
        self.name = name
        self.filter = inner_filter
        self._members: dict[S, Receiver[S]] = {}
        self._rotation: tuple[Receiver[S], ...] | None = ()
        self._next = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def members(self) -> tuple[Receiver[S], ...]:
        """The members in the order of joining; a member that only changes its options keeps its place."""
        if self._rotation is None:
            self._rotation = tuple(self._members.values())
        return self._rotation

    def get(self, session: S) -> Receiver[S] | None:
        return self._members.get(session)

    def join(self, member: Receiver[S]) -> None:
        """Add a member, or change its options."""
        self._members[member.session] = member
        self._rotation = None

    def leave(self, session: S) -> None:
        """Remove a member; the rotation continues with the same next member."""
        before = self.members
        if next(index for index, member in enumerate(before) if member.session == session) < self._next:
            self._next -= 1
        del self._members[session]
        self._rotation = None

    def next_member(self, available: Callable[[S], bool]) -> Receiver[S] | None:
        """The next available member of the rotation, which then moves on; None if no member is available."""
        members = self.members
        for step in range(len(members)):
            index = (self._next + step) % len(members)
            if available(members[index].session):
                self._next = index + 1
                return members[index]
        return None


class FilterEntries(dict[K, V]):
    """The subscriptions of one filter by session, or the groups that share it by name, and the answers made of it."""

    __slots__ = ("answers",)

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[Receivers[Any], None] | None = None
        """None: there are none, as for most filters."""

    # Two filters with equal entries are two filters.
    __hash__ = object.__hash__  # type: ignore[assignment]  # a dict has none
    __eq__ = object.__eq__
    __ne__ = object.__ne__


Sources = tuple[FilterEntries[Any, Any], ...]
"""The entries of all filters that match a topic."""


class Receivers(msgspec.Struct, Generic[S], eq=False):
    """The receivers of messages to all topics that the same filters match. But for `plan`, only its end changes it."""

    each: tuple[Receiver[S], ...]
    """All of them get the message: one entry per session, in a stable order."""
    groups: tuple[SharedGroup[S], ...]
    """One member of each gets the message."""
    sources: Sources = ()
    apart: bool = False
    """Whether these are receivers of topics with a plan of their own (see `Router`)."""
    plan: object | None = None
    """Derived by the broker. None from the end on."""
    ended: bool = False
    """A subscription has changed: topics that have this answer need another."""


def merged(subscriptions: Sequence[Mapping[S, Receiver[S]]]) -> tuple[Receiver[S], ...]:
    """One receiver per session from the subscriptions of all matching filters, in the order of first appearance.

    A session gets one copy, at the highest QoS of its subscriptions and with all their identifiers [MQTT-3.3.4-2..4].
    For messages of the session itself, only its subscriptions without No Local count [MQTT-3.8.3-3].
    """
    if not subscriptions:
        return ()
    if len(subscriptions) == 1:
        return tuple(subscriptions[0].values())
    receivers = dict(subscriptions[0])
    for other in subscriptions[1:]:
        for session, receiver in other.items():
            known = receivers.get(session)
            receivers[session] = receiver if known is None else _both(known, receiver)
    return tuple(receivers.values())


def _both(first: Receiver[S], second: Receiver[S]) -> Receiver[S]:
    own = None
    # Where all or none have No Local, the merged options hold for own messages as well.
    if first.no_local is not second.no_local or first.own or second.own:
        wanting = [receiver.own or receiver for receiver in (first, second) if not receiver.no_local]
        own = wanting[0] if len(wanting) == 1 else _both(*wanting)
    return Receiver(
        first.session,
        max(first.qos, second.qos),
        first.no_local and second.no_local,
        first.retain_as_published or second.retain_as_published,
        first.subscription_ids + second.subscription_ids,
        own,
    )


class ReceiverCache(Generic[S]):
    """Answers by topic, the oldest topic first, and by the filters that they are made of.

    A hit does not renew a topic's age, since it must cost only a lookup.
    """

    def __init__(self, most_topics: int, most_bytes: int) -> None:
        self._most_topics = most_topics
        self._most_bytes = most_bytes
        self._by_topic: dict[str, Receivers[S]] = {}
        self._by_sources: dict[tuple[bool, Sources], Receivers[S]] = {}
        self.answers: Mapping[str, Receivers[S]] = self._by_topic
        """A live view for the lookup. Some may have ended."""
        self._topics_bytes = 0
        self._answers_bytes = 0
        self.evictions = 0
        """Number of topics forgotten for a bound, since the start."""

    @property
    def size_bytes(self) -> int:
        """Estimated memory of all topics and answers."""
        return self._topics_bytes + self._answers_bytes

    def find(self, sources: Sources, apart: bool) -> Receivers[S] | None:
        """The answer made of these filters."""
        return self._by_sources.get((apart, sources))

    def put(self, topic: str, answer: Receivers[S]) -> None:
        """Store the answer to a topic. It stays whatever its size; the oldest topics are evicted."""
        if topic not in self._by_topic:
            self._topics_bytes += _TOPIC_BYTES + len(topic)
        self._by_topic[topic] = answer
        key = answer.apart, answer.sources
        if key not in self._by_sources:
            if len(self._by_sources) >= self._most_topics or 2 * self._answers_bytes > self._most_bytes:
                # Nobody knows which of them are in use.
                self.evictions += len(self._by_topic)
                self.clear()
                self._by_topic[topic] = answer
                self._topics_bytes = _TOPIC_BYTES + len(topic)
            self._remember(key, answer)
        while len(self._by_topic) > self._most_topics or self.size_bytes > self._most_bytes:
            oldest = list(islice(self._by_topic, min(_EVICTED_AT_ONCE, len(self._by_topic) - 1)))
            if not oldest:
                return
            for old in oldest:
                self.drop(old)
            self.evictions += len(oldest)

    def _remember(self, key: tuple[bool, Sources], answer: Receivers[S]) -> None:
        self._by_sources[key] = answer
        self._answers_bytes += _size_bytes(answer)
        for source in answer.sources:
            if source.answers is None:
                source.answers = {}
            source.answers[answer] = None

    def drop(self, topic: str) -> None:
        """Forget the answer to a topic: a filter of the same name is new."""
        if self._by_topic.pop(topic, None) is not None:
            self._topics_bytes -= _TOPIC_BYTES + len(topic)

    def drop_topics(self) -> None:
        """Forget which topic has which answer: a new filter with wildcards may match any of them."""
        self._by_topic.clear()
        self._topics_bytes = 0

    def end(self, source: FilterEntries[Any, Any]) -> None:
        """The entries of a filter have changed: end the answers made of it."""
        for answer in list(source.answers or ()):
            self._end(answer)

    def _end(self, answer: Receivers[S]) -> None:
        answer.ended, answer.plan = True, None
        del self._by_sources[answer.apart, answer.sources]
        self._answers_bytes -= _size_bytes(answer)
        for source in answer.sources:
            assert source.answers is not None, "a source knows the answers made of it"
            del source.answers[answer]
            if not source.answers:
                source.answers = None
        # Topics refer to it until they get another, and must not keep sessions alive that have ended.
        answer.each = answer.groups = answer.sources = ()

    def clear(self) -> None:
        """Drop all answers."""
        for answer in list(self._by_sources.values()):
            self._end(answer)
        self.drop_topics()


def _size_bytes(answer: Receivers[S]) -> int:
    return _ANSWER_BYTES + _RECEIVER_BYTES * (len(answer.each) + len(answer.groups))
