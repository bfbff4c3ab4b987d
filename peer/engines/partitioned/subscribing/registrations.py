"""Filters on their way to their coordinators: joined into items, and no more at once than others can stand.

Owns the queue, and the count of the filters that coordinators owe answers for. Knows no stages but those of an item.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final

from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.directory import Directory
from ringmq.peer.engines.partitioned.messages import Register
from ringmq.peer.engines.partitioned.subscribing.filter_stage import FilterStage
from ringmq.peer.engines.partitioned.subscribing.home_lease import ItemSender, pieces
from ringmq.peer.engines.partitioned.subscribing.local_filter import HomePartition, LocalFilter
from ringmq.peer.messaging.context import TURN_S, MessagingContext

LATER_S: Final = 0.05
"""The longest wait of an end for a registration that it can go along with."""
MOST_AT_ONCE: Final = 1024
"""Filters that are registered in one iteration, some 20 ms with the work of coordinators here. A crowd that comes or
goes together must not hold up everybody else."""
MOST_UNANSWERED: Final = 1024
"""Filters that coordinators owe answers for at most; further ones are registered when answers come. The routes of all
that is registered lie before the next renewal of each publisher: with more, leases would run out."""

FEWEST_UNANSWERED: Final = 64
SLOW_S: Final = 0.5
"""Answers that take longer make the bound smaller, down to `FEWEST_UNANSWERED`; sooner ones make it larger again. On
machines that are short of processor time the same number of filters lies before acknowledgements for ever longer."""
SMALLER: Final = 0.7
LARGER: Final = 64

Ended = tuple[LocalFilter, int]
"""A filter that leaves, and the count of its end, which a coordinator has applied."""


class Window:
    """How many filters may be without an answer: fewer while answers are slow, as TCP Vegas does with segments."""

    __slots__ = ("_changed_at", "size")

    def __init__(self) -> None:
        self.size = MOST_UNANSWERED
        self._changed_at = -inf

    def answered(self, asked_at: float, now: float) -> None:
        """A filter was registered then, and is answered now."""
        # One change for what was registered together: the answers to the rest say nothing about the new size.
        if asked_at < self._changed_at:
            return
        self._changed_at = now
        if now - asked_at > SLOW_S:
            self.size = max(FEWEST_UNANSWERED, int(self.size * SMALLER))
        else:
            self.size = min(MOST_UNANSWERED, self.size + LARGER)


class Registrations:
    """One per subscriber."""

    __slots__ = (
        "_applied", "_armed", "_assign", "_directory", "_queued", "_soon", "_state", "_streams", "_unanswered",
        "_window",
    )  # fmt: skip

    def __init__(
        self,
        state: MessagingContext,
        streams: ItemSender,
        directory: Directory,
        assign: Callable[[HomePartition, Peer], None],
        applied: Callable[[Peer, list[Ended]], None],
    ) -> None:
        """`assign` gives a partition another coordinator, and queues what that must hear. `applied` is called when a
        coordinator has the ends of filters."""
        self._state = state
        self._streams = streams
        self._directory = directory
        self._assign = assign
        self._applied = applied
        self._armed = False
        self._soon = False
        """Whether a registration must not wait."""
        self._queued: OrderedDict[int, HomePartition] = OrderedDict()
        """Partitions with filters that are registered at the end of this iteration, or of later ones if they are
        many. A plain dictionary would look at all places of those that it has lost before it finds its first."""
        self._unanswered = 0
        self._window = Window()

    def __len__(self) -> int:
        """The number of partitions with filters that are not registered yet."""
        return len(self._queued)

    def queue(self, partition: HomePartition, soon: bool) -> None:
        """Register what is queued of a partition at the end of this iteration; if nobody waits for it, with the next
        registration."""
        self._queued[partition.index] = partition
        if soon:
            self._register_soon()
        elif not self._armed:
            self._armed = True
            self._state.after(LATER_S, self._register_late)

    def drop(self, partition: HomePartition) -> None:
        self._queued.pop(partition.index, None)

    def _register_soon(self) -> None:
        self._soon = True
        self._state.join_later()

    def _register_late(self) -> None:
        self._armed = False
        if self._queued:
            self._register_soon()

    def flush(self) -> None:
        """The end of an iteration."""
        if self._soon:
            self.register()

    def register(self) -> None:
        """Register what is queued, in turns if it is much."""
        now = self._state.clock.now
        by_peer: dict[Peer, list[LocalFilter]] = {}
        taken, most = 0, min(MOST_AT_ONCE, self._window.size - self._unanswered)
        # The oldest first: the SUBACK of a client waits for the last of its filters.
        while self._queued and taken < most:
            _, partition = self._queued.popitem(last=False)
            peer = self._directory.coordinator(partition.index)
            if peer is not None and peer != partition.coordinator:
                if partition.refuses(peer, now):
                    continue
                self._assign(partition, peer)
                self._queued.pop(partition.index, None)
            # A coordinator in doubt is asked all the same: most suspects live, and a successor is asked when known.
            peer = partition.coordinator
            if peer is not None:
                by_peer.setdefault(peer, []).extend(partition.queued)
                taken += len(partition.queued)
                partition.queued.clear()
        # `_assign` asks for another look, which was this one.
        self._soon = False
        self._unanswered += taken
        if self._queued and taken:
            # Otherwise the next answer, or the next check, goes on.
            self._state.after(TURN_S, self._register_soon)
        for peer, filters in by_peer.items():
            for piece in pieces(filters):
                self._send(peer, piece, now)

    def _send(self, peer: Peer, filters: list[LocalFilter], now: float) -> None:
        ends: list[Ended] = []
        for own in filters:
            if own.question is not None:
                own.question.asks(now)
            elif own.stage is FilterStage.LEAVING:
                ends.append((own, own.count))
        item = Register(tuple([own.entry() for own in filters]))
        self._streams.send(peer, item, partial(self._applied, peer, ends) if ends else None)

    def answered(self, answers: int) -> None:
        """Answers to registrations have come. Repeated ones are counted too, until `count` corrects it."""
        self.count(self._unanswered - answers)

    def took(self, asked_at: float) -> None:
        """A filter that was registered once, at this time, is in force."""
        self._window.answered(asked_at, self._state.clock.now)

    def count(self, unanswered: int) -> None:
        """So many filters that were registered have no answer."""
        self._unanswered = max(0, unanswered)
        if self._queued:
            self._register_soon()
