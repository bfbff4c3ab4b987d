"""A message is done when everybody has it, and the publisher is told once what became of it."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.cluster import UNDELIVERED
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.peer.messaging.pending import Countdown, PendingPublication
from ringmq.peer.messaging.publication import Publication, addressed

ONE = Publication(1, 2, 1, "a", b"x", True, 7)


@pytest.mark.parametrize(("matched", "reason"), [(True, Reason.SUCCESS), (False, Reason.NO_MATCHING_SUBSCRIBERS)])
def test_publication_is_done_when_no_receiver_is_missing(matched: bool, reason: Reason) -> None:
    told: list[Reason] = []
    outgoing = PendingPublication(ONE, matched, told.append, 0.0)
    outgoing.missing += 2
    for _ in range(2):
        outgoing.got()
        assert told == []
    outgoing.got()
    assert told == [reason]
    outgoing.got()
    assert told == [reason]


def test_publication_without_a_callback_ends_silently() -> None:
    PendingPublication(ONE, True, None, 0.0).got()


def test_addressed_copy_names_its_subscriptions() -> None:
    copy = addressed(ONE, False, ("$share/g/a",))
    assert (copy.unshared, copy.shared) == (False, ("$share/g/a",))
    assert (copy.seq, copy.body, copy.retain, copy.stamp) == (ONE.seq, ONE.body, ONE.retain, ONE.stamp)
    assert ONE.unshared


def test_a_countdown_calls_once_and_says_whether_each_step_was_well() -> None:
    for well in (True, False):
        calls: list[bool] = []
        countdown = Countdown(2, calls.append)
        countdown.down(well)
        assert calls == []
        countdown.down()
        assert calls == [well]


def test_a_publication_that_a_receiver_never_got_fails_once() -> None:
    reasons: list[Reason] = []
    pending = PendingPublication(ONE, True, reasons.append, 0.0)
    pending.expect(2)
    pending.got()
    pending.settled(False)
    assert reasons == [UNDELIVERED]
    pending.settled(True)
    assert reasons == [UNDELIVERED]
