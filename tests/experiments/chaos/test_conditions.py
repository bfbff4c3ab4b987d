"""Which faults the documents exempt a message from, and which crash may repeat it."""

from __future__ import annotations

from ringmq.experiments.chaos.conditions import Conditions, Terms, length, separates, touches
from ringmq.experiments.chaos.history import FaultKind, Injected, MessageKind, SentMessage

MESSAGE = SentMessage(1, "p", 0, "a", 1, False, 10.0, MessageKind.STREAM, 11.0, 0)


def test_a_fault_without_an_end_lasts() -> None:
    fault = Injected(FaultKind.DOWN, 5.0, (1,))
    assert length(fault) == float("inf")
    assert touches(fault, MESSAGE)
    assert Conditions([fault], Terms()).excuses(MESSAGE, 1)
    assert not Conditions([fault], Terms()).excuses(MESSAGE, 2)


def test_a_fault_that_was_over_or_came_later_does_not_touch_a_message() -> None:
    before, after = Injected(FaultKind.DOWN, 1.0, (1,), end=9.9), Injected(FaultKind.DOWN, 11.1, (1,), end=60.0)
    conditions = Conditions([before, after], Terms())
    assert not conditions.excuses(MESSAGE, 1)
    assert conditions.near(MESSAGE) == [before]
    assert conditions.crashed(MESSAGE, 1, until=11.0)
    assert not Conditions([after], Terms()).crashed(MESSAGE, 1, until=11.0)


def test_each_fault_that_begins_meanwhile_begins_a_wait_anew() -> None:
    faults = [Injected(FaultKind.CUT, start, end=start + 1) for start in (5.0, 12.0, 30.0)]
    conditions = Conditions(faults, Terms())
    assert conditions.longest_wait(4.0, 14.0) == 7.0
    assert conditions.longest_wait(13.0, 29.0) == 16.0


def test_what_is_sent_during_an_attack_and_shortly_after_it_is_excused() -> None:
    terms = Terms(settled_s=5.0)
    for end, excused in ((4.9, False), (5.1, True), (None, True)):
        conditions = Conditions([Injected(FaultKind.HOSTILE, 1.0, end=end)], terms)
        assert conditions.excuses(MESSAGE, 1) is excused
        assert conditions.crashed(MESSAGE, 1, 11.0) is excused


def test_a_pause_is_no_crash() -> None:
    assert not Conditions([Injected(FaultKind.PAUSED, 10.0, (1,), end=12.0)], Terms()).crashed(MESSAGE, 1, 12.0)


def test_a_cut_in_one_direction_separates_both_ways() -> None:
    cut = Injected(FaultKind.CUT, 1.0, pairs=((2, 3),))
    assert separates(cut, 3, 2)
    assert not separates(cut, 3, 1)
