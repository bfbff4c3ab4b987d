"""A filter of the clients here, and the filters of one partition with their digest.

Knows neither messages nor timers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ringmq.mqtt_front.cluster import Done
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Entry, EntryFlag
from ringmq.peer.engines.partitioned.names import fingerprint_of
from ringmq.peer.engines.partitioned.subscribing.filter_stage import TRANSITIONS, FilterEvent, FilterStage
from ringmq.peer.messaging.shared_filters import inner_of
from ringmq.peer.replication.record import Number, digest_of

IN_FORCE: Final = (FilterStage.IN_FORCE, FilterStage.CHANGING)
"""Stages in which the clients have their SUBACK, and the retained messages are here."""
# Operators and calls of an IntFlag take longer than the rest of an entry.
_LASTING: Final = int(EntryFlag.LASTING)
UNANSWERED: Final = frozenset({FilterStage.ASKING, FilterStage.CHANGING, FilterStage.LEAVING})
"""Stages in which the coordinator owes an answer."""
_NOT_WANTED: Final = frozenset({FilterStage.LEAVING, FilterStage.REFUSED})


class Question:
    """The state of a filter that clients wait for; nothing of it is kept for a filter in force."""

    __slots__ = ("asked", "asked_at", "dones")

    def __init__(self) -> None:
        self.asked = 0
        """How often it was registered with its present number; and when first."""
        self.asked_at = 0.0
        self.dones: list[Done] = []

    def asks(self, now: float) -> None:
        if not self.asked:
            self.asked_at = now
        self.asked += 1


class LocalFilter:
    """One filter of the clients here. There may be 100,000: it has few fields."""

    __slots__ = ("boot", "count", "filter", "lasting", "partition", "promised", "question", "stage")

    def __init__(
        self,
        topic_filter: str,
        partition: HomePartition,
        number: Number,
        lasting: bool = False,
        promised: bool = False,
    ) -> None:
        self.filter = topic_filter
        self.promised = promised
        """Whether a session had its SUBACK before this filter was registered: in an earlier process, or before the
        entry lapsed. It must get everything live."""
        self.lasting = lasting
        """Whether a session that outlives this process has it with QoS 1 or 2."""
        self.partition = partition
        self.boot, self.count = number
        self.stage = FilterStage.ASKING
        self.question: Question | None = Question()
        partition.filters[topic_filter] = self
        partition.unanswered += 1
        partition.include(self)

    @property
    def number(self) -> Number:
        return self.boot, self.count

    @property
    def unanswered(self) -> bool:
        """Whether its coordinator owes an answer, and a new coordinator must be asked too."""
        return self.stage in UNANSWERED

    @property
    def unsent(self) -> bool:
        """Whether nobody has heard of its present number yet."""
        return self.stage is FilterStage.ASKING and self.question is not None and not self.question.asked

    def on(self, event: FilterEvent) -> None:
        """Raises KeyError for an event that this stage does not have."""
        before = self.stage
        after = self.stage = TRANSITIONS[before][event]
        self.partition.unanswered += (after in UNANSWERED) - (before in UNANSWERED)

    def lapse(self, number: Number) -> None:
        """The coordinator knows its end: it must be registered from the beginning, with a higher number."""
        self.promised |= self.stage in IN_FORCE
        self.on(FilterEvent.LAPSED)
        self._renumber(number)

    def change(self, number: Number, lasting: bool) -> None:
        """It is lasting from now on, or is so no more. Entries of one number have the same flags."""
        self.on(FilterEvent.CHANGED)
        self.lasting = lasting
        self._renumber(number)

    def _renumber(self, number: Number) -> None:
        self.partition.exclude(self)
        self.boot, self.count = number
        self.partition.include(self)
        # Answers name the number, so those to earlier questions cannot be taken for answers to the next.
        self.asking().asked = 0

    def refuse(self) -> list[Done]:
        """Its partition is full. Returns the calls that waited for it."""
        dones = self.take_dones()
        self.on(FilterEvent.REFUSED)
        self.partition.exclude(self)
        return dones

    def retry(self, number: Number) -> None:
        """It was refused, and is registered from the beginning."""
        self.on(FilterEvent.RETRIED)
        self.boot, self.count = number
        self.partition.include(self)
        self.asking()

    def leave(self, number: Number) -> list[Done]:
        """No client wants it any more. Returns the calls that waited for it."""
        # The digest leaves it out at once: its end is on the way, and precedes the next digest in the stream.
        dones = self.take_dones()
        self.on(FilterEvent.REMOVED)
        self.partition.exclude(self)
        self.boot, self.count = number
        return dones

    def asking(self) -> Question:
        if self.question is None:
            self.question = Question()
        return self.question

    def move(self, partition: HomePartition, number: Number) -> None:
        """From now on it counts in another partition, or in the wide filter that serves it, with this number."""
        before = self.partition
        before.exclude(self)
        before.unanswered -= self.unanswered
        del before.filters[self.filter]
        self.partition = partition
        self.boot, self.count = number
        partition.filters[self.filter] = self
        partition.unanswered += self.unanswered
        partition.include(self)

    def take_dones(self) -> list[Done]:
        """The calls that wait until it is in force; they wait no more."""
        question, self.question = self.question, None
        return [] if question is None else question.dones

    def entry(self) -> Entry:
        gone = self.stage is FilterStage.LEAVING
        return Entry(self.filter, self.number, gone, 0 if gone else self.flags)

    @property
    def flags(self) -> int:
        return _LASTING if self.lasting else 0


class HomePartition:
    """The filters of the clients here that live in one partition."""

    __slots__ = ("coordinator", "count", "digest", "filters", "index", "left", "queued", "retry_at", "unanswered",
                 "wait_s")  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.filters: dict[str, LocalFilter] = {}
        """Also those that leave, until their coordinator knows."""
        self.queued: dict[LocalFilter, None] = {}
        """Filters to be registered at the end of this iteration, or when the coordinator is known."""
        self.unanswered = 0
        self.count = 0
        self.digest = 0
        """Both over the filters that clients want, without those that were refused."""
        self.coordinator: Peer | None = None
        """The peer that everything here was sent to."""
        self.left: Peer | None = None
        """The last coordinator, if nothing counts that was sent to it: it is not in charge, or was lost."""
        self.retry_at = 0.0
        self.wait_s = 0.0

    def include(self, own: LocalFilter) -> None:
        self.count += 1
        self._toggle(own)

    def exclude(self, own: LocalFilter) -> None:
        self.count -= 1
        self._toggle(own)

    def _toggle(self, own: LocalFilter) -> None:
        # The fingerprint is not kept: to hash the filter again costs less than 40 bytes for each.
        self.digest ^= digest_of(fingerprint_of(inner_of(own.filter)), own.number)

    def wanted(self) -> Iterator[LocalFilter]:
        """The filters that count in the digest."""
        return (own for own in self.filters.values() if own.stage not in _NOT_WANTED)

    def lose(self, now: float, first_s: float, most_s: float) -> None:
        """Its coordinator is not in charge, or was lost. The same peer is asked again after a while, twice as long
        each time, another peer as soon as it is known."""
        # The wait grows, as a newcomer that is nearest says so until it has collected the records of the partition.
        self.left, self.coordinator = self.coordinator, None
        self.wait_s = min(most_s, 2 * self.wait_s) if self.wait_s else first_s
        self.retry_at = now + self.wait_s

    def refuses(self, peer: Peer, now: float) -> bool:
        """Whether this peer was asked in vain a short while ago."""
        return self.coordinator is None and peer == self.left and now < self.retry_at
