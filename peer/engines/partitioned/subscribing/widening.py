"""Widening: a subscription to a fresh topic, as for the reply to a request, need not be made known to the whole ring.

A home whose clients come and go with many filters below one parent registers `parent/+` once, and serves further ones
below it itself: each costs a question for its retained message, at any size of the ring. Decides when a wide filter
begins and ends; `wide_filter.py` has its stages. Knows no messages between peers.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final, Protocol

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.messages import Presented
from ringmq.peer.engines.partitioned.subscribing.filter_stage import FilterEvent, FilterStage
from ringmq.peer.engines.partitioned.subscribing.fresh_parents import FreshParents
from ringmq.peer.engines.partitioned.subscribing.local_filter import LocalFilter
from ringmq.peer.engines.partitioned.subscribing.wide_filter import (
    WideEntry,
    WideEvent,
    WideFilter,
    WideStage,
    parent_of,
    pattern_of,
)
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.publication import Publication
from ringmq.peer.messaging.retained_cache import RetainedCache

MOST_WIDE: Final = 64
"""Wide filters of one home. Each costs its coordinator and all holders an entry, and may bring unwanted messages."""
UNUSED_S: Final = 60.0
"""A wide filter below which no client has subscribed for this time is taken back."""


class Registration(Protocol):
    """The part of the subscriber that registers filters."""

    def begin_wide(self, pattern: str) -> WideEntry | None:
        """Register a wide filter. None: clients here have the very same filter."""

    def end_wide(self, entry: WideEntry) -> None:
        """Take it back."""

    def register_served(self, own: LocalFilter) -> None:
        """Register a filter that a wide filter served."""

    def serve(self, topic_filter: str, wide: WideFilter) -> LocalFilter:
        """Begin a filter that a wide filter serves."""

    def serve_on(self, own: LocalFilter, wide: WideFilter) -> None:
        """A wide filter serves this filter again, which its coordinator has refused."""

    def forget(self, own: LocalFilter) -> None:
        """Forget a filter that its coordinator does not know."""


class Widening:
    """One per subscriber. Call `flush` at the end of each iteration and `review` from time to time."""

    __slots__ = ("_cache", "_costly", "_fresh", "_registration", "_state", "_wides")

    def __init__(self, state: MessagingContext, registration: Registration, cache: RetainedCache) -> None:
        self._state = state
        self._registration = registration
        self._cache = cache
        self._fresh = FreshParents()
        self._wides: dict[str, WideFilter] = {}
        """By parent."""
        self._costly: dict[str, WideFilter] = {}
        """Those that are to be taken back at the end of this iteration."""

    def __len__(self) -> int:
        """Wide filters that are registered, which no client has."""
        return len(self._wides)

    # Filters of clients

    def begin(self, topic_filter: str, lasting: bool) -> LocalFilter | None:
        """A client subscribes to a filter that nobody here has. None: it must be registered."""
        now = self._state.clock.now
        parent = parent_of(topic_filter)
        if parent is None:
            self._give_way(topic_filter)
            return None
        if lasting:
            # A wide filter ends with this process.
            return None
        wide = self._wides.get(parent)
        if wide is None:
            if self._fresh.came(parent, topic_filter, now):
                self._widen(parent)
            return None
        if not wide.serves(now):
            return None
        wide.used_at = now
        own = self._registration.serve(topic_filter, wide)
        # A publisher gives up a message that it cannot store after this time.
        noted = wide.noted(topic_filter, now, self._state.config.give_up_s)
        if noted is not None:
            self._cache.live(*noted)
        return own

    def _give_way(self, topic_filter: str) -> None:
        """A client wants the filter that is registered as a wide one: its messages are for that client from now on."""
        wide = self._of(topic_filter)
        if wide is not None:
            self._lose(wide)

    def _of(self, pattern: str) -> WideFilter | None:
        parent, _, last = pattern.rpartition("/")
        return self._wides.get(parent) if last == "+" else None

    def removed(self, own: LocalFilter) -> None:
        """No client here has this filter any more."""
        parent = parent_of(own.filter)
        if parent is None:
            return
        wide = self._wides.get(parent)
        if wide is None:
            self._fresh.went(parent, own.filter)
        else:
            self._returned(wide, own)

    def returns(self, wide: WideFilter, own: LocalFilter) -> None:
        """A filter that it serves must be registered by itself: it is lasting from now on."""
        if own.stage is FilterStage.CHANGING:
            wide.returning[own.filter] = own

    def bears(self, own: LocalFilter) -> bool:
        """Whether a filter that is not in force by itself is served by a wide filter meanwhile."""
        parent = parent_of(own.filter)
        wide = None if parent is None else self._wides.get(parent)
        return wide is not None and wide.bears(own.filter)

    # Begin and end of wide filters

    def _widen(self, parent: str) -> None:
        # In a ring of one peer nobody else needs to know of a filter.
        if len(self._wides) >= MOST_WIDE or not self._state.overlay.leaves:
            return
        entry = self._registration.begin_wide(pattern_of(parent))
        if entry is not None:
            self._fresh.forget(parent)
            self._wides[parent] = WideFilter(parent, entry, self._state.clock.now)
            self._state.counters.widened += 1
            # Also while it is not granted: the first publishers may send by it before.
            self._state.brought = self._brought

    def _take_back(self, wide: WideFilter) -> None:
        """Register all filters that it serves; it ends when they are granted."""
        wide.step(WideEvent.TAKEN_BACK)
        for own in list(wide.filters.values()):
            # What is in force stays so until its own entry is granted.
            own.on(FilterEvent.CHANGED)
            self.returns(wide, own)
            self._registration.register_served(own)
        self._see_empty(wide)

    def _returned(self, wide: WideFilter, own: LocalFilter) -> None:
        """A filter does not depend on it any more."""
        if wide.returning.pop(own.filter, None) is not None or wide.stage is WideStage.RETURNING:
            self._see_empty(wide)

    def _see_empty(self, wide: WideFilter) -> None:
        if wide.stage is WideStage.RETURNING and not wide.returning and not wide.filters:
            wide.step(WideEvent.EMPTY)
            self._end(wide)
            self._registration.end_wide(wide.entry)

    def _lose(self, wide: WideFilter) -> None:
        """It is not in force any more, or will not be: each filter that it serves is registered. There are at most
        MOST_SERVED of them."""
        self._abandon(wide)
        self._registration.end_wide(wide.entry)

    def _abandon(self, wide: WideFilter) -> None:
        wide.step(WideEvent.LOST)
        self._end(wide)
        for own in wide.returning.values():
            if own.stage is FilterStage.CHANGING:
                own.on(FilterEvent.LAPSED)
        for own in list(wide.filters.values()):
            self._state.counters.leases_lost += own.stage is FilterStage.IN_FORCE
            own.on(FilterEvent.LAPSED)
            self._registration.register_served(own)

    def _end(self, wide: WideFilter) -> None:
        del self._wides[wide.parent]
        self._costly.pop(wide.parent, None)
        self._state.counters.narrowed += 1
        if not self._wides:
            self._state.brought = None

    # Answers of coordinators

    def granted(self, own: LocalFilter) -> bool:
        """A coordinator has granted an entry. Returns whether it is that of a wide filter, which is then in force."""
        wide = self._of(own.filter)
        if wide is not None and wide.entry is own:
            own.on(FilterEvent.FETCHED)
            wide.step(WideEvent.GRANTED)
            question, coordinator = own.question, own.partition.coordinator
            own.take_dones()
            # The answer to a repeated question may be old; then the next renewal confirms it.
            if question is not None and question.asked == 1 and coordinator is not None:
                wide.confirm(coordinator, question.asked_at + self._state.config.entry_s)
            return True
        parent = parent_of(own.filter)
        wide = None if parent is None else self._wides.get(parent)
        if wide is not None:
            self._returned(wide, own)
        return False

    def lapsed(self, own: LocalFilter) -> bool:
        """A coordinator knows an end of this entry. Returns whether it was that of a wide filter, which ends."""
        wide = self._of(own.filter)
        if wide is None or wide.entry is not own:
            return False
        self._lose(wide)
        return True

    def refused(self, own: LocalFilter) -> bool:
        """A partition is full. Returns whether clients need not hear of it."""
        wide = self._of(own.filter)
        if wide is not None and wide.entry is own:
            self._fresh.pause(wide.parent, self._state.clock.now)
            self._abandon(wide)
            self._registration.forget(own)
            return True
        parent = parent_of(own.filter)
        wide = None if parent is None else self._wides.get(parent)
        if wide is None or own.lasting or own.stage not in (FilterStage.ASKING, FilterStage.CHANGING):
            return False
        if wide.returning.pop(own.filter, None) is None:
            return False
        # Its clients have their SUBACK: the wide filter goes on for as long as they want it.
        self._registration.serve_on(own, wide)
        return True

    def presented(self, sender: Peer, message: Presented) -> None:
        """The answer to a renewal."""
        until = min(message.asked_at, self._state.clock.now) + self._state.config.entry_s
        differing = {index: (count, digest) for index, count, digest in message.digests}
        for wide in list(self._wides.values()):
            partition = wide.entry.partition
            if partition.coordinator != sender or wide.stage is WideStage.ASKING:
                continue
            if not any(first <= partition.index <= last for first, last in message.runs):
                continue
            if message.same:
                wide.confirm(sender, until)
            elif differing.get(partition.index) != (partition.count, partition.digest):
                self._lose(wide)

    def doubt(self, partitions: Container[int]) -> None:
        """The coordinator of these partitions is not in charge, or was lost."""
        for wide in self._wides.values():
            if wide.entry.partition.index in partitions:
                wide.doubt()

    # What wide filters bring

    def _brought(self, topic: str, wanted: bool, origin: Id | None, publication: Publication | None) -> None:
        """A publication has come from another peer."""
        wide = self._wides.get(topic.rpartition("/")[0])
        if wide is None:
            return
        now = self._state.clock.now
        costly = wide.brought(topic, wanted, now)
        if publication is not None and publication.retain and origin is not None:
            costly |= wide.note(origin, publication, now)
        if costly and wide.stage is WideStage.SERVING:
            self._costly[wide.parent] = wide
            self._state.join_later()

    def flush(self) -> None:
        """The end of an iteration: take back what costs more than it saves."""
        if self._costly:
            costly, self._costly = self._costly, {}
            for wide in costly.values():
                self._fresh.pause(wide.parent, self._state.clock.now)
                self._take_back(wide)

    def review(self) -> None:
        """Take back what nobody uses."""
        unused = self._state.clock.now - UNUSED_S
        for wide in list(self._wides.values()):
            if wide.stage is WideStage.SERVING and wide.used_at < unused:
                self._take_back(wide)
