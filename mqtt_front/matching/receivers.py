"""Receivers of a message: the router's answer for a topic, its cache, and the rotation inside a shared group.

Owns the records, the merge of a session's overlapping subscriptions, and when a cached answer is dropped: a filter that
matches its topic has changed, or it is the oldest of too many. Knows no subscription's filter and no connection:
whether a session can receive a message now, it asks its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice
from typing import Final, Generic, TypeVar

import msgspec

from ringmq.mqtt_front.matching.topic_trie import TopicTrie

S = TypeVar("S", bound=Hashable)

_ENTRY_BYTES: Final = 600
_LEVEL_BYTES: Final = 300
_RECEIVER_BYTES: Final = 32
"""Estimated sizes of an answer's parts, which only need to be roughly right. A receiver takes 8 bytes when it is the
record of its one subscription, and some 150 when it was merged from several."""
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


class Receivers(msgspec.Struct, Generic[S], eq=False):
    """The receivers of messages to one topic. Only `plan` changes."""

    each: tuple[Receiver[S], ...]
    """All of them get the message: one entry per session, in a stable order."""
    groups: tuple[SharedGroup[S], ...]
    """One member of each gets the message."""
    plan: object | None = None
    """Derived by the broker, and dropped with this record when a subscription that matches the topic changes."""


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
    """Answers by topic, oldest first. A hit does not renew an answer's age, since it must cost only a lookup."""

    def __init__(self, most_topics: int, most_bytes: int) -> None:
        self._most_topics = most_topics
        self._most_bytes = most_bytes
        self._tree: TopicTrie[Receivers[S]] = TopicTrie()
        self.answers: Mapping[str, Receivers[S]] = self._tree.values
        """A live view for the lookup."""
        self.size_bytes = 0
        """Estimated memory of all answers."""
        self.evictions = 0
        """Number of answers dropped for a bound, since the start."""

    def put(self, topic: str, answer: Receivers[S]) -> None:
        """Store the answer to a topic without one. It stays whatever its size; the oldest answers are evicted."""
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
        for topic, answer in self._tree.pop_matching(topic_filter):
            self.size_bytes -= _size_bytes(topic, answer)

    def clear(self) -> None:
        """Drop all answers."""
        self._tree.clear()
        self.size_bytes = 0


def _size_bytes(topic: str, answer: Receivers[S]) -> int:
    receivers = len(answer.each) + len(answer.groups)
    return _ENTRY_BYTES + 2 * len(topic) + _LEVEL_BYTES * topic.count("/") + _RECEIVER_BYTES * receivers
