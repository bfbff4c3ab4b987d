"""Forwarding of routed messages: acknowledged hop by hop to the previous hop, and by a receipt to the origin.

A next hop that does not acknowledge is suspected, and the message is routed around it. A message whose owner is under
suspicion waits for the end of the suspicion, since delivering it to the next closest peer would be wrong if the owner
lives. The origin keeps each message until the receipt comes, because a hop may die with its pending messages; the
receiver drops duplicates.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import takewhile
from typing import Final, Protocol

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id, shared_digits
from ringmq.overlay.core.liveness.failure_detector import FailureDetector
from ringmq.overlay.core.messages import MAX_HOPS, MAX_ROWS, Join, Peer, Receipt, Route, RouteAck
from ringmq.overlay.core.routing import next_hop

MAX_HELD: Final = 1024
"""Messages waiting for the end of a suspicion, or until this peer is active; more are dropped, and their origins try
again."""
MAX_PENDING_ROUTES: Final = 4096
"""Messages routed from here that have no receipt yet; more are refused."""
MAX_SEEN: Final = 4096
"""Deliveries remembered, to recognise duplicates: all of a burst of retries, at 68 messages/s of a minute."""
SEEN_RETRIES: Final = 4
"""They are forgotten after this multiple of the time that the sender takes for all its tries."""
FORGETTINGS: Final = 8
"""Rounds of forgetting in that time."""
MAX_PENDING_HOPS: Final = 4096
"""Forwarded messages that the next hop has not acknowledged yet; beyond it, messages are forwarded without waiting for
an acknowledgement."""

Tag = tuple[Id, int, int]


class Destination(Protocol):
    """The layer above forwarding: takes messages that arrived, and may intercept messages on their way."""

    def arrived(self, route: Route) -> None: ...
    def may_pass(self, key: Id, payload: bytes, next_hop: Peer) -> bool: ...
    def undeliverable(self, key: Id, payload: bytes) -> None: ...


class PendingHop:
    """A message whose next hop has not acknowledged it yet."""

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
    """`route` starts a message, `on_route` accepts one of another peer; `reconsider` when the ring has changed."""

    __slots__ = (
        "_destination",
        "_failure_detector",
        "_forgetting",
        "_held",
        "_pending_hops",
        "_pending_routes",
        "_seen",
        "_state",
    )

    def __init__(self, state: RingContext, failure_detector: FailureDetector, destination: Destination) -> None:
        self._state = state
        self._failure_detector = failure_detector
        self._destination = destination
        self._pending_hops: dict[Tag, PendingHop] = {}
        self._held: dict[Tag, Route] = {}
        self._pending_routes: dict[int, PendingRoute] = {}
        self._seen: dict[Tag, float] = {}
        """Time of each delivery here, the oldest first."""
        self._forgetting = False

    @property
    def outstanding(self) -> int:
        """Messages routed from here without a receipt."""
        return len(self._pending_routes)

    def route(self, key: Id, payload: bytes) -> bool:
        """Send to the owner of the key. False: too many are on their way, try later."""
        if len(self._pending_routes) >= MAX_PENDING_ROUTES:
            self._state.counters.overflowed += 1
            return False
        state = self._state
        message = Route(state.me, state.next_seq(), key, 0, payload)
        own = self._pending_routes[message.seq] = PendingRoute(message)
        state.timers.at(state.now + self._receipt_s, self._no_receipt, own)
        self._advance(message)
        return True

    @property
    def _receipt_s(self) -> float:
        return self._state.timing.receipt_s + self._failure_detector.patience.own_s

    def on_route(self, sender: Peer, route: Route) -> None:
        """A message from the previous hop: acknowledge it and advance it."""
        # Before anything else: a message that comes again must be acknowledged again, or this peer would be suspected.
        self._state.post(sender, RouteAck(*_tag(route)))
        if isinstance(route.body, Join):
            route = self._with_rows(sender, route, route.body)
        self._advance(route)

    def _with_rows(self, sender: Peer, route: Route, body: Join) -> Route:
        """The joining peer gets its table from the hops of its request: each adds the rows that earlier hops lacked."""
        joiner = route.origin
        start = 0 if sender.id == joiner.id else shared_digits(sender.id, joiner.id) + 1
        rows = (*body.rows, *self._state.table.rows_for(joiner.id, start), self._state.me)
        # The next hop would refuse a longer message as a breach of the protocol, and close the link.
        return Route(joiner, route.seq, route.key, route.hops, Join(rows[:MAX_ROWS]))

    def _advance(self, route: Route, avoided: tuple[Id, ...] = ()) -> None:
        state = self._state
        own_place = not isinstance(route.body, bytes)
        without: Collection[Id] = avoided
        if own_place or self._failure_detector.suspects:
            without = {*avoided, *self._failure_detector.suspects}
            if own_place:
                # The origin owns the key itself, as it searches its own place: the next closest peer is meant.
                without.add(route.origin.id)
        peer = next_hop(state.leaves, state.table, route.key, without)
        if peer is not None:
            self._forward(route, peer, avoided)
            return
        # This peer is the nearest that is not avoided. If an avoided member is nearer, the message waits: the end of
        # its suspicion shows the owner.
        avoided_owner = state.leaves.closest(route.key, (route.origin.id,) if own_place else ())
        if avoided_owner is not None or not (state.active or own_place):
            self._hold(route)
        else:
            self._arrive(route)

    def _forward(self, route: Route, peer: Peer, avoided: tuple[Id, ...]) -> None:
        state = self._state
        if route.hops >= MAX_HOPS:
            state.counters.looped += 1
            return
        body = route.body
        if isinstance(body, bytes) and self._is_intercepted(route, body, peer):
            self._confirm(route)
            return
        onward = Route(route.origin, route.seq, route.key, route.hops + 1, body)
        state.post(peer, onward)
        state.counters.forwarded += 1
        if len(self._pending_hops) < MAX_PENDING_HOPS:
            hop = self._pending_hops[_tag(route)] = PendingHop(route, peer, avoided)
            hop_s = state.timing.hop_s + self._failure_detector.patience.of(peer.id)
            state.timers.at(state.now + hop_s, self._not_acknowledged, hop)
        else:
            state.counters.overflowed += 1

    def _is_intercepted(self, route: Route, body: bytes, peer: Peer) -> bool:
        """Whether the application intercepts the message here. It is asked once, even if the message comes again."""
        if _tag(route) in self._seen:
            return True
        if self._destination.may_pass(route.key, body, peer):
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
        """A message may come again while it is retried, or after a suspicion that held it on its way."""
        timing = self._state.timing
        return SEEN_RETRIES * timing.receipt_tries * timing.receipt_s

    def _forget(self, now: float, _: object) -> None:
        seen, before = self._seen, now - self._seen_s
        for tag in list(takewhile(lambda tag: seen[tag] <= before, seen)):
            del seen[tag]
        self._forgetting = bool(seen)
        if seen:
            self._state.timers.at(now + self._seen_s / FORGETTINGS, self._forget, None)

    def on_route_ack(self, sender: Peer, ack: RouteAck) -> None:
        self._pending_hops.pop((ack.origin, ack.boot, ack.seq), None)

    def _not_acknowledged(self, now: float, subject: object) -> None:
        assert isinstance(subject, PendingHop)
        # Compared by identity: a message that came again has another pending hop, with a time of its own.
        if self._pending_hops.get(_tag(subject.route)) is subject:
            self._go_around(subject)

    def _go_around(self, hop: PendingHop) -> None:
        del self._pending_hops[_tag(hop.route)]
        self._state.counters.rerouted += 1
        self._failure_detector.suspect(hop.peer)
        self._advance(hop.route, (*hop.avoided, hop.peer.id))

    def lost(self, peer: Peer) -> None:
        """This peer will not acknowledge any more: route all messages sent to it around it."""
        # A list, as going around changes the table.
        for hop in [hop for hop in self._pending_hops.values() if hop.peer.id == peer.id]:
            self._go_around(hop)

    def _hold(self, route: Route) -> None:
        tag = _tag(route)
        if len(self._held) < MAX_HELD or tag in self._held:
            self._held[tag] = route
        else:
            self._state.counters.overflowed += 1

    def reconsider(self) -> None:
        """This peer became active, or a suspicion has ended: held messages may have a next hop now."""
        if self._held:
            # Emptied first: a message that still has no next hop is held again.
            held = list(self._held.values())
            self._held.clear()
            for route in held:
                self._advance(route)

    def _arrive(self, route: Route) -> None:
        if isinstance(route.body, bytes):
            if _tag(route) in self._seen:
                self._state.counters.duplicates += 1
                self._confirm(route)
                return
            # Remembered and confirmed before the application sees it: its errors must not have it delivered again.
            self._remember(route)
            self._confirm(route)
            self._state.counters.delivered += 1
        self._destination.arrived(route)

    def _confirm(self, route: Route) -> None:
        me = self._state.me
        if route.origin.id != me.id:
            self._state.post(route.origin, Receipt(route.origin.boot, route.seq))
        elif route.origin.boot == me.boot:
            self._pending_routes.pop(route.seq, None)

    def on_receipt(self, sender: Peer, receipt: Receipt) -> None:
        # The numbers start again with each incarnation, so a receipt of an earlier one would name another message.
        if receipt.boot == self._state.me.boot:
            self._pending_routes.pop(receipt.seq, None)

    def _no_receipt(self, now: float, subject: object) -> None:
        assert isinstance(subject, PendingRoute)
        route = subject.route
        if self._pending_routes.get(route.seq) is not subject:
            return
        if subject.tries >= self._state.timing.receipt_tries:
            del self._pending_routes[route.seq]
            # No copy of it may be delivered after its sender was notified of the failure.
            self._held.pop(_tag(route), None)
            self._pending_hops.pop(_tag(route), None)
            self._state.counters.undeliverable += 1
            assert isinstance(route.body, bytes)
            self._destination.undeliverable(route.key, route.body)
            return
        subject.tries += 1
        self._state.counters.resent += 1
        self._state.timers.at(now + self._receipt_s, self._no_receipt, subject)
        self._advance(route)
