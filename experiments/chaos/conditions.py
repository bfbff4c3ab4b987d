"""What the documents exempt: when two peers were apart, or a peer was away, for longer than a promise lasts.

Knows faults and leases; promises nothing itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Final

from ringmq.experiments.chaos.history import FaultKind, Injected, MessageKind, SentMessage

AWAY: Final = (FaultKind.DOWN, FaultKind.PAUSED, FaultKind.POWER)
SHORT_CUT_S: Final = 6.0
"""Cuts up to this length lose nothing (docs/deploy.md, "When the network is cut")."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How long promises last, by timing, and how long acknowledgements may take in a scenario."""

    short_cut_s: float = SHORT_CUT_S
    waited_s: float = 12.0
    """For so long at least messages wait for a peer that is away ("for 12 to 15 s")."""
    puback_s: float = 20.0
    suback_s: float = 20.0
    met_s: float = 5.0
    """For so long at most the parts of a cut do not know of each other after it has healed."""
    repeats: bool = True
    """Whether a message with QoS 2 may come twice where its client sent it again."""
    settled_s: float = 5.0
    """Faults that ended longer ago than this before a message do not explain its loss."""


class Conditions:
    """The faults of a run, as the promises see them."""

    def __init__(self, faults: Sequence[Injected], terms: Terms) -> None:
        self.terms = terms
        self._away = [fault for fault in faults if fault.kind in AWAY]
        self._cuts = [fault for fault in faults if fault.kind is FaultKind.CUT]
        self._others = [fault for fault in faults if fault.kind not in (*AWAY, FaultKind.CUT)]
        self._blanks = [fault for fault in faults if fault.kind is FaultKind.BLANK]
        self._hostile = [fault for fault in faults if fault.kind is FaultKind.HOSTILE]

    def excuses(self, message: SentMessage, peer: int, granted_at: float = -inf) -> bool:
        """Whether an acknowledged message need not reach a subscriber of this peer, by the documents."""
        return (
            self._was_away(message, peer)
            or self._was_apart(message, peer)
            or self._was_unknown(message, peer, granted_at)
            or self._was_erased(message, peer)
            or self.was_attacked(message)
        )

    def _was_away(self, message: SentMessage, peer: int) -> bool:
        """Whether the peer was away for longer than messages wait for it, while this one was on its way."""
        return any(
            peer in fault.peers and length(fault) > self.terms.waited_s and touches(fault, message)
            for fault in self._away
        )

    def _was_apart(self, message: SentMessage, peer: int) -> bool:
        """Whether the publisher's peer had stopped waiting for this peer, as a cut lasted for too long."""
        return any(
            separates(fault, message.peer, peer)
            and length(fault) > self.terms.short_cut_s
            and message.at <= self._met_at(fault)
            and self._may_be_given_up(message, fault)
            for fault in self._cuts
        )

    def _was_unknown(self, message: SentMessage, peer: int, granted_at: float) -> bool:
        """Whether the publisher's part cannot know the subscription, which was made in another part since the cut: the
        parts work alone until they have met again."""
        return any(
            separates(fault, message.peer, peer)
            and fault.start <= granted_at
            and answered_at(message) <= self._met_at(fault)
            for fault in self._cuts
        )

    def _was_erased(self, message: SentMessage, peer: int) -> bool:
        """Whether the message waited on a disk that was lost: for a kept session, or as a will."""
        return any(
            message.at <= fault.start
            and (peer in fault.peers or (message.source is MessageKind.WILL and message.peer in fault.peers))
            for fault in self._blanks
        )

    def erased(self, peer: int, until: float) -> bool:
        """Whether the peer came back under another id before: what was meant for its sessions is given up later."""
        return any(peer in fault.peers and fault.start <= until for fault in self._blanks)

    def _may_be_given_up(self, message: SentMessage, cut: Injected) -> bool:
        """Whether a message across a cut may count as done without its receivers. A will has no acknowledgement."""
        if message.source is MessageKind.WILL:
            return message.at >= cut.start - self.terms.settled_s
        return answered_at(message) >= cut.start + self.terms.waited_s

    def _met_at(self, cut: Injected) -> float:
        """When its parts are one ring again."""
        return (inf if cut.end is None else cut.end) + self.terms.met_s

    def was_attacked(self, message: SentMessage) -> bool:
        """Whether a hostile member did harm while the message was on its way, or shortly before it was sent."""
        settled_s = self.terms.settled_s
        return any(
            fault.start <= answered_at(message) and message.at <= (inf if fault.end is None else fault.end) + settled_s
            for fault in self._hostile
        )

    def crashed(self, message: SentMessage, peer: int, until: float) -> bool:
        """Whether a process of this peer ended while the message may have been on its way there."""
        return self.was_attacked(message) or any(
            peer in fault.peers and fault.start <= until and (fault.end or inf) >= message.at - self.terms.settled_s
            for fault in self._away
            if fault.kind is not FaultKind.PAUSED
        )

    def longest_wait(self, start: float, end: float) -> float:
        """The longest time between these two in which no fault began."""
        faults = (*self._away, *self._cuts, *self._hostile)
        begun = [fault.start for fault in faults if start < fault.start < end]
        return max(later - earlier for earlier, later in pairwise([start, *sorted(begun), end]))

    def near(self, message: SentMessage) -> list[Injected]:
        """The faults during a message, or shortly before it."""
        return [
            fault
            for fault in (*self._away, *self._cuts, *self._others)
            if fault.start <= answered_at(message) and (fault.end or inf) >= message.at - self.terms.settled_s
        ]


def length(fault: Injected) -> float:
    return (inf if fault.end is None else fault.end) - fault.start


def answered_at(message: SentMessage) -> float:
    return message.at if message.acknowledged_at is None else message.acknowledged_at


def touches(fault: Injected, message: SentMessage) -> bool:
    """Whether the message was on its way during the fault."""
    return fault.start <= answered_at(message) and message.at <= (inf if fault.end is None else fault.end)


def separates(fault: Injected, first: int, second: int) -> bool:
    """Whether a cut is between these two peers, in one direction at least."""
    return (first, second) in fault.pairs or (second, first) in fault.pairs
