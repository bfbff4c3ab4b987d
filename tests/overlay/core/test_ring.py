"""The core as a whole, by its calls and its messages."""

from __future__ import annotations

from math import inf
from typing import get_args

import msgspec
import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import (
    Admit,
    Answer,
    Dead,
    Grant,
    Here,
    Join,
    Joined,
    Late,
    Leaving,
    Message,
    Parcel,
    Peer,
    Ping,
    PingRequest,
    PingResult,
    Pong,
    Probe,
    Question,
    Receipt,
    Relay,
    Route,
    RouteAck,
)
from ringmq.overlay.core.ring import Ring
from ringmq.overlay.core.timing import LAN
from ringmq.overlay.errors import OverlayError

ME = Peer(Id(1000), "me", 1, 5)
A, B, C, D = (Peer(Id(peer_id), f"h{peer_id}", 1, 0) for peer_id in (800, 900, 1100, 1200))
FAR = Peer(Id(1 << 127), "far", 1, 0)


class Told:
    """An application that records all calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.lets_pass = True

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None:
        self.calls.append(("deliver", key, payload, origin))

    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        self.calls.append(("forward", key, payload, next_hop))
        return self.lets_pass

    def receive(self, sender: Peer, payload: bytes) -> None:
        self.calls.append(("receive", sender, payload))

    def undeliverable(self, key: Id, payload: bytes) -> None:
        self.calls.append(("undeliverable", key, payload))

    def link_lost(self, peer: Peer) -> None:
        self.calls.append(("link_lost", peer))

    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None:
        self.calls.append(("owners_changed", key, owners))

    def leaves_changed(self) -> None:
        self.calls.append(("leaves_changed",))

    def activity_changed(self, active: bool) -> None:
        self.calls.append(("activity_changed", active))


def ring_of(*leaves: Peer, half: int = 2) -> tuple[Ring, Told]:
    told = Told()
    ring = Ring(ME, LAN, told, half)
    ring.restore(leaves, (), 0.0)
    ring.take_outbox()
    told.calls.clear()
    return ring, told


def heard(ring: Ring, sender: Peer, message: Message, now: float = 0.0) -> list[tuple[Peer, Message]]:
    ring.receive(sender, message, now)
    return ring.take_outbox()


def test_a_new_core_has_no_messages_and_no_deadline() -> None:
    ring = Ring(ME, LAN, Told())
    assert ring.deadline() == inf
    assert ring.take_outbox() == []
    assert not ring.active
    assert (ring.me, len(ring.leaves), len(ring.table), ring.version) == (ME, 0, 0, 0)


def test_the_first_owns_everything() -> None:
    told = Told()
    ring = Ring(ME, LAN, told)
    ring.found(0.0)
    assert told.calls == [("activity_changed", True)]
    assert ring.deadline() < inf
    assert ring.route(Id(7), b"x", 0.0)
    assert told.calls[1:] == [("deliver", Id(7), b"x", ME)]
    assert ring.take_outbox() == []
    for step in range(200):
        ring.tick(step * 0.2)
    assert ring.take_outbox() == []
    assert ring.active


def test_the_outbox_is_taken_once_and_in_order() -> None:
    ring, _ = ring_of(A, B, C, D)
    ring.send(FAR, b"1")
    ring.send(A, b"2")
    ring.send(FAR, b"3")
    assert ring.take_outbox() == [(FAR, Parcel(b"1")), (A, Parcel(b"2")), (FAR, Parcel(b"3"))]
    assert ring.take_outbox() == []


def test_parcels_come_to_the_application() -> None:
    ring, told = ring_of(A, B, C, D)
    assert heard(ring, FAR, Parcel(b"x")) == []
    assert told.calls == [("receive", FAR, b"x")]


def test_a_routed_message_is_delivered_with_its_origin() -> None:
    ring, told = ring_of(A, B, C, D)
    sent = heard(ring, A, Route(FAR, 9, Id(1001), 1, b"x"))
    assert sent == [(A, RouteAck(FAR.id, 0, 9)), (FAR, Receipt(0, 9))]
    assert told.calls == [("deliver", Id(1001), b"x", FAR)]


def test_the_application_may_intercept_a_passing_message() -> None:
    ring, told = ring_of(A, B, C, D)
    heard(ring, A, Route(FAR, 9, C.id, 1, b"x"))
    assert told.calls == [("forward", C.id, b"x", C)]
    told.lets_pass = False
    assert heard(ring, A, Route(FAR, 10, C.id, 1, b"x")) == [(A, RouteAck(FAR.id, 0, 10)), (FAR, Receipt(0, 10))]


def test_a_message_from_myself_is_ignored() -> None:
    ring, _ = ring_of(A, B, C, D)
    assert heard(ring, ME, Ping()) == []


def test_every_kind_of_message_has_its_handler() -> None:
    examples: dict[type, Message] = {
        Route: Route(FAR, 1, Id(5), 0, b""),
        Admit: Admit(FAR, (), 0, False),
        Dead: Dead(C, ()),
        PingRequest: PingRequest(C),
        PingResult: PingResult(C, True),
        RouteAck: RouteAck(C.id, 0, 1),
        Receipt: Receipt(5, 1),
        Parcel: Parcel(b""),
        Relay: Relay(A, ME, 0, True, b""),
        Late: Late(5),
        Question: Question(1, b""),
        Answer: Answer(1, True, (), b""),
    }
    for kind in get_args(Message):
        ring, _ = ring_of(A, B, C, D)
        fields = len(msgspec.structs.fields(kind))
        simple = {0: (), 1: ((),), 2: ((), False)}
        first = 0 if kind.__name__ in ("RowRequest", "Row") else None
        arguments = (first, *simple[fields][1:]) if first is not None and fields == 1 else simple.get(fields, ())
        message = examples.get(kind) or (kind(0, ()) if kind.__name__ == "Row" else kind(*arguments))
        ring.receive(A, message, 0.0)


def test_ping_is_answered() -> None:
    ring, _ = ring_of(A, B, C, D)
    assert heard(ring, FAR, Ping()) == [(FAR, Pong())]
    assert heard(ring, FAR, Pong()) == []


def test_a_newcomer_far_off_enters_the_table() -> None:
    ring, _ = ring_of(A, B, C, D)
    heard(ring, FAR, Here())
    assert FAR.id in ring.table
    assert FAR.id not in ring.leaves


def test_a_broken_link_makes_a_suspect_and_its_messages_go_around() -> None:
    ring, _ = ring_of(A, B, C, D)
    ring.route(Id(1160), b"x", 0.0)
    ring.take_outbox()
    ring.link_lost(D, 0.0, refused=False)
    sent = ring.take_outbox()
    assert (D, Ping()) in sent
    assert [peer for peer, message in sent if isinstance(message, Route)] == [C]
    assert ring.statistics().suspects == 1


def test_a_refused_connection_asks_the_others_at_once() -> None:
    ring, _ = ring_of(A, B, C, D)
    ring.route(Id(1160), b"x", 0.0)
    ring.take_outbox()
    ring.link_lost(D, 0.0, refused=True)
    sent = ring.take_outbox()
    assert {peer for peer, message in sent if isinstance(message, PingRequest)} == {A, B, C}
    assert [peer for peer, message in sent if isinstance(message, Route)] == [C]


def test_a_refused_stranger_is_dead_at_once_and_out_of_the_table() -> None:
    ring, _ = ring_of(A, B, C, D)
    heard(ring, FAR, Here())
    ring.link_lost(FAR, 0.0, refused=True)
    assert FAR.id not in ring.table
    assert ring.statistics().dead == 1
    assert len(ring.leaves) == 4


def test_the_broken_link_of_an_earlier_incarnation_causes_no_suspicion() -> None:
    again = Peer(D.id, "elsewhere", 1, 1)
    ring, _ = ring_of(A, B, C, again)
    ring.link_lost(D, 0.0, refused=True)
    for step in range(1, 20):
        ring.tick(step * 0.2)
        for peer in (A, B, C):
            ring.receive(peer, Pong(), step * 0.2)
    assert ring.leaves.get(D.id) == again


def test_the_deadline_is_the_next_thing_due() -> None:
    ring, _ = ring_of(A, B, C, D)
    for _ in range(50):
        now = ring.deadline()
        ring.tick(now)
        assert ring.deadline() > now
        for peer in (A, B, C, D):
            ring.receive(peer, Pong(), now)
    ring.route(C.id, b"x", now)
    assert ring.deadline() <= now + LAN.hop_s


def test_leaving_notifies_all_members() -> None:
    ring, _ = ring_of(A, B, C, D)
    ring.leave(0.0)
    leaves = ring.leaves.peers
    assert ring.take_outbox() == [(peer, Leaving(leaves)) for peer in leaves]


def test_changes_of_watched_keys_are_reported() -> None:
    ring, told = ring_of(A, B, C, D)
    assert ring.watch(Id(1101), 2) == ring.owners(Id(1101), 2) == (C, D)
    ring.watch(Id(901), 1)
    ring.unwatch(Id(901))
    heard(ring, C, Leaving(()))
    assert told.calls == [("owners_changed", Id(1101), (D, ME)), ("leaves_changed",)]
    with pytest.raises(OverlayError):
        ring.watch(Id(1), 17)


def test_a_message_given_up_is_reported() -> None:
    ring, told = ring_of(A, B, C, D)
    ring.route(C.id, b"x", 0.0)
    now = 0.0
    while not any(call[0] == "undeliverable" for call in told.calls):
        now = ring.deadline()
        assert now <= LAN.receipt_s * LAN.receipt_tries
        ring.tick(now)
        for peer in (A, B, C, D):
            ring.receive(peer, Pong(), now)
        ring.take_outbox()
    assert now == pytest.approx(LAN.receipt_s * LAN.receipt_tries)
    assert ("undeliverable", C.id, b"x") in told.calls
    assert ring.statistics().unreceipted == 0


def test_held_messages_are_delivered_on_becoming_active() -> None:
    told = Told()
    ring = Ring(ME, LAN, told, 2)
    ring.join(B, 0.0)
    heard(ring, B, Route(FAR, 1, Id(1001), 1, b"x"))
    assert told.calls == []
    heard(ring, B, Grant((), ()))
    ring.receive(B, msgspec.convert([3, [], True], type_of_ack()), 0.0)
    assert [call[0] for call in told.calls] == ["leaves_changed", "activity_changed", "deliver"]


def test_a_changed_leaf_set_is_reported_once_after_a_call() -> None:
    told = Told()
    ring = Ring(ME, LAN, told, 2)
    ring.restore((A, B, C, D), (), 0.0)
    assert told.calls == [("leaves_changed",), ("activity_changed", True)]
    heard(ring, C, Leaving((B, D)))
    assert told.calls[2:] == [("leaves_changed",)]
    ring.tick(0.0)
    heard(ring, D, Ping())
    assert told.calls[3:] == []


def test_a_changed_leaf_set_is_reported_before_a_message_that_was_rerouted() -> None:
    ring, told = ring_of(A, B, C, D)
    ring.route(C.id, b"x", 0.0)
    told.calls.clear()
    heard(ring, C, Leaving((B, D)))
    assert [call[0] for call in told.calls] == ["leaves_changed", "deliver"]


def type_of_ack() -> type:
    return next(kind for kind in get_args(Message) if kind.__name__ == "ProbeAck")


def test_statistics_are_a_snapshot() -> None:
    ring, _ = ring_of(A, B, C, D)
    before = ring.statistics()
    assert (before.active, before.clockwise, before.counterclockwise) == (True, (C, D), (B, A))
    assert (before.suspects, before.dead, before.unreceipted) == (0, 0, 0)
    assert set(before.counters.values()) == {0}
    ring.route(C.id, b"x", 0.0)
    heard(ring, D, Leaving(()))
    after = ring.statistics()
    assert (after.clockwise, after.dead, after.unreceipted) == ((C, A), 1, 1)
    assert after.counters["forwarded"] == after.counters["deaths"] == 1
    assert before.clockwise == (C, D)
    assert ring.version > 0


def test_a_join_request_that_arrives_here_is_granted_and_ends() -> None:
    ring, _ = ring_of(A, B, C, D)
    joiner = Peer(Id(1050), "new", 1, 0)
    sent = heard(ring, A, Route(joiner, 1, joiner.id, 2, Join(())))
    assert [(peer, type(message)) for peer, message in sent] == [(A, RouteAck), (joiner, Grant)]
    assert heard(ring, joiner, Joined()) == []
    assert [kind for _, kind in [(p, type(m)) for p, m in heard(ring, joiner, Probe(()))]][-1].__name__ == "ProbeAck"


def test_questions_and_answers_go_to_whoever_asks_and_answers_and_on_detours() -> None:
    ring, _ = ring_of(A, B, C, D)
    heard: list[tuple[Peer, object]] = []
    ring.receive(A, Question(1, b"nobody answers yet"), 0.0)
    ring.on_question = lambda peer, question: heard.append((peer, question))
    ring.on_answer = lambda peer, answer: heard.append((peer, answer))
    question, answer = Question(7, b"?"), Answer(7, True, (B,), b"!")
    ring.receive(A, question, 0.0)
    ring.receive(B, answer, 0.0)
    assert heard == [(A, question), (B, answer)]
    ring.take_outbox()
    ring.post(C, question)
    assert ring.take_outbox() == [(C, question)]
