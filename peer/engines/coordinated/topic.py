"""A topic that clients of this peer publish to: the lists it needs, the plan made of them, and messages held back.

Owns when a publication may take the fast path (`fast_until`). Knows neither the ring nor links.
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import Final

from ringmq.dispatching.algorithms import Choice
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Record
from ringmq.peer.engines.coordinated.subscriber_lists import Registration
from ringmq.peer.messaging.pending import PendingPublication

DIRECT: Final = "direct"

Groups = tuple[tuple[str, tuple[Peer, ...]], ...]
"""Shared filters, each with the peers that have members of its group."""


class Topic:
    """`peers` and `groups` are its plan."""

    __slots__ = (
        "choice",
        "fast_until",
        "groups",
        "lists",
        "name",
        "peers",
        "queue",
        "raw",
        "through_tree",
        "used_at",
        "valid_until",
    )

    def __init__(self, name: str, lists: tuple[Registration, ...], choice: Choice, now: float) -> None:
        self.name = name
        self.raw = name.encode()
        self.lists = lists
        self.peers: tuple[Peer, ...] | None = None
        """None: there is no plan, or a list has changed since it was made."""
        self.groups: Groups = ()
        self.choice = choice
        self.through_tree = False
        """Whether there are more peers than the publisher sends to by itself."""
        self.valid_until = -inf
        """All lists can be trusted until then."""
        self.fast_until = -inf
        """Publications take the fast path until then: the plan is valid, and sends to each peer directly."""
        self.queue: deque[PendingPublication] = deque()
        self.used_at = now

    def plan(self, peers: tuple[Peer, ...], groups: Groups) -> None:
        self.peers, self.groups = peers, groups
        self.through_tree = self.choice.name != DIRECT and len(peers) > self.choice.fanout
        self._see_fast_path()

    def forget_plan(self) -> None:
        self.peers = None
        self._see_fast_path()

    def renew(self) -> float:
        """The lists may have been renewed: until when all of them can be trusted now."""
        self.valid_until = min(registration.until for registration in self.lists)
        self._see_fast_path()
        return self.valid_until

    def hold(self, outgoing: PendingPublication) -> None:
        """Put a publication behind the others that wait for a list, to keep their order."""
        self.queue.append(outgoing)
        self._see_fast_path()

    def release(self) -> PendingPublication:
        """The publication that has waited longest."""
        outgoing = self.queue.popleft()
        self._see_fast_path()
        return outgoing

    def _see_fast_path(self) -> None:
        # A held publication bars the fast path, or later messages would overtake it.
        fast = self.peers is not None and not self.groups and not self.queue and not self.through_tree
        self.fast_until = self.valid_until if fast else -inf


class Store:
    """A retained message on its way to its coordinator."""

    __slots__ = ("lists", "outgoing", "record", "seq", "wait_s")

    def __init__(self, record: Record, lists: tuple[Registration, ...], seq: int, outgoing: PendingPublication) -> None:
        self.record = record
        self.lists = lists
        self.seq = seq
        self.outgoing = outgoing
        self.wait_s = 0.0

    def next_wait(self, first_s: float, most_s: float) -> float:
        """Seconds until the next attempt: doubled each time, up to a bound."""
        self.wait_s = min(most_s, 2 * self.wait_s or first_s)
        return self.wait_s
