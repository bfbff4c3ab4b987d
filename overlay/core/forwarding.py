"""Routed messages: each hop takes charge until the next has acknowledged, the origin until the owner has.

A hop that does not acknowledge is suspected and gone around. A message whose owner is under suspicion waits for the
verdict, since delivering it to the next closest would be wrong if the owner lives. The origin keeps each message
until the receipt comes, because a hop may die with what it took charge of; the receiver drops duplicates.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import takewhile
from typing import Final, Protocol

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.failure_detector import FailureDetector
from ringmq.overlay.core.ids import Id, shared_digits
from ringmq.overlay.core.messages import MAX_HOPS, MAX_ROWS, Join, Peer, Receipt, Route, RouteAck
from ringmq.overlay.core.routing import next_hop

MAX_HELD: Final = 1024
"""Messages waiting for a verdict or for this peer to become active; more are dropped and their origins try again."""
MAX_OWN: Final = 4096
"""Messages routed from here that have no receipt yet; more are refused."""
MAX_SEEN: Final = 4096
"""Deliveries remembered to know a duplicate: all of a burst of retries, at 68 messages/s a minute's worth."""
SEEN_RETRIES: Final = 4
"""They are forgotten after so many times what the sender takes for all its tries."""
FORGETTINGS: Final = 8
"""In that time."""
MAX_CHARGES: Final = 4096
"""Messages sent on and not yet acknowledged by the next hop; beyond it they are sent without taking charge."""

Tag = tuple[Id, int, int]


class Destination(Protocol):
    """Whom the custody tells what has arrived, and whom it asks before it passes on."""

    def arrived(self, route: Route) -> None: ...
    def passing(self, key: Id, payload: bytes, next_hop: Peer) -> bool: ...
    def given_up(self, key: Id, payload: bytes) -> None: ...


class Charge:
    """A message sent to the next hop that has not acknowledged it yet."""

    __slots__ = ("avoided", "peer", "route")

    def __init__(self, route: Route, peer: Peer, avoided: tuple[Id, ...]) -> None:
        self.route = route
        self.peer = peer
        self.avoided = avoided


class PendingRoute:
    """A message routed from here, until its receipt comes."""

    __slots__ = ("route", "tries")

    def __init__(self, route: Route) -> None:
        self.route = route
        self.tries = 1


def _tag(route: Route) -> Tag:
    return route.origin.id, route.origin.boot, route.seq


class Forwarding:
    """`route` starts a message, `take` accepts one from another peer; `reconsider` when the ring has changed."""

    __slots__ = ("_charges", "_destination", "_failure_detector", "_forgetting", "_held", "_own", "_seen", "_state")

    def __init__(self, state: RingContext, failure_detector: FailureDetector, destination: Destination) -> None:
        self._state = state
        self._failure_detector = failure_detector
        self._destination = destination
        self._charges: dict[Tag, Charge] = {}
        self._held: dict[Tag, Route] = {}
        self._own: dict[int, PendingRoute] = {}
        self._seen: dict[Tag, float] = {}
        """When each was delivered here, the oldest first."""
        self._forgetting = False

    @property
    def outstanding(self) -> int:
        """Messages routed from here without a receipt."""
        return len(self._own)

    def route(self, key: Id, payload: bytes) -> bool:
        """Send to the owner of the key. False: too many are on their way, try later."""
        if len(self._own) >= MAX_OWN:
            self._state.counters.overflowed += 1
            return False
        state = self._state
        message = Route(state.me, state.next_seq(), key, 0, payload)
        own = self._own[message.seq] = PendingRoute(message)
        state.timers.at(state.now + state.timing.receipt_s, self._no_receipt, own)
        self._go_on(message)
        return True

    def take(self, sender: Peer, route: Route) -> None:
        """A message from the hop before: take charge of it and go on."""
        self._state.post(sender, RouteAck(*_tag(route)))
        if isinstance(route.body, Join):
            route = self._with_rows(sender, route, route.body)
        self._go_on(route)

    def _with_rows(self, sender: Peer, route: Route, body: Join) -> Route:
        """The joining peer takes its table from the hops on its way: each adds the rows the ones before could not."""
        joiner = route.origin
        start = 0 if sender.id == joiner.id else shared_digits(sender.id, joiner.id) + 1
        rows = (*body.rows, *self._state.table.rows_for(joiner.id, start), self._state.me)
        return Route(joiner, route.seq, route.key, route.hops, Join(rows[:MAX_ROWS]))

    def _go_on(self, route: Route, avoided: tuple[Id, ...] = ()) -> None:
        state = self._state
        own_place = not isinstance(route.body, bytes)
        without: Collection[Id] = avoided
        if own_place or self._failure_detector.suspects:
            without = {*avoided, *self._failure_detector.suspects}
            if own_place:
                without.add(route.origin.id)
        peer = next_hop(state.leaves, state.table, route.key, without)
        if peer is not None:
            self._send_on(route, peer, avoided)
            return
        unavoidable = state.leaves.closest(route.key, (route.origin.id,) if own_place else ())
        if unavoidable is not None or not (state.active or own_place):
            self._hold(route)
        else:
            self._arrive(route)

    def _send_on(self, route: Route, peer: Peer, avoided: tuple[Id, ...]) -> None:
        state = self._state
        if route.hops >= MAX_HOPS:
            state.counters.looped += 1
            return
        body = route.body
        if isinstance(body, bytes) and self._is_taken_off(route, body, peer):
            self._confirm(route)
            return
        onward = Route(route.origin, route.seq, route.key, route.hops + 1, body)
        state.post(peer, onward)
        state.counters.forwarded += 1
        if len(self._charges) < MAX_CHARGES:
            charge = self._charges[_tag(route)] = Charge(route, peer, avoided)
            state.timers.at(state.now + state.timing.hop_s, self._not_acknowledged, charge)
        else:
            state.counters.overflowed += 1

    def _is_taken_off(self, route: Route, body: bytes, peer: Peer) -> bool:
        """Whether the application keeps the message here; it is asked once, also when the message comes again."""
        if _tag(route) in self._seen:
            return True
        if self._destination.passing(route.key, body, peer):
            return False
        self._remember(route)
        return True

    def _remember(self, route: Route) -> None:
        state = self._state
        self._seen[_tag(route)] = state.now
        if len(self._seen) > MAX_SEEN:
            del self._seen[next(iter(self._seen))]
        if not self._forgetting:
            self._forgetting = True
            state.timers.at(state.now + self._seen_s, self._forget, None)

    @property
    def _seen_s(self) -> float:
        """A message may come again while it is retried, or after it was held on its way for want of a verdict."""
        timing = self._state.timing
        return SEEN_RETRIES * timing.receipt_tries * timing.receipt_s

    def _forget(self, now: float, _: object) -> None:
        seen, before = self._seen, now - self._seen_s
        for tag in list(takewhile(lambda tag: seen[tag] <= before, seen)):
            del seen[tag]
        self._forgetting = bool(seen)
        if seen:
            self._state.timers.at(now + self._seen_s / FORGETTINGS, self._forget, None)

    def acknowledged(self, sender: Peer, ack: RouteAck) -> None:
        self._charges.pop((ack.origin, ack.boot, ack.seq), None)

    def _not_acknowledged(self, now: float, subject: object) -> None:
        assert isinstance(subject, Charge)
        if self._charges.get(_tag(subject.route)) is subject:
            self._go_around(subject)

    def _go_around(self, charge: Charge) -> None:
        del self._charges[_tag(charge.route)]
        self._state.counters.rerouted += 1
        self._failure_detector.suspect(charge.peer)
        self._go_on(charge.route, (*charge.avoided, charge.peer.id))

    def lost(self, peer: Peer) -> None:
        """This peer will not acknowledge any more: go around it with all that was sent to it."""
        for charge in [charge for charge in self._charges.values() if charge.peer.id == peer.id]:
            self._go_around(charge)

    def _hold(self, route: Route) -> None:
        tag = _tag(route)
        if len(self._held) < MAX_HELD or tag in self._held:
            self._held[tag] = route
        else:
            self._state.counters.overflowed += 1

    def reconsider(self) -> None:
        """This peer became active, or a verdict has fallen: what was held may have a way now."""
        if self._held:
            held = list(self._held.values())
            self._held.clear()
            for route in held:
                self._go_on(route)

    def _arrive(self, route: Route) -> None:
        if isinstance(route.body, bytes):
            if _tag(route) in self._seen:
                self._state.counters.duplicates += 1
                self._confirm(route)
                return
            self._remember(route)
            self._confirm(route)
            self._state.counters.delivered += 1
        self._destination.arrived(route)

    def _confirm(self, route: Route) -> None:
        me = self._state.me
        if route.origin.id != me.id:
            self._state.post(route.origin, Receipt(route.origin.boot, route.seq))
        elif route.origin.boot == me.boot:
            self._own.pop(route.seq, None)

    def receipt(self, sender: Peer, receipt: Receipt) -> None:
        if receipt.boot == self._state.me.boot:
            self._own.pop(receipt.seq, None)

    def _no_receipt(self, now: float, subject: object) -> None:
        assert isinstance(subject, PendingRoute)
        route = subject.route
        if self._own.get(route.seq) is not subject:
            return
        if subject.tries >= self._state.timing.receipt_tries:
            del self._own[route.seq]
            self._held.pop(_tag(route), None)
            self._charges.pop(_tag(route), None)
            self._state.counters.undeliverable += 1
            assert isinstance(route.body, bytes)
            self._destination.given_up(route.key, route.body)
            return
        subject.tries += 1
        self._state.counters.resent += 1
        self._state.timers.at(now + self._state.timing.receipt_s, self._no_receipt, subject)
        self._go_on(route)
