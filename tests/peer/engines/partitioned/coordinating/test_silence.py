"""Peers that leave requests unanswered: found soon, not by mistake, and relied upon again after a while."""

from __future__ import annotations

from functools import partial
from math import inf

import pytest

from ringmq.mqtt_front.iteration import StillClock
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timers import TimerQueue
from ringmq.peer.engines.partitioned.coordinating.silence import MOST_BUSY, MOST_SLOWER, TRIES, Silence
from ringmq.peer.engines.partitioned.messages import Alive, Check
from ringmq.peer.messaging.config import LAN
from ringmq.peer.messaging.context import Counters

STEP_S = LAN.silent_s / TRIES / 5


def peer(number: int) -> Peer:
    return Peer(Id(number), "10.0.0.1", 4883, 1)


class State:
    """The part of a context that is used, with another peer that answers or does not."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.config = LAN
        self.counters = Counters()
        self.timers = TimerQueue()
        self.me = peer(1)
        self.answers = True
        self.takes_s = 0.0
        """How long each answer is under way."""
        self.lost = 0
        """Questions that get lost on their way."""
        self.sent: list[object] = []
        self.sought: list[Peer] = []
        self.silences: list[frozenset[Id]] = []
        self.heard = -inf
        """When the other peer sent anything for the last time."""
        self.usual_s = 0.0
        """How long its answers have taken lately."""
        self.silence = Silence(self, self, lambda: self.silences.append(self.silence.silent))  # type: ignore[arg-type]

    def heard_at(self, other: Peer) -> float:
        return self.heard

    def answer_s(self, other: Peer) -> float:
        return self.usual_s

    def send(self, to: Peer, message: object) -> None:
        self.sent.append(message)
        if self.lost:
            self.lost -= 1
        elif self.answers and isinstance(message, Check):
            self.after(self.takes_s, partial(self.silence.alive, to, Alive(message.number)))

    def find_way(self, to: Peer) -> None:
        self.sought.append(to)

    def after(self, delay_s: float, then: object) -> None:
        self.timers.at(self.clock.now + delay_s, lambda _, call: call(), then)

    def run(self, seconds: float, step_s: float = STEP_S) -> None:
        end = self.clock.now + seconds
        while self.clock.now < end:
            self.clock.now += step_s
            self.timers.run(self.clock.now)


OTHER = peer(2)


def test_a_peer_that_answers_is_checked_once_and_never_silent() -> None:
    state = State()
    state.silence.suspect(OTHER)
    state.run(5.0)
    assert len(state.sent) == 1
    assert state.silences == []
    assert not state.silence.watches(OTHER)


def test_a_way_is_sought_to_a_peer_that_leaves_a_request_unanswered() -> None:
    state = State()
    state.silence.suspect(OTHER)
    assert state.sought == [OTHER]


@pytest.mark.parametrize("lost", range(TRIES))
def test_lost_questions_make_nobody_silent(lost: int) -> None:
    state = State()
    state.lost = lost
    state.silence.suspect(OTHER)
    state.run(5.0)
    assert state.silences == []


def test_a_peer_is_silent_after_one_check_and_counted() -> None:
    state = State()
    state.answers = False
    state.silence.suspect(OTHER)
    state.silence.suspect(OTHER)
    state.run(LAN.silent_s + 2 * STEP_S)
    assert state.silences == [{OTHER.id}]
    assert state.counters.silent_peers == 1


def test_a_peer_that_stood_still_itself_asks_again() -> None:
    state = State()
    state.answers = False
    state.silence.suspect(OTHER)
    state.run(3.0, step_s=3.0)
    state.answers = True
    state.run(LAN.silent_s)
    assert state.silences == []


@pytest.mark.parametrize(("share", "silent"), [(0.05, True), (0.2, False)])
def test_a_peer_that_waits_for_its_processor_calls_nobody_silent(share: float, silent: bool) -> None:
    """The other may wait for the same one."""
    state = State()
    state.answers = False
    state.silence.waited_s = lambda: share * state.clock.now
    state.silence.suspect(OTHER)
    state.run(20 * LAN.silent_s)
    assert state.silences == ([{OTHER.id}] if silent else [])
    state.silence.waited_s = lambda: 0.0
    state.run(3 * LAN.silent_s)
    assert state.silences == [{OTHER.id}]


def test_on_a_slow_line_nobody_stays_silent_and_checks_wait_for_answers() -> None:
    """No answer of this peer comes within `silent_s`: it was silent for ever, and others took its partitions."""
    state = State()
    state.takes_s = 2 * LAN.silent_s
    state.silence.suspect(OTHER)
    state.run(3 * LAN.silent_s + LAN.steady_s + 6 * state.takes_s)
    assert state.silences == [{OTHER.id}, set()]
    for _ in range(10):
        state.silence.suspect(OTHER)
        state.run(2 * state.takes_s)
    assert state.counters.silent_peers == 1
    # The line is as before: a peer that dies is found as soon again.
    state.takes_s = 0.0
    state.run(30 * LAN.steady_s)
    state.silence.suspect(OTHER)
    state.run(1.0)
    state.answers = False
    state.silence.suspect(OTHER)
    state.run(LAN.silent_s + 2 * STEP_S)
    assert state.silence.silent == {OTHER.id}


def test_a_peer_that_falls_silent_on_a_slow_line_is_found_soon_all_the_same() -> None:
    """Everybody waits with the check."""
    state = State()
    state.takes_s = 0.4 * LAN.lease_s
    state.silence.suspect(OTHER)
    state.run(2 * LAN.lease_s)
    state.answers = False
    state.silence.follow(lambda known: False)
    state.silence.suspect(OTHER)
    state.run((MOST_SLOWER - 0.5) * LAN.silent_s)
    assert not state.silence.silent
    state.run(0.8 * LAN.silent_s)
    assert state.silence.silent == {OTHER.id}


def test_who_is_back_must_answer_for_a_while_and_longer_each_time() -> None:
    state = State()
    waits = []
    for _ in range(3):
        state.answers = False
        state.silence.suspect(OTHER)
        state.run(1.0)
        assert state.silence.silent == {OTHER.id}
        state.answers = True
        began = state.clock.now
        while state.silence.silent:
            state.run(STEP_S)
        waits.append(state.clock.now - began)
    slack_s = 3 * LAN.silent_s
    for times, wait_s in enumerate(waits):
        assert LAN.steady_s * 2**times <= wait_s <= LAN.steady_s * 2**times + slack_s


def test_a_peer_that_leaves_the_ring_is_forgotten() -> None:
    state = State()
    state.answers = False
    state.silence.suspect(OTHER)
    state.run(1.0)
    state.silence.follow(lambda known: False)
    assert state.silence.silent == frozenset()
    asked = len(state.sent)
    state.run(2.0)
    assert len(state.sent) == asked


def test_checks_are_answered() -> None:
    state = State()
    state.silence.check(OTHER, Check(7))
    assert state.sent == [Alive(7)]


def test_a_peer_that_sends_other_messages_is_busy_for_a_while() -> None:
    state = State()
    state.answers = False
    state.silence.suspect(OTHER)
    for _ in range(5):
        state.heard = state.clock.now + STEP_S
        state.run(LAN.silent_s)
    assert state.silence.silent == frozenset()
    # The line from here to there may be cut.
    for _ in range(2 * MOST_BUSY):
        state.heard = state.clock.now + STEP_S
        state.run(LAN.silent_s)
    assert state.silence.silent == {OTHER.id}


def test_a_peer_whose_answers_have_been_slow_is_waited_for() -> None:
    state = State()
    state.answers = False
    state.usual_s = 4 * LAN.silent_s
    state.silence.suspect(OTHER)
    state.run(3.5 * LAN.silent_s)
    assert state.silence.silent == frozenset()
    state.run(LAN.silent_s)
    assert state.silence.silent == {OTHER.id}


def test_a_peer_that_falls_silent_again_soon_is_waited_for_twice_as_long() -> None:
    state = State()
    for wait_s in (LAN.silent_s, 2 * LAN.silent_s):
        state.answers = False
        state.silence.suspect(OTHER)
        state.run(0.9 * wait_s)
        assert state.silence.silent == frozenset()
        state.run(0.2 * wait_s)
        assert state.silence.silent == {OTHER.id}
        state.answers = True
        state.run(2 * LAN.steady_s + 1.0)
        assert state.silence.silent == frozenset()
