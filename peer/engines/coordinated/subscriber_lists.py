"""A publisher's lists: the subscribers of each place that it publishes to, and how long it may trust them.

A list is trusted for `lease_s` from when it was asked for, on this peer's own clock. So a publisher that was paused, or
cut off from a coordinator, finds its lease run out before it publishes by a list that may be old, and asks first. That
is the bound on staleness: a coordinator that waited `void_s` for the word of a publisher knows that it has a list from
after that, or none. Without a pause a list is asked for again in time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import Final, Protocol

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
"""Renewals within a lease."""
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

    def began_store(self, seq: int) -> None:
        """A retained message was published by this list, and is not at its coordinator yet."""
        self.stores.add(seq)


class ListUser(Protocol):
    """The publisher, which is notified of changes."""

    def list_changed(self, registration: Registration) -> None:
        """Other peers are on a list."""

    def list_trusted(self, registration: Registration) -> None:
        """A list can be trusted again."""

    def peer_left(self, peer_id: Id, expired: bool) -> None:
        """A list names a peer no longer: its lease has expired, or else it has unsubscribed or is missing."""


class SubscriberLists:
    """One per engine."""

    __slots__ = ("_lists", "_state", "_user")

    def __init__(self, state: MessagingContext, user: ListUser) -> None:
        self._state = state
        self._user = user
        self._lists: dict[str, Registration] = {}

    def __len__(self) -> int:
        return len(self._lists)

    def __iter__(self) -> Iterator[Registration]:
        return iter(self._lists.values())

    def of(self, place: str, topic: str) -> Registration:
        """The list of a place, for this topic too."""
        registration = self._lists.get(place)
        if registration is None:
            registration = self._lists[place] = Registration(place)
        registration.users[topic] = None
        return registration

    def ensure(self, registration: Registration) -> None:
        """Ask for a list that cannot be trusted, unless it is being asked for."""
        if not registration.asking:
            registration.asking = True
            registration.wait_s = 0.0
            self._ask(registration)

    def _ask(self, registration: Registration) -> None:
        state, config = self._state, self._state.config
        state.route(key_of_place(registration.place), SubReq((self._wanted(registration),), state.clock.now))
        registration.wait_s = min(config.slow_retry_s, 2 * registration.wait_s) if registration.wait_s else config.ask_s
        state.after(registration.wait_s, lambda: self._ask_again(registration))

    def _ask_again(self, registration: Registration) -> None:
        if registration.asking and self._lists.get(registration.place) is registration:
            self._ask(registration)

    def _wanted(self, registration: Registration) -> Wanted:
        return Wanted(registration.place, registration.epoch, registration.position)

    def told(self, sender: Peer, message: List) -> None:
        """A list, or its changes; asked for or not."""
        state = self._state
        state.observe(message.clock)
        registration = self._lists.get(message.place)
        if registration is None:
            # Otherwise the coordinator would repeat the changes, and make every SUBACK of the place wait for this peer.
            state.send(sender, Drop((message.place,)))
            return
        # A deposed coordinator may not know its successor yet, and its list may lack the latest entries.
        if registration.epoch is not None and message.epoch < registration.epoch:
            return
        if message.since and (message.epoch != registration.epoch or message.since > registration.position):
            # Something was missed.
            state.send(sender, SubReq((self._wanted(registration),), state.clock.now))
            return
        changed, left = self._adopt(registration, message)
        registration.coordinator = sender
        self._say_known(registration, sender)
        # Old plans are forgotten first: `list_trusted` sends the held messages at once, and must use the new list.
        if changed:
            self._user.list_changed(registration)
        for peer_id, expired in left.items():
            self._user.peer_left(peer_id, expired)
        # A change that was not asked for has no time of this peer's clock, from which a lease could be counted.
        if message.asked_at is not None:
            registration.asking = False
            registration.until = max(registration.until, message.asked_at + state.config.lease_s)
            if registration.until > state.clock.now:
                self._user.list_trusted(registration)

    def renewed(self, sender: Peer, message: Renewed) -> None:
        """Lists that have not changed."""
        until = message.asked_at + self._state.config.lease_s
        for item in message.items:
            registration = self._lists.get(item.place)
            if registration is not None and registration.epoch == item.epoch:
                waited = registration.asking or registration.until <= self._state.clock.now
                registration.coordinator, registration.asking = sender, False
                registration.until = max(registration.until, until)
                if waited and registration.until > self._state.clock.now:
                    self._user.list_trusted(registration)

    def _adopt(self, registration: Registration, message: List) -> tuple[bool, dict[Id, bool]]:
        """Apply a list. Returns whether a peer came or left; and for each peer that left, whether its lease expired: an
        unsubscribe would have a higher number."""
        if message.epoch == registration.epoch and message.position <= registration.position:
            return False, {}
        known, changed = registration.entries, False
        left: dict[Id, bool] = {}
        if not message.since:
            registration.entries = {}
        for record in message.entries:
            assert record.peer is not None, "entries have peers"
            key = (record.name, record.peer.id)
            before = known.get(key)
            if not record.gone:
                registration.entries[key] = record
                # A restart changes the boot of a peer, and perhaps its address: both are in the plans of topics.
                changed |= before is None or before.peer != record.peer
            elif before is not None:
                del registration.entries[key]
                left[record.peer.id] = before.number == record.number
        if not message.since:
            # A complete list does not say why an entry is missing. A new coordinator may just not know it yet, so
            # messages to the peer are retried for `grace_s`.
            left.update((peer_id, False) for name, peer_id in known if (name, peer_id) not in registration.entries)
        registration.epoch, registration.position = message.epoch, message.position
        return changed or bool(left), left

    def _say_known(self, registration: Registration, coordinator: Peer) -> None:
        assert registration.epoch is not None
        registration.owed = (coordinator, Known(registration.place, registration.epoch, registration.position))
        registration.blocked_by = set(registration.stores)
        self._pay(registration)

    def _pay(self, registration: Registration) -> None:
        if registration.owed is not None and not registration.blocked_by:
            coordinator, known = registration.owed
            registration.owed = None
            self._state.send(coordinator, known)

    def stored(self, registration: Registration, seq: int) -> None:
        """A retained message is in its place."""
        for waiting in (registration.stores, registration.blocked_by):
            waiting.discard(seq)
            if not waiting:
                waiting.clear()  # its room too
        self._pay(registration)

    def elsewhere(self, message: Elsewhere) -> None:
        for place in message.places:
            registration = self._lists.get(place)
            if registration is not None:
                registration.coordinator = None
                if not registration.asking:
                    registration.asking = True
                    registration.wait_s = self._state.config.ask_s
                    self._state.after(registration.wait_s, self._asker(registration))

    def _asker(self, registration: Registration) -> Callable[[], None]:
        return lambda: self._ask_again(registration)

    def renew(self, used: Iterable[Registration]) -> None:
        """Renew the lists in use. Call it RENEWALS times in a lease.

        The others expire, and are requested when they are needed again: one request instead of endless renewals.
        """
        state = self._state
        fresh = state.clock.now + state.config.lease_s * (RENEWALS - 1.5) / RENEWALS
        batches: dict[Peer, list[Wanted]] = {}
        for registration in used:
            if registration.asking:
                continue
            # The coordinator has not answered the last renewals: the ring may have another coordinator.
            if registration.coordinator is None or registration.until < fresh - state.config.lease_s / RENEWALS:
                self.ensure(registration)
            else:
                batches.setdefault(registration.coordinator, []).append(self._wanted(registration))
        for peer, items in batches.items():
            for start in range(0, len(items), MOST_AT_ONCE):
                state.send(peer, SubReq(tuple(items[start : start + MOST_AT_ONCE]), state.clock.now))

    def release(self, topic: str, subscriber_lists: tuple[Registration, ...]) -> None:
        """A topic is not published to any more: drop the lists that only it needed."""
        batches: dict[Peer, list[str]] = {}
        for registration in subscriber_lists:
            registration.users.pop(topic, None)
            registration.users = slimmed(registration.users)
            if (
                not registration.users
                and self._lists.pop(registration.place, None) is registration
                and registration.coordinator is not None
            ):
                batches.setdefault(registration.coordinator, []).append(registration.place)
        self._lists = slimmed(self._lists)
        for peer, places in batches.items():
            self._state.send(peer, Drop(tuple(places)))

    def lists(self, peer_id: int) -> bool:
        """Whether a peer is on any list that counts: a list whose lease has expired may be old."""
        counting = [
            registration
            for registration in self._lists.values()
            if registration.asking or registration.until > self._state.clock.now
        ]
        return any(peer_id == peer for registration in counting for _, peer in registration.entries)
