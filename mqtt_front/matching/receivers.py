"""Who gets a message: the answer of the router to one topic, and the turns inside a shared group.

Owns the records and how the overlapping subscriptions of a session become one. Knows no tree, no filter's meaning and
no connection: whether a session can take a message now, it asks its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

S = TypeVar("S", bound=Hashable)


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
