"""Followers of a coordinator, and the calls that wait until some of them have applied all changes up to a moment.

A follower is a shadow or a holder. What is sent to it is ordered, so one count per follower says how far it is. Knows
neither messages nor records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import islice
from math import inf
from typing import Final, NamedTuple, Protocol

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.streams.stream_messages import Lane

Then = Callable[[], None]

MOST_LOOKED_AT: Final = 1000
"""Waiting calls in one look for silent shadows; the oldest are the first."""

EVERY: Final = -1
"""Stands for all partitions in a call that waits for every shadow."""


class ItemStreams(Protocol):
    """The streams to other peers."""

    def send(
        self, peer: Peer, item: object, done: Callable[[], None] | None = None, lane: Lane = Lane.CONTROL
    ) -> None: ...
    def hold_back(self) -> Callable[[], None]: ...
    def held_back_at(self, peer: Peer) -> float: ...
    def heard_at(self, peer: Peer) -> float: ...
    def answer_s(self, peer: Peer) -> float: ...


class Answer(NamedTuple):
    """An answer to a coordinator which it must have before the batch that it answers is confirmed."""

    peer: Peer
    item: object
    release: Then
    """Confirms the batch."""
    at: float


class Call(NamedTuple):
    """A call that waits for followers of a partition."""

    partition: int
    then: Then
    listed: bool
    """Whether the holders of the partition are waited for too."""
    otherwise: Then
    """Made instead, if this peer does not coordinate the partition any more."""


class Follower:
    """A peer that changes are sent to."""

    __slots__ = ("_early", "_waiting", "applied", "claiming", "noted", "peer", "ready", "sent", "vouched_at")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.sent = 0
        """Number of the last message, sent or still to come."""
        self.applied = 0
        """It has applied all messages up to this number."""
        self.noted = 0
        """Number of the last message to a shadow about the listeners of its coordinator."""
        self.vouched_at = 0.0
        """A shadow obeyed the epochs of its coordinator at this time, or later."""
        self.claiming = False
        """Whether it is being asked for that."""
        self.ready = True
        """Whether changes are sent to it. Otherwise a beginning will follow, and changes wait for that."""
        self._early: set[int] = set()
        """Messages that it has applied before an earlier one."""
        self._waiting: deque[tuple[int, Waiter]] = deque()

    @property
    def behind(self) -> bool:
        return self.applied < self.sent

    def sends(self) -> int:
        """One more message is sent, or will be: its number."""
        self.sent += 1
        return self.sent

    def has_applied(self, number: int) -> list[Waiter]:
        """Returns the waiters that wait for nothing any more."""
        # Confirmations of two messages may come in any order, as a follower can hold one of them back. A waiter may
        # need any of the earlier messages, so only those without a gap count.
        early = self._early
        if number > self.applied:
            early.add(number)
        while self.applied + 1 in early:
            self.applied += 1
            early.discard(self.applied)
        waiting, complete = self._waiting, []
        while waiting and waiting[0][0] <= self.applied:
            at, waiter = waiting.popleft()
            if waiter.arrived(self, at):
                complete.append(waiter)
        return complete

    def forget(self, number: int) -> list[Waiter]:
        """Nothing up to this message is expected any more: later ones replace it. Returns as `has_applied`."""
        self.applied = max(self.applied, number)
        self._early = {early for early in self._early if early > self.applied}
        return self.has_applied(self.applied)

    def await_by(self, waiter: Waiter) -> None:
        """Let a waiter wait for everything sent so far."""
        if self.behind:
            waiter.missing[self] = self.sent
            self._waiting.append((self.sent, waiter))

    def gone(self) -> list[Waiter]:
        """Nothing is expected of it any more. Returns the waiters that wait for nothing else."""
        waiting, self._waiting = self._waiting, deque()
        self.applied = self.sent
        self._early.clear()
        return [waiter for at, waiter in waiting if waiter.arrived(self, at)]


class Waiter:
    """Calls to make when all followers of these partitions have applied what they were sent."""

    __slots__ = ("calls", "deadline", "missing", "opened_at", "partitions")

    def __init__(self, deadline: float = inf, opened_at: float = 0.0) -> None:
        self.opened_at = opened_at
        self.partitions: set[int] = set()
        self.calls: list[Call] = []
        self.missing: dict[Follower, int] = {}
        """Followers, each with the number of the message that it must apply."""
        self.deadline = deadline
        """Holders are not waited for any longer: they trust no older routes any more."""

    def arrived(self, follower: Follower, number: int) -> bool:
        """A follower has applied this message: whether the waiter is complete by that."""
        # It may wait for a later message of the same follower by now, and then this one says nothing.
        wanted = self.missing.get(follower)
        if wanted is None or number < wanted:
            return False
        del self.missing[follower]
        return not self.missing

    def released(self, followers: Iterable[Follower]) -> bool:
        """These need not be waited for: whether the waiter is complete by that."""
        if not self.missing:
            return False
        for follower in followers:
            self.missing.pop(follower, None)
        return not self.missing

    def call(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call.then()

    def without(self, stopped: Collection[int]) -> list[Call]:
        """Remove and return the calls about these partitions."""
        removed = [call for call in self.calls if call.partition in stopped]
        self.calls = [call for call in self.calls if call.partition not in stopped]
        self.partitions.difference_update(stopped)
        return removed


class Patience:
    """Doubts the shadows that calls have waited for longer than `doubt_s`. One per coordinator."""

    __slots__ = ("_is_shadow", "_looking", "_open", "_state", "_suspect")

    def __init__(
        self,
        state: MessagingContext,
        waiters: Iterable[Waiter],
        is_shadow: Callable[[Follower], bool],
        suspect: Callable[[Peer], None],
    ) -> None:
        """`waiters` are those of now, the oldest first."""
        self._state = state
        self._open = waiters
        self._is_shadow = is_shadow
        self._suspect = suspect
        self._looking = False

    def look_later(self) -> None:
        """A call waits."""
        if not self._looking:
            self._looking = True
            self._state.after(self._state.config.doubt_s, self._look)

    def _look(self) -> None:
        self._looking = False
        if not self._open:
            return
        before = self._state.clock.now - self._state.config.doubt_s / 2
        doubted: dict[Peer, None] = {}
        for waiter in islice(self._open, MOST_LOOKED_AT):
            if waiter.opened_at > before:
                break
            doubted.update((follower.peer, None) for follower in waiter.missing if self._is_shadow(follower))
        for peer in doubted:
            self._suspect(peer)
        self.look_later()


def join_peers(known: dict[Id, Peer], peers: Iterable[Peer]) -> None:
    """Add peers to those known by id. Of two starts of a peer the later one counts: it may have routes."""
    for peer in peers:
        other = known.get(peer.id)
        if other is None or other.boot < peer.boot:
            known[peer.id] = peer
