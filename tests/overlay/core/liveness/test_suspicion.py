"""The table of a suspicion's life by itself, and the failure detector held to it by random histories."""

from __future__ import annotations

from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.liveness import failure_detector
from ringmq.overlay.core.liveness.failure_detector import FailureDetector
from ringmq.overlay.core.liveness.suspicion import FINAL, TRANSITIONS, Event, State, Suspicion
from ringmq.overlay.core.messages import Peer, PingResult
from ringmq.overlay.core.timing import LAN

ME = Peer(Id(1000), "me", 1, 0)
NEIGHBOURS = [Peer(Id(number), f"h{number}", 1, 0) for number in (900, 1100, 1200, 1300, 1400)]
FAR = Peer(Id(1 << 100), "far", 1, 0)
HISTORIES, STEPS = 400, 60


def test_every_state_is_reachable() -> None:
    reached = {State.SUSPECTED}
    for _ in State:
        reached |= {after for (before, _), after in TRANSITIONS.items() if before in reached}
    assert reached == set(State)


def test_no_transition_leaves_a_final_state() -> None:
    assert {before for before, _ in TRANSITIONS} == set(State) - FINAL


def test_every_state_that_lasts_ends_by_each_end() -> None:
    for state in (State.DIRECT, State.INDIRECT, State.UNAIDED):
        for event in (Event.HEARD, Event.CONDEMNED, Event.REPORTED, Event.PAUSED):
            assert TRANSITIONS[state, event] in FINAL


@given(st.lists(st.sampled_from(Event)))
def test_a_suspicion_moves_by_the_table_and_refuses_all_else(events: list[Event]) -> None:
    suspicion = Suspicion(ME, hearsay=False)
    for event in events:
        before = suspicion.state
        if (before, event) in TRANSITIONS:
            suspicion.to(event)
            assert suspicion.state is TRANSITIONS[before, event]
        else:
            with pytest.raises(AssertionError):
                suspicion.to(event)
            assert suspicion.state is before
        assert suspicion.over == (suspicion.state in FINAL)


class Recorded(Suspicion):
    """A suspicion that records its transitions."""

    __slots__ = ("history",)
    made: ClassVar[list[Recorded]] = []

    def __init__(self, peer: Peer, *, hearsay: bool) -> None:
        super().__init__(peer, hearsay=hearsay)
        self.history: list[tuple[State, Event]] = []
        self.made.append(self)

    def to(self, event: Event) -> None:
        self.history.append((self.state, event))
        super().to(event)


def test_random_histories_take_every_transition_of_the_table_and_no_other() -> None:
    """An unexpected event fails an assertion; open suspicions are in the detector's table, and all others are over."""
    taken: set[tuple[State, Event]] = set()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failure_detector, "Suspicion", Recorded)
        for seed in range(HISTORIES):
            Recorded.made.clear()
            random = Random(seed)
            state = RingContext(ME, LAN, 2)
            state.leaves.fill(random.sample([*NEIGHBOURS, FAR], random.randrange(7)))
            core = FailureDetector(state, lambda peer, source: None, lambda peer, was_dead: None)
            core.watch(state.leaves.successor)
            for _ in range(STEPS):
                step(core, state, random)
                alive = list(core.suspects.values())
                assert all(not suspicion.over and suspicion.state is not State.SUSPECTED for suspicion in alive)
                assert all(suspicion in alive or suspicion.over for suspicion in Recorded.made)
                assert all(bool(suspicion.helpers) == (suspicion.state is State.INDIRECT) for suspicion in alive)
            taken.update(transition for suspicion in Recorded.made for transition in suspicion.history)
    assert taken == set(TRANSITIONS)


def step(core: FailureDetector, state: RingContext, random: Random) -> None:
    peer, helper = random.choices([*NEIGHBOURS, FAR], k=2)
    choice = random.randrange(20)
    if choice < 8:
        state.now += random.choice([0.05, LAN.probe_s, LAN.verdict_s])
        state.timers.run(state.now)
    elif choice < 12:
        core.suspect(peer)
    elif choice < 15:
        random.choice([core.link_refused, core.heard, core.report_dead])(peer)
    elif choice < 16:
        core.on_ping_result(helper, PingResult(peer, random.random() < 0.3))
    elif choice < 17:
        core.withdraw_suspicions()
    elif peer.id in state.leaves:
        state.leaves.remove(peer.id)
    elif state.leaves.admits(peer.id):
        state.leaves.add(peer)
