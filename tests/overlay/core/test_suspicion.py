"""The table of a suspicion's life by itself, and the failure detector held to it by random histories."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.overlay.core import failure_detector
from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.failure_detector import FailureDetector
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer, PingResult
from ringmq.overlay.core.suspicion import FINAL, TRANSITIONS, Event, State, Suspicion
from ringmq.overlay.core.timing import LAN

ME = Peer(Id(1000), "me", 1, 0)
NEIGHBOURS = [Peer(Id(number), f"h{number}", 1, 0) for number in (900, 1100, 1200, 1300, 1400)]
FAR = Peer(Id(1 << 100), "far", 1, 0)


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


peers = st.sampled_from([*NEIGHBOURS, FAR])
steps = st.one_of(
    st.tuples(st.sampled_from(["suspect", "refused", "heard", "reported", "leaves", "enters"]), peers),
    st.tuples(st.just("result"), st.tuples(peers, peers, st.booleans())),
    st.tuples(st.just("paused"), st.none()),
    st.tuples(st.just("wait"), st.sampled_from([0.05, LAN.probe_s, LAN.verdict_s])),
)


@settings(max_examples=300)
@given(st.lists(steps, max_size=40), st.lists(peers, unique=True))
def test_a_random_history_keeps_to_the_table(history: list, members: list[Peer]) -> None:
    """An unexpected event fails an assertion; suspicions in the table are alive, and all others are over."""
    Recorded.made.clear()
    state = RingContext(ME, LAN, 2)
    state.leaves.fill(members)
    core = FailureDetector(state, lambda peer, source: None, lambda peer, was_dead: None)
    core.watch(state.leaves.successor)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failure_detector, "Suspicion", Recorded)
        for step, subject in history:
            apply(core, state, step, subject)
            alive = list(core.suspects.values())
            assert all(not suspicion.over and suspicion.state is not State.SUSPECTED for suspicion in alive)
            assert all(suspicion in alive or suspicion.over for suspicion in Recorded.made)
            assert all(bool(suspicion.helpers) == (suspicion.state is State.INDIRECT) for suspicion in alive)
    assert all(transition in TRANSITIONS for suspicion in Recorded.made for transition in suspicion.history)


def apply(core: FailureDetector, state: RingContext, step: str, subject: object) -> None:
    if step == "wait":
        assert isinstance(subject, float)
        state.now += subject
        state.timers.run(state.now)
    elif step == "paused":
        core.withdraw_suspicions()
    elif step == "result":
        assert isinstance(subject, tuple)
        helper, suspect, alive = subject
        core.on_ping_result(helper, PingResult(suspect, alive))
    else:
        assert isinstance(subject, Peer)
        if step == "enters":
            if state.leaves.admits(subject.id):
                state.leaves.add(subject)
        elif step == "leaves":
            state.leaves.remove(subject.id)
        else:
            calls = {"suspect": core.suspect, "refused": core.link_refused, "heard": core.heard}
            calls.get(step, core.report_dead)(subject)
