"""Forwarding by hand: the pending hops, routes and deliveries of a peer."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf

import pytest

from ringmq.overlay.core import forwarding
from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.forwarding import Forwarding
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.liveness.detours import PING
from ringmq.overlay.core.liveness.failure_detector import DeathSource, FailureDetector
from ringmq.overlay.core.messages import MAX_HOPS, MAX_ROWS, Join, Late, Message, Peer, Receipt, Route, RouteAck, Seek
from ringmq.overlay.core.timing import LAN

ME = Peer(Id(1000), "me", 1, 3)
LEFT, NEXT, THIRD = (Peer(Id(peer_id), f"h{peer_id}", 1, 0) for peer_id in (900, 1100, 1200))
ORIGIN = Peer(Id(5000), "origin", 1, 7)
MINE, THEIRS, BEYOND = Id(1001), Id(1099), Id(1199)


class Post:
    """A custody among three peers, wired to its liveness as in a ring."""

    def __init__(self, leaves: Iterable[Peer] = (LEFT, NEXT, THIRD), *, active: bool = True) -> None:
        self.state = RingContext(ME, replace(LAN, receipt_tries=3))
        self.state.leaves.fill(leaves)
        self.state.active = active
        self.failure_detector = FailureDetector(
            self.state, self._died, lambda peer, was_dead: self.forwarding.reconsider()
        )
        self.forwarding = Forwarding(self.state, self.failure_detector, self)
        self.arrivals: list[Route] = []
        self.passed: list[tuple[Id, bytes, Peer]] = []
        self.given: list[tuple[Id, bytes]] = []
        self.lets_pass = True

    def arrived(self, route: Route) -> None:
        self.arrivals.append(route)

    def may_pass(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        self.passed.append((key, payload, next_hop))
        return self.lets_pass

    def undeliverable(self, key: Id, payload: bytes) -> None:
        self.given.append((key, payload))

    def _died(self, peer: Peer, source: DeathSource) -> None:
        self.state.leaves.remove(peer.id)
        self.forwarding.lost(peer)
        self.forwarding.reconsider()

    def at(self, now: float) -> list[tuple[Peer, Message]]:
        timers = self.state.timers
        while timers.next_at <= now:
            self.state.now = timers.next_at
            timers.run(self.state.now)
        self.state.now = now
        return self.sent()

    def sent(self) -> list[tuple[Peer, Message]]:
        outbox, self.state.outbox = self.state.outbox, []
        return outbox

    def routes(self, until: float | None = None) -> list[Peer]:
        """Receivers of routed messages."""
        sent = self.sent() if until is None else self.at(until)
        return [peer for peer, message in sent if isinstance(message, Route)]


def message(key: Id, seq: int = 1, hops: int = 2, body: bytes = b"x", origin: Peer = ORIGIN) -> Route:
    return Route(origin, seq, key, hops, body)


def test_a_message_for_an_own_key_is_delivered_with_a_receipt() -> None:
    post = Post()
    post.forwarding.on_route(LEFT, message(MINE))
    assert post.arrivals == [message(MINE)]
    assert post.sent() == [(LEFT, RouteAck(ORIGIN.id, ORIGIN.boot, 1)), (ORIGIN, Receipt(ORIGIN.boot, 1))]
    assert post.state.counters.delivered == 1


def test_a_message_to_an_own_key_needs_no_receipt() -> None:
    post = Post()
    assert post.forwarding.route(MINE, b"x")
    assert [route.body for route in post.arrivals] == [b"x"]
    assert post.sent() == []
    assert post.forwarding.outstanding == 0


def test_a_message_for_another_key_goes_on_with_one_more_hop() -> None:
    post = Post()
    post.forwarding.on_route(LEFT, message(THEIRS))
    assert post.sent() == [(LEFT, RouteAck(ORIGIN.id, ORIGIN.boot, 1)), (NEXT, message(THEIRS, hops=3))]
    assert post.passed == [(THEIRS, b"x", NEXT)]
    assert post.state.counters.forwarded == 1
    assert post.arrivals == []


def test_an_acknowledgement_ends_the_pending_hop() -> None:
    post = Post()
    post.forwarding.on_route(LEFT, message(THEIRS))
    post.forwarding.on_route_ack(NEXT, RouteAck(ORIGIN.id, ORIGIN.boot, 1))
    post.sent()
    assert post.at(60.0) == []
    assert post.state.counters.rerouted == 0
    post.forwarding.lost(NEXT)
    assert post.sent() == [], "nothing of it is there any more"


def test_the_acknowledgement_of_another_message_does_not() -> None:
    post = Post()
    post.forwarding.on_route(LEFT, message(BEYOND))
    post.forwarding.on_route_ack(THIRD, RouteAck(ORIGIN.id, ORIGIN.boot, 2))
    post.forwarding.on_route_ack(THIRD, RouteAck(LEFT.id, ORIGIN.boot, 1))
    post.at(LAN.hop_s)
    assert post.state.counters.rerouted == 1


def test_a_hop_without_acknowledgement_is_suspected_and_routed_around() -> None:
    post = Post()
    key = Id(1160)
    post.forwarding.on_route(LEFT, message(key))
    assert post.routes() == [THIRD]
    assert post.at(LAN.hop_s - 0.01) == []
    sent = post.at(LAN.hop_s)
    assert sent == [(THIRD, PING), (NEXT, message(key, hops=3))], "the hops are counted from here"
    assert THIRD.id in post.failure_detector.suspects
    assert post.arrivals == []


def test_a_suspected_owner_is_waited_for_and_gets_it_when_it_answers() -> None:
    post = Post()
    post.forwarding.on_route(LEFT, message(THEIRS))
    post.forwarding.on_route_ack(NEXT, RouteAck(ORIGIN.id, ORIGIN.boot, 1))
    post.failure_detector.suspect(NEXT)
    post.sent()
    key = Id(1051)
    post.forwarding.on_route(LEFT, message(key, seq=2))
    assert post.routes() == []
    assert post.arrivals == []
    post.failure_detector.heard(NEXT)
    assert post.routes() == [NEXT]


def test_a_suspected_owner_found_dead_leaves_it_to_the_next() -> None:
    post = Post()
    key = Id(1051)
    post.forwarding.on_route(LEFT, message(key))
    assert post.routes() == [NEXT]
    post.routes(LAN.hop_s)
    assert post.arrivals == [], "the owner may live"
    post.routes(LAN.hop_s + LAN.fastest_verdict_s)
    assert post.failure_detector.considers_dead(NEXT)
    assert [route.key for route in post.arrivals] == [key]
    post.at(60.0)
    assert len(post.arrivals) == 1


def test_a_hop_that_is_late_is_waited_for_longer() -> None:
    """To route around all peers of a busy machine would make each message many."""
    post = Post()
    post.failure_detector.patience.on_late(NEXT, Late(1000))
    post.forwarding.on_route(LEFT, message(THEIRS))
    post.at(LAN.hop_s + 0.99)
    assert not post.failure_detector.suspects
    post.at(LAN.hop_s + 1.01)
    assert set(post.failure_detector.suspects) == {NEXT.id}


def test_a_late_peer_waits_longer_for_a_receipt() -> None:
    post = Post()
    post.failure_detector.patience.ran(0.3)
    more_s = post.failure_detector.patience.own_s
    assert post.forwarding.route(THEIRS, b"x")
    post.forwarding.on_route_ack(NEXT, RouteAck(ME.id, ME.boot, post.state.seq))
    post.at(LAN.receipt_s + more_s - 0.01)
    assert not post.state.counters.resent
    post.at(LAN.receipt_s + more_s + 0.01)
    assert post.state.counters.resent == 1


def test_a_lost_link_is_routed_around_at_once() -> None:
    post = Post()
    key = Id(1160)
    for seq in range(3):
        post.forwarding.on_route(LEFT, message(key, seq=seq))
    post.sent()
    post.forwarding.lost(THIRD)
    assert post.routes() == [NEXT] * 3
    assert post.state.counters.rerouted == 3


def test_an_inactive_peer_holds_messages_for_its_keys() -> None:
    post = Post(active=False)
    post.forwarding.on_route(LEFT, message(MINE))
    assert post.arrivals == []
    assert post.sent() == [(LEFT, RouteAck(ORIGIN.id, ORIGIN.boot, 1))]
    post.forwarding.on_route(LEFT, message(THEIRS, seq=2))
    assert post.routes() == [NEXT], "what is not its own it passes on"
    post.forwarding.reconsider()
    assert post.arrivals == []
    post.state.active = True
    post.forwarding.reconsider()
    assert post.arrivals == [message(MINE)]
    assert post.sent() == [(ORIGIN, Receipt(ORIGIN.boot, 1))]
    post.forwarding.reconsider()
    assert len(post.arrivals) == 1


def test_a_duplicate_is_receipted_again_but_delivered_once() -> None:
    post = Post()
    for _ in range(3):
        post.forwarding.on_route(LEFT, message(MINE))
    assert len(post.arrivals) == 1
    assert [each for each in post.sent() if isinstance(each[1], Receipt)] == [(ORIGIN, Receipt(ORIGIN.boot, 1))] * 3
    assert post.state.counters.duplicates == 2


def test_another_life_or_origin_with_the_same_number_is_another_message() -> None:
    post = Post()
    post.forwarding.on_route(LEFT, message(MINE))
    post.forwarding.on_route(LEFT, message(MINE, origin=Peer(ORIGIN.id, "origin", 1, ORIGIN.boot + 1)))
    post.forwarding.on_route(LEFT, message(MINE, origin=THIRD))
    assert len(post.arrivals) == 3


def test_deliveries_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "MAX_SEEN", 2)
    post = Post()
    for seq in (1, 2, 3):
        post.forwarding.on_route(LEFT, message(MINE, seq=seq))
    for seq in (3, 2, 1):
        post.forwarding.on_route(LEFT, message(MINE, seq=seq))
    assert [route.seq for route in post.arrivals] == [1, 2, 3, 1], "the oldest is forgotten"


def test_deliveries_are_forgotten_when_no_origin_can_try_again() -> None:
    post = Post()
    tries_s = post.state.timing.receipt_tries * post.state.timing.receipt_s
    for seq in (1, 2):
        post.forwarding.on_route(LEFT, message(MINE, seq=seq))
    post.at(2 * tries_s)
    post.forwarding.on_route(LEFT, message(MINE, seq=1))
    post.forwarding.on_route(LEFT, message(MINE, seq=3))
    assert [route.seq for route in post.arrivals] == [1, 2, 3]
    post.at(5 * tries_s)
    post.forwarding.on_route(LEFT, message(MINE, seq=1))
    post.forwarding.on_route(LEFT, message(MINE, seq=3))
    assert [route.seq for route in post.arrivals] == [1, 2, 3, 1], "3 is not that old"
    post.at(20 * tries_s)
    assert not post.forwarding._seen
    assert post.state.timers.next_at == inf, "nothing is left to be forgotten"


def test_the_receipt_ends_the_sending() -> None:
    post = Post()
    post.forwarding.route(BEYOND, b"x")
    post.forwarding.on_route_ack(THIRD, RouteAck(ME.id, ME.boot, 1))
    assert post.forwarding.outstanding == 1
    post.forwarding.on_receipt(THIRD, Receipt(ME.boot, 1))
    assert post.forwarding.outstanding == 0
    post.sent()
    assert post.at(60.0) == []


def test_without_a_receipt_it_is_sent_again_and_given_up_in_the_end() -> None:
    post = Post()
    post.forwarding.route(BEYOND, b"x")
    sendings = 0
    for step in range(1, 100):
        sendings += len([peer for peer in post.routes() if peer == THIRD])
        post.forwarding.on_route_ack(THIRD, RouteAck(ME.id, ME.boot, 1))
        post.state.now = step * 0.1
        post.state.timers.run(post.state.now)
        if post.given:
            break
    assert post.state.now == pytest.approx(3 * LAN.receipt_s)
    assert sendings == 3
    assert post.given == [(BEYOND, b"x")]
    assert (post.state.counters.resent, post.state.counters.undeliverable) == (2, 1)
    assert post.forwarding.outstanding == 0
    assert post.at(60.0) == []


def test_a_message_given_up_is_not_delivered_later() -> None:
    post = Post(active=False)
    post.forwarding.route(MINE, b"x")
    post.at(60.0)
    assert post.given == [(MINE, b"x")]
    post.state.active = True
    post.forwarding.reconsider()
    assert post.arrivals == []


def test_the_receipt_of_an_earlier_life_is_not_taken() -> None:
    """The owner received number 1 of the previous process; its receipt comes after the restart."""
    owner = Post()
    owner.forwarding.on_route(LEFT, message(MINE, origin=Peer(ORIGIN.id, "origin", 1, 6)))
    late = next(each for each in owner.sent() if isinstance(each[1], Receipt))
    origin = Post()
    origin.forwarding.route(THEIRS, b"x")
    origin.forwarding.on_receipt(NEXT, late[1])
    assert origin.forwarding.outstanding == 1
    origin.forwarding.on_receipt(NEXT, Receipt(ME.boot, 1))
    assert origin.forwarding.outstanding == 0


def test_a_returning_message_of_an_earlier_incarnation_confirms_no_other() -> None:
    post = Post()
    post.forwarding.route(THEIRS, b"x")
    post.forwarding.on_route(LEFT, message(MINE, origin=Peer(ME.id, "me", 1, ME.boot - 1)))
    assert post.forwarding.outstanding == 1


def test_two_incarnations_of_an_origin_have_two_pending_hops() -> None:
    post = Post()
    post.forwarding.on_route(LEFT, message(BEYOND))
    post.forwarding.on_route(LEFT, message(BEYOND, origin=Peer(ORIGIN.id, "origin", 1, ORIGIN.boot + 1)))
    post.forwarding.on_route_ack(THIRD, RouteAck(ORIGIN.id, ORIGIN.boot, 1))
    post.sent()
    post.at(LAN.hop_s)
    assert post.state.counters.rerouted == 1, "one of the two was not acknowledged"


def test_the_application_may_take_it_off_its_way() -> None:
    post = Post()
    post.lets_pass = False
    post.forwarding.on_route(LEFT, message(THEIRS))
    assert post.sent() == [(LEFT, RouteAck(ORIGIN.id, ORIGIN.boot, 1)), (ORIGIN, Receipt(ORIGIN.boot, 1))]
    assert post.arrivals == []
    post.forwarding.route(THEIRS, b"y")
    assert post.forwarding.outstanding == 0
    assert post.at(60.0) == []


def test_a_message_in_a_loop_is_dropped() -> None:
    post = Post()
    post.forwarding.on_route(LEFT, message(THEIRS, hops=MAX_HOPS - 1))
    assert post.routes() == [NEXT]
    post.forwarding.on_route(LEFT, message(THEIRS, seq=2, hops=MAX_HOPS))
    assert post.routes() == []
    assert post.state.counters.looped == 1
    post.forwarding.on_route(LEFT, message(MINE, seq=3, hops=MAX_HOPS))
    assert len(post.arrivals) == 1, "one that has arrived is not in a loop"


@pytest.mark.parametrize("body", [Join(()), Seek()])
def test_a_search_for_the_own_place_ends_at_another_peer(body: Join | Seek) -> None:
    post = Post(active=False)
    searcher = Peer(Id(1002), "new", 1, 0)
    post.forwarding.on_route(searcher, Route(searcher, 1, searcher.id, 0, body))
    assert [route.origin for route in post.arrivals] == [searcher], "served by inactive peers too"
    post.state.leaves.add(searcher)
    post.forwarding.on_route(searcher, Route(searcher, 1, searcher.id, 0, body))
    assert len(post.arrivals) == 2, "never at the searcher, nor once only"
    assert post.passed == [], "no business of the application"
    assert Receipt not in [type(sent) for _, sent in post.sent()]


def test_a_joining_peer_is_given_the_rows_on_its_way() -> None:
    post = Post()
    rows = tuple(Peer(Id(number << 120), "row", 1, 0) for number in range(1, 4))
    for peer in rows:
        post.state.table.offer(peer)
    joiner = Peer(Id(1098), "new", 1, 0)
    post.forwarding.on_route(joiner, Route(joiner, 1, joiner.id, 0, Join(())))
    onward = post.sent()[1]
    assert onward == (NEXT, Route(joiner, 1, joiner.id, 1, Join((*rows, ME))))
    many = tuple(Peer(Id(number), "row", 1, 0) for number in range(MAX_ROWS))
    post.forwarding.on_route(LEFT, Route(joiner, 2, joiner.id, 0, Join(many)))
    assert post.sent()[1] == (NEXT, Route(joiner, 2, joiner.id, 1, Join(many)))


def test_messages_on_their_way_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "MAX_PENDING_ROUTES", 2)
    post = Post()
    assert [post.forwarding.route(BEYOND, b"x") for _ in range(3)] == [True, True, False]
    post.forwarding.on_receipt(THIRD, Receipt(ME.boot, 1))
    assert post.forwarding.route(BEYOND, b"x")
    assert post.state.counters.overflowed == 1


def test_messages_held_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "MAX_HELD", 2)
    post = Post(active=False)
    for seq in (1, 2, 3, 2):
        post.forwarding.on_route(LEFT, message(MINE, seq=seq))
    assert post.state.counters.overflowed == 1
    post.state.active = True
    post.forwarding.reconsider()
    assert [route.seq for route in post.arrivals] == [1, 2]


def test_pending_hops_are_bounded_and_further_messages_still_forwarded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "MAX_PENDING_HOPS", 2)
    post = Post()
    for seq in (1, 2, 3):
        post.forwarding.on_route(LEFT, message(Id(1160), seq=seq))
    assert post.routes() == [THIRD] * 3
    post.forwarding.lost(THIRD)
    assert post.routes() == [NEXT] * 2
    assert post.state.counters.overflowed == 1
