"""Entering, verifying and losing: one ring core whose other peers are played by hand, or a few that pass messages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.liveness.detours import PING, PONG
from ringmq.overlay.core.liveness.failure_detector import HEARTBEAT
from ringmq.overlay.core.membership import JOINED
from ringmq.overlay.core.messages import (
    Dead,
    Doubt,
    Grant,
    Here,
    Join,
    Joined,
    Late,
    Leaving,
    Message,
    Peer,
    Ping,
    Probe,
    ProbeAck,
    Route,
    Row,
    RowRequest,
    Seek,
)
from ringmq.overlay.core.ring import Ring
from ringmq.overlay.core.timing import LAN

ME = Peer(Id(1000), "me", 1, 5)
A, B, C, D = (Peer(Id(peer_id), f"h{peer_id}", 1, 0) for peer_id in (800, 900, 1100, 1200))
FAR = Peer(Id(1 << 127), "far", 1, 0)


class Quiet:
    """An application that only takes note of activity."""

    def __init__(self) -> None:
        self.activity: list[bool] = []

    def deliver(self, key: Id, payload: bytes, origin: Peer) -> None: ...
    def forward(self, key: Id, payload: bytes, next_hop: Peer) -> bool:
        return True

    def receive(self, sender: Peer, payload: bytes) -> None: ...
    def undeliverable(self, key: Id, payload: bytes) -> None: ...
    def link_lost(self, peer: Peer) -> None: ...
    def owners_changed(self, key: Id, owners: tuple[Peer, ...]) -> None: ...
    def leaves_changed(self) -> None: ...
    def activity_changed(self, active: bool) -> None:
        self.activity.append(active)


class Stage:
    """One core; the test plays all others. Each call gives what it sends."""

    def __init__(self, leaves: tuple[Peer, ...] = (), half: int = 2, me: Peer = ME) -> None:
        self.application = Quiet()
        self.ring = Ring(me, LAN, self.application, half)
        self.now = 0.0
        if leaves:
            self.ring.restore(leaves, (), 0.0)
        self.ring.take_outbox()

    def sent(self) -> dict[Peer, list[Message]]:
        sent: dict[Peer, list[Message]] = {}
        for peer, message in self.ring.take_outbox():
            sent.setdefault(peer, []).append(message)
        return sent

    def hear(self, sender: Peer, message: Message) -> dict[Peer, list[Message]]:
        self.ring.receive(sender, message, self.now)
        return self.sent()

    def wait(self, until: float, living: tuple[Peer, ...] = ()) -> dict[Peer, list[Message]]:
        """Let time pass, with ticks when they are due; the living say so all the while."""
        sent: dict[Peer, list[Message]] = {}
        while self.now < until:
            self.now = min(until, max(self.now, self.ring.deadline()))
            self.ring.tick(self.now)
            for peer in living:
                self.ring.receive(peer, PONG, self.now)
            for peer, messages in self.sent().items():
                sent.setdefault(peer, []).extend(messages)
        return sent

    @property
    def members(self) -> set[Peer]:
        return set(self.ring.leaves.peers)


class Room:
    """Several cores that hand their messages to each other, in order and at once."""

    def __init__(self, *points: int) -> None:
        self.peers = [Peer(Id(peer_id), f"h{peer_id}", 1, 0) for peer_id in points]
        self.rings = {peer.id: Ring(peer, LAN, Quiet(), half=2) for peer in self.peers}
        self.lost: Callable[[Peer, Peer, Message], bool] = lambda sender, receiver, message: False

    def pass_all(self, now: float) -> None:
        moving = True
        while moving:
            moving = False
            for ring in self.rings.values():
                for receiver, message in ring.take_outbox():
                    if not self.lost(ring.me, receiver, message):
                        moving = True
                        self.rings[receiver.id].receive(ring.me, message, now)

    def run(self, start: float, end: float) -> None:
        now = start
        while now < end:
            now = min(end, *(ring.deadline() for ring in self.rings.values()))
            for ring in self.rings.values():
                ring.tick(now)
            self.pass_all(now)

    def knows_all(self) -> bool:
        return all(ring.leaves.ids == self.rings.keys() - {peer_id} for peer_id, ring in self.rings.items())


def kinds(messages: list[Message] | None) -> list[type]:
    return [type(message) for message in messages or []]


# Joining


def test_two_become_a_ring() -> None:
    room = Room(10, 20)
    founder, other = room.rings.values()
    founder.found(0.0)
    assert founder.active
    other.join(founder.me, 0.0)
    assert not other.active
    room.pass_all(0.0)
    assert other.active
    assert room.knows_all()
    assert other.statistics().counters["joins_granted"] == 0
    assert founder.statistics().counters["joins_granted"] == 1


@pytest.mark.parametrize("founder", [0, 1, 2])
def test_three_join_at_the_same_moment(founder: int) -> None:
    room = Room(10, 20, 30)
    first, *others = room.peers[founder:] + room.peers[:founder]
    room.rings[first.id].found(0.0)
    for peer in others:
        room.rings[peer.id].join(first, 0.0)
    room.run(0.0, 3.0)
    assert all(ring.active for ring in room.rings.values())
    assert room.knows_all()


def test_a_lost_request_is_made_again() -> None:
    room = Room(10, 20)
    founder, other = room.rings.values()
    founder.found(0.0)
    room.lost = lambda sender, receiver, message: isinstance(message, Route)
    other.join(founder.me, 0.0)
    room.pass_all(0.0)
    room.run(0.0, LAN.join_s - 0.01)
    assert not other.active
    room.lost = lambda sender, receiver, message: False
    room.run(LAN.join_s - 0.01, LAN.join_s)
    assert other.active


def granted(stage: Stage, *leaves: Peer) -> dict[Peer, list[Message]]:
    """Let it join through B, which grants."""
    stage.ring.join(B, stage.now)
    sent = stage.sent()
    assert [type(message.body) for message in sent[B] if isinstance(message, Route)] == [Join]
    return stage.hear(B, Grant(leaves, ()))


def test_it_is_active_only_when_the_last_has_acknowledged() -> None:
    stage = Stage()
    sent = granted(stage, A, C)
    assert {peer: kinds(messages) for peer, messages in sent.items()} == {B: [Probe], A: [Probe], C: [Probe]}
    stage.hear(B, ProbeAck((A, C), True))
    stage.hear(A, ProbeAck((B, C), False))
    assert not stage.ring.active
    sent = stage.hear(C, ProbeAck((A, B), False))
    assert stage.ring.active
    assert stage.application.activity == [True]
    assert JOINED in sent[B]
    assert stage.members == {A, B, C}


def test_peers_named_by_acknowledgements_must_acknowledge_too() -> None:
    stage = Stage()
    granted(stage, C)
    sent = stage.hear(B, ProbeAck((A, C), True))
    assert kinds(sent[A]) == [Probe]
    stage.hear(C, ProbeAck((B, D), False))
    assert not stage.ring.active
    stage.hear(A, ProbeAck((B,), False))
    assert not stage.ring.active
    stage.hear(D, ProbeAck((C,), False))
    assert stage.ring.active


def test_a_probe_alone_is_no_acknowledgement() -> None:
    stage = Stage()
    granted(stage, C)
    stage.hear(B, ProbeAck((C,), True))
    sent = stage.hear(C, Probe((B,)))
    assert C in stage.members
    assert kinds(sent[C]) == [ProbeAck]
    assert not stage.ring.active


def test_without_the_confirmation_of_the_grant_it_stays_outside() -> None:
    stage = Stage()
    granted(stage, C)
    stage.hear(C, ProbeAck((B,), True))
    stage.hear(B, ProbeAck((C,), False))
    assert not stage.ring.active
    assert stage.members == {B, C}


def test_a_grant_that_is_over_when_the_last_acknowledges_is_no_grant() -> None:
    stage = Stage()
    granted(stage, C)
    stage.hear(B, ProbeAck((C,), True))
    stage.wait(LAN.grant_s, living=(C, B))
    stage.hear(C, ProbeAck((B,), False))
    assert not stage.ring.active
    sent = stage.wait(LAN.grant_s + 4 * LAN.join_s, living=(B, C))
    joins = [m for messages in sent.values() for m in messages if isinstance(m, Route) and isinstance(m.body, Join)]
    assert joins, "it asks for another"


def test_a_dead_member_of_the_grant_does_not_keep_it_outside() -> None:
    stage = Stage()
    granted(stage, C)
    stage.hear(B, ProbeAck((C,), True))
    stage.ring.link_lost(C, stage.now, refused=True)
    stage.wait(LAN.verdict_s, living=(B,))
    assert stage.ring.active
    assert stage.members == {B}


def test_an_active_peer_returns_a_grant() -> None:
    stage = Stage((A, B, C, D))
    assert stage.hear(B, Grant((A, C), ()))[B] == [JOINED]


def test_contacts_and_met_peers_are_asked_in_turn() -> None:
    stage = Stage()
    stage.ring.join(A, 0.0)
    stage.ring.join(FAR, 0.0)
    asked = list(stage.sent())
    sent = stage.wait(12.0, living=(A, FAR))
    asked += [peer for peer, messages in sent.items() for message in messages if isinstance(message, Route)]
    assert {A, FAR} <= set(asked)


def test_joining_when_active_is_meeting() -> None:
    stage = Stage((A, B, C, D))
    stage.ring.join(FAR, 0.0)
    sent = stage.sent()
    assert [type(message.body) for message in sent[FAR] if isinstance(message, Route)] == [Seek]


def test_new_far_peers_hear_of_the_newcomer() -> None:
    stage = Stage(half=1)
    stage.ring.join(B, 0.0)
    stage.hear(B, Grant((C,), (FAR,)))
    stage.hear(B, ProbeAck((C,), True))
    sent = stage.hear(C, ProbeAck((B,), False))
    assert kinds(sent[FAR]) == [Here]


# Verifying


def test_a_pause_makes_inactive_until_all_have_acknowledged() -> None:
    stage = Stage((A, B, C, D))
    stage.now = LAN.fence_s + 0.01
    stage.ring.tick(0.0)
    stage.sent()
    stage.ring.tick(stage.now)
    assert not stage.ring.active
    assert stage.ring.statistics().counters["pauses"] == 1
    assert {peer for peer, messages in stage.sent().items() if Probe in kinds(messages)} == {A, B, C, D}
    for peer in (A, B, C):
        stage.hear(peer, ProbeAck((), False))
        assert not stage.ring.active
    stage.hear(D, ProbeAck((), False))
    assert stage.ring.active
    assert stage.application.activity == [True, False, True]


def test_a_shorter_pause_does_not_matter() -> None:
    stage = Stage((A, B, C, D))
    stage.ring.tick(0.0)
    stage.ring.tick(LAN.fence_s)
    assert stage.ring.active


def test_a_peer_declared_dead_verifies() -> None:
    stage = Stage((A, B, C, D))
    stage.hear(A, Dead(Peer(ME.id, "me", 1, ME.boot - 1), (B,)))
    assert stage.ring.active, "an earlier life of it died"
    sent = stage.hear(A, Dead(ME, (B,)))
    assert not stage.ring.active
    assert {peer for peer, messages in sent.items() if Probe in kinds(messages)} == {A, B, C, D}
    assert stage.ring.statistics().counters["accusations"] == 1
    for peer in (A, B, C, D):
        stage.hear(peer, ProbeAck((), False))
    assert stage.ring.active


def test_verifying_ends_when_the_silent_are_found_dead() -> None:
    stage = Stage((A, B, C, D))
    stage.hear(A, Dead(ME, (B,)))
    for peer in (A, B, C):
        stage.hear(peer, ProbeAck((), False))
    stage.wait(2 * LAN.fastest_verdict_s + 0.1, living=(A, B, C))
    assert stage.ring.active
    assert stage.members == {A, B, C}


def test_a_suspicion_that_timed_out_in_a_pause_has_no_effect() -> None:
    """The suspect answered while this peer was stopped; the answer lies in its socket."""
    stage = Stage((A, B, C, D))
    stage.ring.tick(0.0)
    stage.ring.link_lost(D, 0.0, refused=True)
    stage.now = 10.0
    stage.ring.tick(stage.now)
    sent = stage.sent()
    assert not [m for messages in sent.values() for m in messages if isinstance(m, Dead)]
    assert D in stage.members


def test_a_pause_while_a_candidate_is_silent_does_not_last_for_ever() -> None:
    stage = Stage((A, B, C))
    sent = stage.hear(C, Probe((D,)))
    assert kinds(sent[D]) == [Probe]
    stage.wait(LAN.probe_tries * LAN.probe_s + 0.1, living=(A, B, C))
    assert stage.ring.statistics().suspects == 1
    stage.now += 2 * LAN.fence_s
    stage.ring.tick(stage.now)
    assert not stage.ring.active
    for peer in (A, B, C):
        stage.hear(peer, ProbeAck((), False))
    stage.wait(stage.now + 60.0, living=(A, B, C))
    assert stage.ring.active


def test_a_late_peer_waits_longer_for_the_answers_to_its_probes() -> None:
    stage = Stage((A, B, C))
    stage.hear(C, Late(1000))
    patience = stage.ring.failure_detector.patience
    patience.ran(0.3)
    sent = stage.hear(C, Probe((D,)))
    assert kinds(sent[D]) == [Probe]
    stage.wait(LAN.probe_tries * LAN.probe_s + 0.1, living=(A, B, C))
    assert stage.ring.statistics().suspects == 0
    stage.wait(LAN.probe_tries * (LAN.probe_s + patience.own_s) + 0.1, living=(A, B, C))
    assert stage.ring.statistics().suspects == 1


def test_a_verifying_peer_asks_for_no_place() -> None:
    stage = Stage()
    granted(stage, C)
    stage.hear(B, ProbeAck((C,), True))
    stage.hear(C, ProbeAck((B,), False))
    stage.hear(B, Dead(ME, (C,)))
    sent = stage.wait(20.0, living=(B, C))
    assert not [m for messages in sent.values() for m in messages if isinstance(m, Route) and isinstance(m.body, Join)]


# Losing


def test_a_death_found_here_is_announced_to_all_and_to_the_dead_peer() -> None:
    stage = Stage((A, B, C, D))
    stage.ring.link_lost(C, 0.0, refused=True)
    stage.sent()
    sent = stage.wait(LAN.verdict_s, living=(A, B, D))
    for peer in (A, B, C, D):
        assert Dead(C, (D, A, B)) in sent[peer]
    assert stage.members == {A, B, D}
    assert stage.ring.active


def test_a_reported_death_is_believed_and_its_replacement_probed() -> None:
    stage = Stage((A, B, C, D))
    stage.wait(1.0, living=(A, B, D))
    new = Peer(Id(1300), "new", 1, 0)
    sent = stage.hear(D, Dead(C, (new, B)))
    assert stage.members == {A, B, D}
    assert kinds(sent[new]) == [Probe]
    assert C not in sent, "the finder tells the accused"


def test_the_death_of_the_counterclockwise_neighbour_is_passed_on() -> None:
    stage = Stage((A, B, C, D))
    notice = Dead(B, (A, ME))
    sent = stage.hear(A, notice)
    assert notice in sent[C]
    assert notice in sent[D]
    stage = Stage((A, B, C, D))
    sent = stage.hear(A, Dead(B, (A, ME, C)))
    assert C not in sent


def test_the_death_of_an_earlier_life_is_no_news() -> None:
    again = Peer(C.id, C.host, 1, 4)
    stage = Stage((A, B, again, D))
    stage.hear(A, Dead(C, (B,)))
    assert again in stage.members


def test_a_reported_death_of_a_peer_just_heard_is_not_believed() -> None:
    stage = Stage((A, B, C, D))
    stage.hear(C, HEARTBEAT)
    stage.hear(A, Dead(C, (B,)))
    assert C in stage.members
    stage.wait(LAN.heartbeat_s + 0.01)
    stage.hear(A, Dead(C, (B,)))
    assert C not in stage.members


def test_a_new_neighbour_that_was_never_heard_is_believed_dead() -> None:
    stage = Stage((A, B, C, D))
    stage.wait(1.0, living=(A, B))
    stage.hear(B, Dead(C, (B,)))
    stage.hear(B, Dead(D, (B,)))
    assert stage.members == {A, B}


def test_a_farewell_needs_no_proof() -> None:
    stage = Stage((A, B, C, D))
    new = Peer(Id(1300), "new", 1, 0)
    sent = stage.hear(C, Leaving((ME, D, new)))
    assert stage.members == {A, B, D}
    assert kinds(sent[new]) == [Probe]
    assert not [m for messages in sent.values() for m in messages if isinstance(m, Dead)]


def test_a_doubt_causes_a_suspicion_and_no_death() -> None:
    stage = Stage((A, B, C, D))
    sent = stage.hear(A, Doubt((C, FAR)))
    assert sent == {C: [PING]}, "a stranger is none of its business"
    stage.hear(C, PONG)
    stage.wait(LAN.fastest_verdict_s, living=(A, B, C, D))
    assert C in stage.members
    stage.hear(A, Doubt((C,)))
    sent = stage.wait(3 * LAN.fastest_verdict_s, living=(A, B, D))
    assert C not in stage.members
    assert [m for messages in sent.values() for m in messages if isinstance(m, Doubt)], "those beside it are told"


def test_a_dead_peer_in_the_leaf_set_of_another_causes_a_doubt_and_a_ping() -> None:
    stage = Stage((A, B, C, D))
    stage.hear(C, Leaving(()))
    sent = stage.hear(D, Probe((C, A)))
    assert sent[D] == [Doubt((C,)), ProbeAck(stage.ring.leaves.peers, False)]
    assert sent[C] == [PING]
    stage.hear(C, ProbeAck((), False))
    assert C in stage.members


def test_a_returned_peer_is_probed_and_searched_through() -> None:
    stage = Stage((A, B, C, D))
    stage.hear(C, Leaving(()))
    sent = stage.hear(C, PONG)
    assert kinds(sent[C]) == [Probe], "it belongs into the leaf set"
    stage = Stage((A, B, C, D))
    stage.hear(FAR, Leaving(()))
    sent = stage.hear(FAR, PONG)
    assert [type(message.body) for message in sent[FAR] if isinstance(message, Route)] == [Seek]


def test_a_restarted_member_gets_its_new_address() -> None:
    stage = Stage((A, B, C, D))
    again = Peer(C.id, "elsewhere", 1, 1)
    stage.hear(again, Probe(()))
    assert stage.ring.leaves.get(C.id) == again
    stage.hear(C, Probe(()))
    assert stage.ring.leaves.get(C.id) == again, "a late word of its earlier life does not count"


def test_a_restarted_member_is_reported() -> None:
    stage = Stage((A, B, C, D))
    told: list[tuple[Peer, ...]] = []
    stage.application.owners_changed = lambda key, owners: told.append(owners)  # type: ignore[method-assign]
    ring = Ring(ME, LAN, stage.application, half=2)
    ring.restore((A, B, C, D), (), 0.0)
    assert ring.watch(C.id, 1) == (C,)
    version = ring.version
    again = Peer(C.id, "elsewhere", 1, 1)
    ring.receive(again, Probe(()), 0.0)
    assert ring.version > version
    assert told == [(again,)]


def test_a_heartbeat_of_a_wrong_neighbour_is_answered_with_a_probe() -> None:
    stage = Stage((A, B, C, D))
    assert stage.hear(C, HEARTBEAT) == {}
    assert kinds(stage.hear(D, HEARTBEAT)[D]) == [Probe]
    assert kinds(stage.hear(FAR, HEARTBEAT)[FAR]) == [Probe]


def test_leaf_sets_are_compared_again_and_again() -> None:
    stage = Stage((A, B, C, D))
    sent = stage.wait(10 * LAN.stabilise_s, living=(A, B, C, D))
    probes = {peer: kinds(messages).count(Probe) for peer, messages in sent.items()}
    assert probes[C] >= 5
    assert all(probes[peer] for peer in (A, B, D))


# Far links


def test_entries_of_the_table_are_probed_in_turn() -> None:
    stage = Stage(half=1)
    stage.ring.restore((B, C), (FAR,), 0.0)
    stage.sent()
    sent = stage.wait(2 * LAN.table_s, living=(B, C))
    assert RowRequest in kinds(sent[FAR])
    assert FAR.id not in stage.ring.table, "it never answered"
    assert stage.members == {B, C}


def test_an_answered_row_fills_the_table() -> None:
    stage = Stage(half=1)
    stage.ring.restore((B, C), (FAR,), 0.0)
    stage.sent()
    other = Peer(Id(3 << 126), "other", 1, 0)
    sent: dict[Peer, list[Message]] = {}
    while RowRequest not in kinds(sent.get(FAR)):
        sent = stage.wait(stage.now + 0.1, living=(B, C))
    stage.hear(FAR, Row(0, (other,)))
    assert other.id in stage.ring.table
    stage.wait(stage.now + LAN.table_s - 0.2, living=(B, C))
    assert FAR.id in stage.ring.table


def test_a_row_is_sent_on_request() -> None:
    stage = Stage(half=1)
    stage.ring.restore((B, C), (FAR,), 0.0)
    stage.sent()
    assert stage.hear(D, RowRequest(0))[D] == [Row(0, (FAR,))]
    assert stage.hear(D, RowRequest(5))[D] == [Row(5, ())]


def test_a_released_gap_serves_the_next() -> None:
    stage = Stage((A, B))
    newcomers = [Peer(Id(1010 + number), "new", 1, 0) for number in range(2)]
    for peer in newcomers:
        stage.hear(peer, Route(peer, 1, peer.id, 0, Join(())))
    sent = stage.hear(newcomers[0], Joined())
    assert kinds(sent[newcomers[1]]) == [Grant]
    assert Ping not in kinds(sent[newcomers[1]])
