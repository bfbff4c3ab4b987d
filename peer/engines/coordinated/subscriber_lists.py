"""A publisher's lists: what it was told of each place it publishes by, and how long it may trust that.

A list is trusted for `lease_s` from when it was asked for, on this peer's own clock. So a publisher that was paused, or
cut off from a coordinator, finds its lease run out before it publishes by a list that may be old, and asks first. That
is the bound on staleness: a coordinator that waited `void_s` for the word of a publisher knows that it has a list from
after that, or none. Without a pause a list is asked for again in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Final

from ringmq.overlay.core.compact import slimmed
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import (
    Drop,
    Elsewhere,
    Epoch,
    Known,
    List,
    Record,
    Renewed,
    SubReq,
    Wanted,
)
from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.messaging.partitions import key_of_place

RENEWALS: Final = 3
"""In the time of a lease."""
MOST_AT_ONCE: Final = 500
"""Lists in one message."""


class Registration:
    """One list. `users` are the topics that are published by it."""

    __slots__ = (
        "asking",
        "blocked_by",
        "coordinator",
        "entries",
        "epoch",
        "owed",
        "place",
        "position",
        "stores",
        "until",
        "users",
        "wait_s",
    )  # fmt: skip

    def __init__(self, place: str) -> None:
        self.place = place
        self.coordinator: Peer | None = None
        self.epoch: Epoch | None = None
        self.position = 0
        self.entries: dict[tuple[str, Id], Record] = {}
        self.until = -inf
        self.asking = False
        self.wait_s = 0.0
        self.users: dict[str, None] = {}
        self.stores: set[int] = set()
        """Retained messages published by this list that are not where they should be yet, by their sequence."""
        self.owed: tuple[Peer, Known] | None = None
        """Not said before those retained messages that were published by an older list are in their place."""
        self.blocked_by: set[int] = set()


class SubscriberLists:
    """One per core. `changed` is called when a list has others in it, `trusted` when it may be used again."""

    __slots__ = ("_lists", "_state", "changed", "left", "trusted")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._lists: dict[str, Registration] = {}
        self.changed: Callable[[Registration], None] = lambda one: None
        self.trusted: Callable[[Registration], None] = lambda one: None
        self.left: Callable[[Id, bool], None] = lambda point, expired: None
        """Called for each peer that a list names no longer: whether its lease ran out; or it has left by itself, or is
        merely missing."""

    def __len__(self) -> int:
        return len(self._lists)

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._lists.values())

    def of(self, place: str, topic: str) -> Registration:
        """The list of a place, for this topic too."""
        one = self._lists.get(place)
        if one is None:
            one = self._lists[place] = Registration(place)
        one.users[topic] = None
        return one

    def ensure(self, one: Registration) -> None:
        """Ask for a list that cannot be trusted, unless it is being asked for."""
        if not one.asking:
            one.asking = True
            one.wait_s = 0.0
            self._ask(one)

    def _ask(self, one: Registration) -> None:
        state, config = self._state, self._state.config
        state.route(key_of_place(one.place), SubReq((self._wanted(one),), state.clock.now))
        one.wait_s = min(config.slow_retry_s, 2 * one.wait_s) if one.wait_s else config.ask_s
        state.after(one.wait_s, lambda: self._ask_again(one))

    def _ask_again(self, one: Registration) -> None:
        if one.asking and self._lists.get(one.place) is one:
            self._ask(one)

    def _wanted(self, one: Registration) -> Wanted:
        return Wanted(one.place, one.epoch, one.position)

    def told(self, sender: Peer, message: List) -> None:
        """A list, or its changes; asked for or not."""
        state = self._state
        state.hybrid_clock = max(state.hybrid_clock, message.clock)
        one = self._lists.get(message.place)
        if one is None:
            state.send(sender, Drop((message.place,)))
            return
        if one.epoch is not None and message.epoch < one.epoch:
            return
        if message.since and (message.epoch != one.epoch or message.since > one.position):
            # Something was missed.
            state.send(sender, SubReq((self._wanted(one),), state.clock.now))
            return
        changed, left = self._adopt(one, message)
        one.coordinator = sender
        self._say_known(one, sender)
        if changed:
            self.changed(one)
        for point, expired in left.items():
            self.left(point, expired)
        if message.asked_at is not None:
            one.asking = False
            one.until = max(one.until, message.asked_at + state.config.lease_s)
            if one.until > state.clock.now:
                self.trusted(one)

    def renewed(self, sender: Peer, message: Renewed) -> None:
        """Lists that have not changed."""
        until = message.asked_at + self._state.config.lease_s
        for item in message.items:
            one = self._lists.get(item.place)
            if one is not None and one.epoch == item.epoch:
                waited = one.asking or one.until <= self._state.clock.now
                one.coordinator, one.asking = sender, False
                one.until = max(one.until, until)
                if waited and one.until > self._state.clock.now:
                    self.trusted(one)

    def _adopt(self, one: Registration, message: List) -> tuple[bool, dict[Id, bool]]:
        """Take over what it says. Returns whether anybody came or went; and of those who went, whether their leases ran
        out: who leaves by himself says so with a higher number."""
        if message.epoch == one.epoch and message.position <= one.position:
            return False, {}
        known, changed = one.entries, False
        left: dict[Id, bool] = {}
        if not message.since:
            one.entries = {}
        for record in message.entries:
            assert record.peer is not None, "entries have peers"
            key = (record.name, record.peer.id)
            before = known.get(key)
            if not record.gone:
                one.entries[key] = record
                changed |= before is None or before.peer != record.peer
            elif before is not None:
                del one.entries[key]
                left[record.peer.id] = before.number == record.number
        if not message.since:
            left.update((point, False) for name, point in known if (name, point) not in one.entries)
        one.epoch, one.position = message.epoch, message.position
        return changed or bool(left), left

    def _say_known(self, one: Registration, coordinator: Peer) -> None:
        assert one.epoch is not None
        one.owed = (coordinator, Known(one.place, one.epoch, one.position))
        one.blocked_by = set(one.stores)
        self._pay(one)

    def _pay(self, one: Registration) -> None:
        if one.owed is not None and not one.blocked_by:
            coordinator, known = one.owed
            one.owed = None
            self._state.send(coordinator, known)

    def stored(self, one: Registration, seq: int) -> None:
        """A retained message is in its place."""
        for waiting in (one.stores, one.blocked_by):
            waiting.discard(seq)
            if not waiting:
                waiting.clear()  # its room too
        self._pay(one)

    def elsewhere(self, message: Elsewhere) -> None:
        for place in message.places:
            one = self._lists.get(place)
            if one is not None:
                one.coordinator = None
                if not one.asking:
                    one.asking = True
                    one.wait_s = self._state.config.ask_s
                    self._state.after(one.wait_s, self._asker(one))

    def _asker(self, one: Registration) -> Callable[[], None]:
        return lambda: self._ask_again(one)

    def renew(self, used: Iterable[Registration]) -> None:
        """Those that are used; to be called RENEWALS times in a lease.

        The others lapse, and are asked for when they are needed again: one question in the place of endless renewals.
        """
        state = self._state
        fresh = state.clock.now + state.config.lease_s * (RENEWALS - 1.5) / RENEWALS
        batches: dict[Peer, list[Wanted]] = {}
        for one in used:
            if one.asking:
                continue
            if one.coordinator is None or one.until < fresh - state.config.lease_s / RENEWALS:
                self.ensure(one)
            else:
                batches.setdefault(one.coordinator, []).append(self._wanted(one))
        for peer, items in batches.items():
            for start in range(0, len(items), MOST_AT_ONCE):
                state.send(peer, SubReq(tuple(items[start : start + MOST_AT_ONCE]), state.clock.now))

    def release(self, topic: str, subscriber_lists: tuple[Registration, ...]) -> None:
        """A topic is not published to any more: drop the lists that only it needed."""
        batches: dict[Peer, list[str]] = {}
        for one in subscriber_lists:
            one.users.pop(topic, None)
            one.users = slimmed(one.users)
            if not one.users and self._lists.pop(one.place, None) is one and one.coordinator is not None:
                batches.setdefault(one.coordinator, []).append(one.place)
        self._lists = slimmed(self._lists)
        for peer, places in batches.items():
            self._state.send(peer, Drop(tuple(places)))

    def lists(self, point: int) -> bool:
        """Whether a peer is on any list that counts: one that has lapsed may be old."""
        counting = [one for one in self._lists.values() if one.asking or one.until > self._state.clock.now]
        return any(point == peer for one in counting for _, peer in one.entries)
