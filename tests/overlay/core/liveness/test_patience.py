"""Patience: a peer that is late doubts itself first, and others wait for a peer that says that it is late."""

from __future__ import annotations

import pytest

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.liveness.detours import PONG
from ringmq.overlay.core.liveness.failure_detector import FailureDetector
from ringmq.overlay.core.liveness.patience import FACTOR, GRANTED_S, GROWTH, LEAST_LATE_S, WINDOW_S, Patience
from ringmq.overlay.core.messages import MAX_LATE_MS, Late, Peer
from ringmq.overlay.core.ring import Ring
from ringmq.overlay.core.timing import LAN
from tests.overlay.core.test_membership import Quiet

ME = Peer(Id(1000), "me", 1, 0)
LEFT, NEXT, THIRD = (Peer(Id(peer_id), f"h{peer_id}", 1, 0) for peer_id in (900, 1100, 1200))
STRANGER = Peer(Id(1 << 100), "far", 1, 0)
LATE_S = 0.4


class LatePeer:
    """The patience of a peer among three others."""

    def __init__(self) -> None:
        self.state = RingContext(ME, LAN, 2)
        self.state.leaves.fill((LEFT, NEXT, THIRD))
        self.patience = Patience(self.state)

    def said(self) -> dict[Peer, int]:
        outbox, self.state.outbox = self.state.outbox, []
        return {peer: message.more_ms for peer, message in outbox if isinstance(message, Late)}


def test_a_peer_in_time_waits_no_longer_and_says_nothing() -> None:
    late = LatePeer()
    for _ in range(10):
        late.state.now += 0.5
        late.patience.ran(LEAST_LATE_S)
        late.patience.remind()
    assert late.patience.own_s == 0.0
    assert late.patience.of(NEXT.id) == 0.0
    assert late.said() == {}


def test_a_late_timer_lengthens_all_waits_for_a_while_and_the_leaf_set_is_told() -> None:
    late = LatePeer()
    late.patience.ran(LATE_S)
    assert late.patience.own_s == pytest.approx(FACTOR * LATE_S)
    assert late.patience.of(NEXT.id) == late.patience.own_s
    assert late.said() == dict.fromkeys((LEFT, NEXT, THIRD), round(1000 * FACTOR * LATE_S))
    assert late.patience.assured_s == pytest.approx(FACTOR * LATE_S)
    late.state.now = 2 * WINDOW_S + 0.01
    late.patience.ran(0.0)
    assert late.patience.own_s == 0.0


def test_patience_has_a_bound() -> None:
    late = LatePeer()
    late.patience.ran(1000.0)
    assert late.patience.own_s == LAN.most_late_s
    late.patience.on_late(NEXT, Late(MAX_LATE_MS))
    late.state.now = 3 * WINDOW_S
    late.patience.on_late(NEXT, Late(MAX_LATE_MS))
    assert late.patience.own_s == 0.0
    assert late.patience.of(NEXT.id) == LAN.most_late_s, "nobody can ask for more"


def test_what_grows_is_said_at_once_and_what_lasts_before_it_ends() -> None:
    late = LatePeer()
    late.patience.ran(LATE_S)
    late.said()
    late.patience.ran(GROWTH * LATE_S - 0.01)
    assert late.said() == {}, "not for every late timer"
    late.patience.ran(GROWTH * LATE_S + 0.01)
    assert late.said()
    late.state.now = GRANTED_S / 2 - 0.01
    late.patience.ran(LATE_S)
    late.patience.remind()
    assert late.said() == {}
    late.state.now = GRANTED_S / 2
    late.patience.remind()
    assert late.said()


def test_what_was_granted_ends_and_counts_for_members_alone() -> None:
    late = LatePeer()
    late.patience.on_late(NEXT, Late(1500))
    late.patience.on_late(STRANGER, Late(1500))
    assert late.patience.of(NEXT.id) == 1.5
    assert late.patience.of(LEFT.id) == 0.0
    assert late.patience.of(STRANGER.id) == 0.0
    late.state.now = GRANTED_S
    assert late.patience.of(NEXT.id) == 0.0
    late.patience.on_late(NEXT, Late(1500))
    late.patience.left(NEXT.id)
    assert late.patience.of(NEXT.id) == 0.0


def test_a_peer_that_enters_the_leaf_set_is_told_too() -> None:
    late = LatePeer()
    late.patience.met(STRANGER)
    assert late.said() == {}
    late.patience.ran(LATE_S)
    late.said()
    late.patience.met(STRANGER)
    assert late.said() == {STRANGER: round(1000 * FACTOR * LATE_S)}


# In a failure detector


class Watcher:
    """A failure detector with three members."""

    def __init__(self) -> None:
        self.state = RingContext(ME, LAN, 2)
        self.state.leaves.fill((LEFT, NEXT, THIRD))
        self.died: list[Peer] = []
        self.core = FailureDetector(self.state, lambda peer, source: self.died.append(peer), lambda peer, dead: None)
        self.core.watch(self.state.leaves.successor)

    def at(self, now: float) -> None:
        timers = self.state.timers
        while timers.next_at <= now:
            self.state.now = timers.next_at
            timers.run(self.state.now)
        self.state.now = now


@pytest.mark.parametrize("more_s", [0.0, 2.0])
def test_a_suspect_that_is_late_is_waited_for_longer(more_s: float) -> None:
    watcher = Watcher()
    if more_s:
        watcher.core.patience.on_late(NEXT, Late(round(1000 * more_s)))
    watcher.core.suspect(NEXT)
    watcher.at(LAN.fastest_verdict_s + more_s - 0.01)
    assert NEXT not in watcher.died
    watcher.at(LAN.fastest_verdict_s + more_s + 0.01)
    assert NEXT in watcher.died


def test_a_peer_that_becomes_late_while_it_waits_for_a_suspect_waits_longer() -> None:
    watcher = Watcher()
    watcher.core.suspect(NEXT)
    watcher.at(LAN.fastest_verdict_s - 0.1)
    watcher.core.patience.ran(LATE_S)
    watcher.at(LAN.fastest_verdict_s + FACTOR * LATE_S - 0.01)
    assert NEXT not in watcher.died
    watcher.core.heard(NEXT)
    watcher.at(20.0)
    assert NEXT not in watcher.died


def test_a_late_watcher_does_not_suspect_its_neighbour_yet() -> None:
    watcher = Watcher()
    watcher.core.start()
    watcher.core.patience.ran(LATE_S)
    watcher.at(LAN.silence_s + LAN.heartbeat_s + 0.01)
    assert not watcher.core.suspects
    watcher.at(LAN.silence_s + FACTOR * LATE_S + LAN.heartbeat_s + 0.01)
    assert set(watcher.core.suspects) == {NEXT.id}


# In a ring


def member() -> tuple[Ring, Quiet]:
    application = Quiet()
    ring = Ring(ME, LAN, application, half=2)
    ring.restore((LEFT, NEXT, THIRD), (), 0.0)
    return ring, application


def test_a_pause_that_the_others_were_told_of_changes_nothing() -> None:
    ring, _ = member()
    ring.tick(0.0)
    # Its timer is due at the first heartbeat.
    ring.tick(ring.deadline() + LATE_S)
    assert any(isinstance(message, Late) for _, message in ring.take_outbox())
    at = ring.deadline() + LAN.fence_s
    ring.tick(at)
    assert ring.active, "others wait for it for longer than this"
    ring.tick(at + LAN.fence_s + LAN.most_late_s + 0.01)
    assert not ring.active


def test_a_pause_is_no_excuse_once_the_word_has_expired() -> None:
    ring, _ = member()
    ring.tick(0.0)
    now = ring.deadline() + LATE_S
    end = now + 2 * WINDOW_S + GRANTED_S
    while now < end:
        ring.tick(now)
        for peer in (LEFT, NEXT, THIRD):
            ring.receive(peer, PONG, now)
        now = ring.deadline()
    ring.tick(now + LAN.fence_s)
    assert not ring.active


def test_the_ring_hears_who_is_late() -> None:
    ring, _ = member()
    ring.receive(NEXT, Late(700), 0.0)
    assert ring.failure_detector.patience.of(NEXT.id) == 0.7
