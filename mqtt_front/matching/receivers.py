"""Who gets a message: the answer of the router to one topic, and the turns inside a shared group.

Owns the records and how the overlapping subscriptions of a session become one. Knows no tree, no filter's meaning and
no connection: whether a session can take a message now, it asks its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar

import msgspec

from ringmq.mqtt_front.matching.topic_trie import TopicTree

S = TypeVar("S", bound=Hashable)

_ENTRY_BYTES: Final = 600
_LEVEL_BYTES: Final = 300
_RECEIVER_BYTES: Final = 32
"""Estimates of what an answer takes, which need not be right, only not far off. A receiver takes 8 when it is that of
its one subscription, and some 150 when it was made of several."""
_EVICTED_AT_ONCE: Final = 64
"""Finding the oldest key of a dict means passing the holes of those deleted before: worth it only for several."""


class Receiver(msgspec.Struct, Generic[S], frozen=True):
    """A session and how it wants a message. Also the record of one subscription, which has one identifier or none.

    `subscription_ids` may hold an identifier twice, as the session gave it to two filters (5.0 §3.3.4).
    """

    session: S
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    subscription_ids: tuple[int, ...] = ()
    own: Receiver[S] | None = None
    """How it wants what it published itself, if only some of its subscriptions leave that out."""


class SharedGroup(Generic[S]):
    """The sessions that share one filter under one share name, with whose turn it is.

    It lives as long as it has members, through all answers of the router that name it, and changes with its members.
    """

    __slots__ = ("_members", "_next", "_turns", "filter", "name")

    def __init__(self, name: str, inner_filter: str) -> None:
        self.name = name
        self.filter = inner_filter
        self._members: dict[S, Receiver[S]] = {}
        self._turns: tuple[Receiver[S], ...] | None = ()
        self._next = 0

    def __len__(self) -> int:
        return len(self._members)

    @property
    def members(self) -> tuple[Receiver[S], ...]:
        """In the order of joining; who only changes its options keeps its place."""
        if self._turns is None:
            self._turns = tuple(self._members.values())
        return self._turns

    def get(self, session: S) -> Receiver[S] | None:
        return self._members.get(session)

    def join(self, member: Receiver[S]) -> None:
        """Add a member, or change the options of one."""
        self._members[member.session] = member
        self._turns = None

    def leave(self, session: S) -> None:
        """Take a member out; who would have been next still is."""
        before = self.members
        if next(place for place, member in enumerate(before) if member.session == session) < self._next:
            self._next -= 1
        del self._members[session]
        self._turns = None

    def next_member(self, available: Callable[[S], bool]) -> Receiver[S] | None:
        """The next in turn that is available, whose turn is then over; None if nobody is."""
        members = self.members
        for step in range(len(members)):
            place = (self._next + step) % len(members)
            if available(members[place].session):
                self._next = place + 1
                return members[place]
        return None


class Receivers(msgspec.Struct, Generic[S], eq=False):
    """All that a message to one topic needs. Nobody changes it but for `plan`."""

    each: tuple[Receiver[S], ...]
    """Every one of them gets the message: one line per session, in a stable order."""
    groups: tuple[SharedGroup[S], ...]
    """One member of each gets the message."""
    plan: object | None = None
    """The broker's, for what it derives: gone with this record when a subscription that matches the topic changes."""


def merged(subscriptions: Sequence[Mapping[S, Receiver[S]]]) -> tuple[Receiver[S], ...]:
    """One receiver per session out of the subscriptions of all filters that match, in the order of first appearance.

    A session gets one copy, at the highest QoS of its subscriptions and with all their identifiers [MQTT-3.3.4-2..4].
    Of what it published itself, those that want it decide alone [MQTT-3.8.3-3].
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


def _both(one: Receiver[S], other: Receiver[S]) -> Receiver[S]:
    own = None
    if one.no_local is not other.no_local or one.own or other.own:
        wanting = [each.own or each for each in (one, other) if not each.no_local]
        own = wanting[0] if len(wanting) == 1 else _both(*wanting)
    return Receiver(
        one.session,
        max(one.qos, other.qos),
        one.no_local and other.no_local,
        one.retain_as_published or other.retain_as_published,
        one.subscription_ids + other.subscription_ids,
        own,
    )


class ReceiverCache(Generic[S]):
    """Answers by topic, oldest first: the age is that of the answer, since a hit must cost no more than a lookup."""

    def __init__(self, most_topics: int, most_bytes: int) -> None:
        self._most_topics = most_topics
        self._most_bytes = most_bytes
        self._tree: TopicTree[Receivers[S]] = TopicTree()
        self.answers: Mapping[str, Receivers[S]] = self._tree.values
        """A live view for the lookup."""
        self.size_bytes = 0
        """An estimate."""
        self.evictions = 0
        """Answers that had to make place, since the start."""

    def put(self, topic: str, answer: Receivers[S]) -> None:
        """Keep an answer to a topic that has none. It stays whatever its size; the oldest make place."""
        self._tree.put(topic, answer)
        self.size_bytes += _size_bytes(topic, answer)
        while len(self._tree) > self._most_topics or self.size_bytes > self._most_bytes:
            oldest = list(islice(self.answers, min(_EVICTED_AT_ONCE, len(self._tree) - 1)))
            if not oldest:
                return
            for old in oldest:
                self.drop(old)
            self.evictions += len(oldest)

    def drop(self, topic_filter: str) -> None:
        """Forget the answers to all topics that a filter matches."""
        for topic, answer in self._tree.take(topic_filter):
            self.size_bytes -= _size_bytes(topic, answer)

    def clear(self) -> None:
        """Forget all of them."""
        self._tree.clear()
        self.size_bytes = 0


def _size_bytes(topic: str, answer: Receivers[S]) -> int:
    receivers = len(answer.each) + len(answer.groups)
    return _ENTRY_BYTES + 2 * len(topic) + _LEVEL_BYTES * topic.count("/") + _RECEIVER_BYTES * receivers
