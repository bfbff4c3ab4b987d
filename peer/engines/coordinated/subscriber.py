"""The subscriber: keeps the filters of the clients here in force at their coordinators, and fetches retained messages.

A filter goes through the stages of `filter_stage.py`. Each change has a higher number, which only this peer gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ringmq.mqtt_front.matching.filter_trie import FilterTrie
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.filter_stage import TRANSITIONS, FilterEvent, FilterStage
from ringmq.peer.engines.coordinated.messages import (
    Elsewhere,
    Fetch,
    Fetched,
    Granted,
    Kind,
    Number,
    Record,
    Sub,
    SubAck,
)
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.partitions import inner_of, is_shared, key_of_place, place_of
from ringmq.peer.messaging.retained_cache import RetainedCache

RENEWALS: Final = 5
"""Renewals within a lease, so that three lost ones in a row do no harm."""
MOST_AT_ONCE: Final = 500
"""Entries in one message."""
MOST_ASKED: Final = 128
"""Filters that are asked for at the same time. The ring works off the others no sooner if they are asked for at once,
and all of them again because no answer has come."""


class LocalFilter:
    """One filter of the clients here."""

    __slots__ = (
        "asked", "asked_at", "asking", "coordinator", "dones", "fetching", "filter", "heard_at", "number", "place",
        "stage", "wait_s",
    )  # fmt: skip

    def __init__(self, topic_filter: str, number: Number) -> None:
        self.filter = topic_filter
        self.place = place_of(topic_filter)
        self.number = number
        self.stage = FilterStage.ASKING
        self.coordinator: Peer | None = None
        self.heard_at = 0.0
        self.wait_s = 0.0
        self.asking = False
        """Whether it counts among the filters that are being asked for."""
        self.asked = 0
        """How often; and when first."""
        self.asked_at = 0.0
        self.dones: list[Callable[[], None]] = []
        self.fetching: set[str] = set()

    def on(self, event: FilterEvent) -> None:
        """Raises KeyError for an event that this stage does not have."""
        self.stage = TRANSITIONS[self.stage][event]

    @property
    def unanswered(self) -> bool:
        """Whether the coordinator must be asked again until it answers."""
        return self.stage in (FilterStage.ASKING, FilterStage.LEAVING)

    def renumber(self, number: Number) -> None:
        """A change with a higher number, which must be asked for from the beginning."""
        self.number = number
        self.wait_s = 0.0

    def asks(self, now: float, first_s: float, most_s: float) -> float:
        """It is asked for: seconds until it is asked for again without an answer."""
        if self.wait_s:
            self.wait_s = min(most_s, 2 * self.wait_s)
        else:
            self.asked_at, self.wait_s = now, first_s
        self.asked += 1
        return self.wait_s

    def answered(self, coordinator: Peer, now: float) -> bool:
        """The coordinator has granted it: whether the time of the answer is known, as it was asked once."""
        once = self.asked == 1
        self.coordinator, self.heard_at, self.asked = coordinator, now, 0
        return once

    def take_dones(self) -> list[Callable[[], None]]:
        """The calls that wait until it is in force; they wait no more."""
        dones, self.dones = self.dones, []
        return dones

    def record(self, me: Peer) -> Record:
        return Record(Kind.ENTRY, self.filter, me, self.number, self.stage is FilterStage.LEAVING)


class Subscriber:
    """One per engine."""

    __slots__ = ("_asking", "_count", "_in_force_soon", "_own", "_plain", "_queue", "_retained_cache", "_state")

    def __init__(
        self, state: MessagingContext, retained_cache: RetainedCache, in_force_soon: Callable[[str], None]
    ) -> None:
        """`in_force_soon` is called before the clients are notified that a filter is in force, with the last chance to
        add to the retained messages."""
        self._state = state
        self._in_force_soon = in_force_soon
        self._retained_cache = retained_cache
        self._own: dict[str, LocalFilter] = {}
        self._plain: FilterTrie[LocalFilter] = FilterTrie()
        self._count = 0
        self._asking = 0
        self._queue: dict[LocalFilter, None] = {}
        """Filters that will be asked for when others have been answered."""

    def __len__(self) -> int:
        return len(self._own)

    def __iter__(self) -> Iterator[LocalFilter]:
        return iter(self._own.values())

    def wants(self, topic: str) -> bool:
        """Whether a filter here, in force or about to be, matches a topic; shared ones do not count."""
        return any(True for _ in self._plain.match(topic))

    def has(self, topic_filter: str) -> bool:
        """Whether clients here have this very filter, in force or about to be."""
        own = self._own.get(topic_filter)
        return own is not None and own.stage is not FilterStage.LEAVING

    def in_force(self, topic_filter: str) -> bool:
        own = self._own.get(topic_filter)
        return own is not None and own.stage is FilterStage.IN_FORCE

    def add(self, topic_filter: str, done: Callable[[], None]) -> None:
        own = self._own.get(topic_filter)
        if own is not None and own.stage is FilterStage.IN_FORCE:
            done()
            return
        if own is None or own.stage is FilterStage.LEAVING:
            if own is not None:
                own.on(FilterEvent.REPLACED)
                # The confirmation of the end is not awaited any more, so it must not occupy one of the `MOST_ASKED`.
                self._answered(own)
            own = self._own[topic_filter] = LocalFilter(topic_filter, self._next())
            if not is_shared(topic_filter):
                self._plain.put(inner_of(topic_filter), own)
            self._begin(own)
        own.dones.append(done)

    def remove(self, topic_filter: str) -> None:
        own = self._own.get(topic_filter)
        if own is None or own.stage is FilterStage.LEAVING:
            return
        dones = own.take_dones()
        own.on(FilterEvent.REMOVED)
        own.renumber(self._next())
        if not is_shared(topic_filter):
            self._plain.remove(inner_of(topic_filter))
            self._retained_cache.forget(topic_filter, self.wants)
        self._begin(own)
        # Each SUBSCRIBE gets its SUBACK, even if its filter is removed before the grant [MQTT-3.8.4-1].
        for done in dones:
            done()

    def _next(self, above: Number = (0, 0)) -> Number:
        self._count = max(self._count, above[1]) + 1
        # The coordinator may know a higher boot than the present one, and would treat a lower number as old.
        return max(self._state.me.boot, above[0]), self._count

    def _begin(self, own: LocalFilter) -> None:
        """Ask for it, or say that it is gone, as soon as not too many others wait for an answer."""
        if own.asking or self._asking < MOST_ASKED:
            self._asking += not own.asking
            own.asking = True
            self._ask(own)
        else:
            self._queue[own] = None

    def _answered(self, own: LocalFilter) -> None:
        """Nothing is asked about it any more: others may be."""
        self._queue.pop(own, None)
        self._asking -= own.asking
        own.asking = False
        while self._queue and self._asking < MOST_ASKED:
            following = next(iter(self._queue))
            del self._queue[following]
            self._begin(following)

    def _ask(self, own: LocalFilter) -> None:
        """Ask the ring, and again until there is an answer."""
        state, config = self._state, self._state.config
        state.route(key_of_place(own.place), Sub((own.record(state.me),), own.stage is FilterStage.ASKING))
        wait_s = own.asks(state.clock.now, state.ask_s, config.slow_retry_s)
        number = own.number
        state.after(wait_s, lambda: self._ask_again(own, number))

    def _ask_again(self, own: LocalFilter, number: Number) -> None:
        if own.unanswered and own.number == number and self._own.get(own.filter) is own:
            self._ask(own)

    def acknowledged(self, sender: Peer, message: SubAck) -> None:
        for item in message.items:
            own = self._own.get(item.filter)
            if own is not None:
                self._granted(sender, own, item)

    def _granted(self, sender: Peer, own: LocalFilter, item: Granted) -> None:
        if own.stage is FilterStage.LEAVING:
            # An answer with a lower number is for a request from before the removal.
            if item.gone and item.number >= own.number:
                own.on(FilterEvent.ENDED)
                del self._own[own.filter]
                self._answered(own)
            return
        if item.gone and item.number >= own.number:
            # It was not renewed in time, or an earlier boot of this peer gave higher numbers.
            self._state.counters.leases_lost += own.stage is FilterStage.IN_FORCE
            own.on(FilterEvent.LAPSED)
            own.renumber(self._next(item.number))
            self._begin(own)
            return
        # The answer is for a request from before the filter lapsed, or was removed and added again.
        if item.gone or item.number != own.number:
            return
        # The answer to a repeated question may belong to any of its copies, so its time says nothing (Karn's rule).
        if own.answered(sender, self._state.clock.now):
            self._state.answered(self._state.clock.now - own.asked_at)
        self._answered(own)
        if own.stage is FilterStage.ASKING:
            self._fetch(own, item)

    def _fetch(self, own: LocalFilter, item: Granted) -> None:
        """Fetch the retained messages before the clients are notified that the filter is in force."""
        own.on(FilterEvent.GRANTED)
        if item.retained is not None:
            self._keep(item.retained)
        own.fetching = set(item.topics)
        self._fetch_again(own, self._state.config.ask_s)

    def _fetch_again(self, own: LocalFilter, wait_s: float) -> None:
        if own.stage is not FilterStage.FETCHING:
            return
        if not own.fetching:
            if not is_shared(own.filter):
                self._in_force_soon(inner_of(own.filter))
            own.on(FilterEvent.FETCHED)
            for done in own.take_dones():
                done()
            return
        for topic in sorted(own.fetching):
            self._state.route(key_of_place(topic), Fetch(topic))
        longer_s = min(2 * wait_s, self._state.config.slow_retry_s)
        self._state.after(wait_s, lambda: self._fetch_again(own, longer_s))

    def fetched(self, sender: Peer, message: Fetched) -> None:
        if message.record is not None:
            self._keep(message.record)
        for own in list(self._own.values()):
            if own.stage is FilterStage.FETCHING and message.topic in own.fetching:
                own.fetching.discard(message.topic)
                if not own.fetching:
                    self._fetch_again(own, 0.0)

    def _covered(self, topic: str) -> bool:
        """Whether a filter in force matches: then what is retained there is here, or on its way, or was lost."""
        return any(own.stage is FilterStage.IN_FORCE for own in self._plain.match(topic))

    def _keep(self, record: Record) -> None:
        # A filter in force receives confirmed messages live: the fetched copy would be a repetition.
        if self.wants(record.name) and not (record.confirmed and self._covered(record.name)):
            self._retained_cache.fetched(record)

    def elsewhere(self, message: Elsewhere) -> None:
        places = set(message.places)
        for own in self._own.values():
            if own.place in places and own.coordinator is not None:
                own.coordinator = None
                if own.stage is FilterStage.IN_FORCE:
                    # The request of an unanswered filter is repeated by its own timer.
                    self._state.after(self._state.config.retry_s, self._renewing(own))

    def _renewing(self, own: LocalFilter) -> Callable[[], None]:
        def renew() -> None:
            if own.stage is FilterStage.IN_FORCE and self._own.get(own.filter) is own:
                self._state.route(key_of_place(own.place), Sub((own.record(self._state.me),), False))

        return renew

    def renew(self) -> None:
        """All that is in force; to be called RENEWALS times in a lease."""
        state = self._state
        # The answer to the last renewal is at most one period old, and the answer before it almost two: 1.5 separates
        # them.
        fresh = state.clock.now - 1.5 * state.config.entry_s / RENEWALS
        batches: dict[Peer, list[Record]] = {}
        for own in self._own.values():
            if own.stage is not FilterStage.IN_FORCE:
                continue
            # A coordinator that left the last renewal unanswered may be dead: the ring finds its successor.
            if own.coordinator is None or own.heard_at < fresh:
                state.route(key_of_place(own.place), Sub((own.record(state.me),), False))
            else:
                batches.setdefault(own.coordinator, []).append(own.record(state.me))
        for peer, records in batches.items():
            for start in range(0, len(records), MOST_AT_ONCE):
                state.send(peer, Sub(tuple(records[start : start + MOST_AT_ONCE]), False))
