"""The checker: each promise is broken by a small history and found, and the same history without the break is clean."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ringmq.experiments.chaos import promises
from ringmq.experiments.chaos.checker import Checker, Violation, counted
from ringmq.experiments.chaos.conditions import Terms
from ringmq.experiments.chaos.history import (
    Attachment,
    Entry,
    FaultKind,
    GotMessage,
    History,
    Incident,
    Injected,
    MessageKind,
    RetainedCopy,
    SentMessage,
)
from ringmq.experiments.chaos.promises import Promise

UNTIL = 100.0
ENTRY = Entry("s", 1, "a/#", 2, True, 1.0, 2.0, 2)
MESSAGE = SentMessage(1, "p", 0, "a/b", 1, False, 10.0, MessageKind.STREAM, 10.5, 0)
GOT = GotMessage("s", 1, "a/b", 10.2, 1, False, False)


def history(
    *messages: SentMessage,
    got: tuple[GotMessage, ...] = (),
    entries: tuple[Entry, ...] = (ENTRY,),
    faults: tuple[Injected, ...] = (),
) -> History:
    numbered = {message.number: message for message in messages}
    return History(numbered, list(got), list(entries), faults=list(faults), until=UNTIL)


def found(past: History, terms: Terms | None = None) -> list[Violation]:
    return Checker(past, terms or Terms()).violations()


def names(past: History, terms: Terms | None = None) -> list[str]:
    return [violation.promise.name for violation in found(past, terms)]


def fault(kind: FaultKind, start: float, end: float | None, *peers: int, **more: object) -> Injected:
    return Injected(kind, start, peers, end=end, **more)  # type: ignore[arg-type]


def cut(start: float, end: float, *pairs: tuple[int, int]) -> Injected:
    return Injected(FaultKind.CUT, start, (), pairs, "cut", end)


# Losses


def test_a_delivered_message_is_no_violation() -> None:
    assert found(history(MESSAGE, got=(GOT,))) == []


@pytest.mark.parametrize(
    ("faults", "promise"),
    [
        ((), promises.KEPT),
        ((fault(FaultKind.DOWN, 9, 11, 2),), promises.DEATH),
        ((fault(FaultKind.DOWN, 9, 11, 1),), promises.RESTART),
        ((fault(FaultKind.PAUSED, 9, 11, 2),), promises.PAUSE),
        ((fault(FaultKind.POWER, 9, 11, 0, 1, 2),), promises.POWER),
        ((cut(9, 14, (0, 1)),), promises.CUT),
        ((cut(9, 30, (0, 2)),), promises.PART),
    ],
)
def test_a_lost_acknowledged_message_breaks_the_promise_for_the_fault(
    faults: tuple[Injected, ...], promise: Promise
) -> None:
    (violation,) = found(history(MESSAGE, faults=faults))
    assert (violation.promise, violation.number, violation.at) == (promise, 1, 10.0)
    assert "kept session s at peer 1" in violation.text


@pytest.mark.parametrize("source", [MessageKind.PROBE, MessageKind.STREAM])
def test_a_live_client_must_get_messages_too(source: MessageKind) -> None:
    live = replace(ENTRY, kept=False)
    expected = {MessageKind.PROBE: "subscribed", MessageKind.STREAM: "acknowledged"}
    assert names(history(replace(MESSAGE, source=source), entries=(live,))) == [expected[source]]


@pytest.mark.parametrize(
    "change",
    [
        lambda message, entry: (replace(message, qos=0, acknowledged_at=None), entry),
        lambda message, entry: (replace(message, acknowledged_at=None, abandoned=True), entry),
        lambda message, entry: (replace(message, reason=0x97), entry),
        lambda message, entry: (replace(message, topic="c"), entry),
        lambda message, entry: (message, replace(entry, qos=0)),
        lambda message, entry: (message, replace(entry, granted_at=10.0)),
        lambda message, entry: (message, replace(entry, granted_at=None, ended_at=3.0)),
        lambda message, entry: (message, replace(entry, reason=0x80)),
        lambda message, entry: (message, replace(entry, ended_at=20.4)),
    ],
)
def test_what_nobody_promises_is_no_loss(
    change: Callable[[SentMessage, Entry], tuple[SentMessage, Entry]],
) -> None:
    message, entry = change(MESSAGE, ENTRY)
    assert found(history(message, entries=(entry,))) == []


def test_a_subscription_that_ended_well_after_the_acknowledgement_counts() -> None:
    assert names(history(MESSAGE, entries=(replace(ENTRY, ended_at=20.6),))) == ["kept"]


@pytest.mark.parametrize(
    ("long", "excused"),
    [
        (fault(FaultKind.DOWN, 9, 22, 1), True),
        (fault(FaultKind.DOWN, 9, 20, 1), False),
        (fault(FaultKind.DOWN, 9, 22, 2), False),
        (cut(9, 40, (0, 1)), False),
        (cut(0, 40, (1, 0)), False),
        (cut(-4, 40, (1, 0)), True),
        (cut(-4, 40, (2, 1)), False),
        (cut(-12, 5.1, (0, 1)), True),
        (cut(-12, 4.9, (0, 1)), False),
        (cut(9, 15, (0, 1)), False),
    ],
)
def test_only_what_the_documents_exempt_is_excused(long: Injected, excused: bool) -> None:
    entries = (replace(ENTRY, asked_at=-9.0, granted_at=-8.0),)
    assert (found(history(MESSAGE, entries=entries, faults=(long,))) == []) is excused


@pytest.mark.parametrize(
    ("granted_at", "acknowledged_at", "pair", "excused"),
    [
        (9.5, 10.5, (0, 1), True),
        (8.5, 10.5, (0, 1), False),
        (9.5, 18.9, (0, 1), True),
        (9.5, 19.1, (0, 1), False),
        (9.5, 10.5, (0, 2), False),
    ],
)
def test_a_part_does_not_know_what_was_subscribed_in_another_part_meanwhile(
    granted_at: float, acknowledged_at: float, pair: tuple[int, int], excused: bool
) -> None:
    message = replace(MESSAGE, acknowledged_at=acknowledged_at)
    past = history(message, entries=(replace(ENTRY, granted_at=granted_at),), faults=(cut(9, 14, pair),))
    assert (found(past) == []) is excused


def test_a_part_does_not_know_what_was_subscribed_in_another_part_before_both_have_met() -> None:
    past = history(MESSAGE, entries=(replace(ENTRY, granted_at=9.5),), faults=(cut(7, 9, (0, 1)),))
    assert found(past) == []


def test_a_replay_of_a_retained_message_is_not_its_delivery() -> None:
    assert names(history(MESSAGE, got=(replace(GOT, retain=True),))) == ["kept"]


def test_a_lost_will_is_found_and_a_discarded_one_must_not_come() -> None:
    will = replace(MESSAGE, source=MessageKind.WILL, acknowledged_at=None, reason=None)
    assert names(history(will)) == ["will"]
    assert found(history(will, got=(GOT,))) == []
    discarded = replace(will, wanted=False)
    assert found(history(discarded)) == []
    assert names(history(discarded, got=(GOT,))) == ["good-bye"]
    for start, heard in ((10.9, []), (11.1, ["good-bye"])):
        faults = (fault(FaultKind.POWER, start, 13, 0, 1),)
        assert names(history(discarded, got=(GOT,), faults=faults)) == heard
    for long, lost in ((cut(9, 40, (0, 1)), []), (cut(9, 14, (0, 1)), ["will"]), (cut(16, 40, (0, 1)), ["will"])):
        assert names(history(will, faults=(long,))) == lost


# Repetitions and order


@pytest.mark.parametrize(("qos", "expected"), [(0, ["qos-0-once"]), (1, []), (2, ["once"])])
def test_repetitions_are_found_by_their_qos(qos: int, expected: list[str]) -> None:
    message = replace(MESSAGE, qos=qos)
    assert names(history(message, got=(replace(GOT, qos=qos),) * 2)) == expected


@pytest.mark.parametrize(
    ("resent", "faults", "excused"),
    [
        (True, (), True),
        (False, (fault(FaultKind.DOWN, 10, 12, 1),), True),
        (False, (fault(FaultKind.DOWN, 10, 12, 0),), True),
        (False, (fault(FaultKind.DOWN, 10, 12, 2),), False),
        (False, (fault(FaultKind.PAUSED, 10, 12, 1),), False),
        (False, (cut(10, 12, (0, 1)),), False),
    ],
)
def test_qos_2_may_be_repeated_only_after_a_crash_or_a_second_publish(
    resent: bool, faults: tuple[Injected, ...], excused: bool
) -> None:
    message = replace(MESSAGE, qos=2, resent=resent)
    past = history(message, got=(replace(GOT, qos=2),) * 2, faults=faults)
    assert (found(past) == []) is excused


def test_a_repetition_with_qos_0_is_never_excused() -> None:
    message = replace(MESSAGE, qos=0, resent=True)
    faults = (fault(FaultKind.DOWN, 10, 12, 1),)
    assert names(history(message, got=(replace(GOT, qos=0),) * 2, faults=faults)) == ["qos-0-once"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ["order"]),
        ({"topic": "a/c"}, []),
        ({"client": "q"}, []),
        ({"qos": 2}, []),
        ({"resent": True}, []),
    ],
)
def test_disorder_is_found_for_each_publisher_topic_and_qos(change: dict[str, object], expected: list[str]) -> None:
    first = replace(MESSAGE, **change)  # type: ignore[arg-type]
    second = replace(MESSAGE, number=2, at=11.0, acknowledged_at=11.5)
    late = replace(GOT, topic=first.topic, at=12.0)
    assert names(history(first, second, got=(replace(GOT, number=2), late))) == expected


def test_a_repetition_is_no_disorder() -> None:
    second = replace(MESSAGE, number=2, at=11.0)
    assert found(history(MESSAGE, second, got=(GOT, replace(GOT, number=2), GOT))) == []


# Strays and groups


def test_a_message_to_a_client_that_did_not_subscribe_is_found() -> None:
    other = replace(ENTRY, client="t", filter="c")
    assert names(history(MESSAGE, got=(GOT, replace(GOT, client="t")), entries=(ENTRY, other))) == ["match"]


def test_a_message_on_another_topic_is_found() -> None:
    assert names(history(MESSAGE, got=(replace(GOT, topic="a/c"),))) == ["match"]


GROUP = tuple(Entry(client, peer, "$share/g/a/#", 1, True, 1.0, 2.0, 1) for client, peer in (("s", 1), ("t", 2)))


def test_one_member_of_a_group_gets_a_message() -> None:
    assert found(history(MESSAGE, got=(GOT,), entries=GROUP)) == []
    assert names(history(MESSAGE, entries=GROUP)) == ["shared"]
    assert names(history(MESSAGE, got=(GOT, replace(GOT, client="t")), entries=GROUP)) == ["shared"]


@pytest.mark.parametrize(("pair", "expected"), [((0, 2), []), ((0, 3), ["order"])])
def test_a_message_that_another_member_of_a_group_was_to_get_may_come_late(
    pair: tuple[int, int], expected: list[str]
) -> None:
    waited = replace(MESSAGE, acknowledged_at=25.0)
    second = replace(MESSAGE, number=2, at=11.0, acknowledged_at=11.5)
    got = (replace(GOT, number=2), replace(GOT, at=24.9))
    past = history(waited, second, got=got, entries=GROUP, faults=(cut(9, 40, pair),))
    assert [violation.promise.name for violation in found(past) if violation.promise.name == "order"] == expected


@pytest.mark.parametrize(
    ("faults", "excused"),
    [
        ((fault(FaultKind.DOWN, 10, 12, 1),), True),
        ((fault(FaultKind.DOWN, 10, 12, 3),), False),
        ((cut(0, 40, (0, 1)),), False),
        ((cut(-10, 40, (0, 1)),), True),
    ],
)
def test_two_members_may_get_a_message_only_if_the_first_was_given_up(
    faults: tuple[Injected, ...], excused: bool
) -> None:
    past = history(MESSAGE, got=(GOT, replace(GOT, client="t")), entries=GROUP, faults=faults)
    assert (found(past) == []) is excused


def test_a_group_without_a_member_to_rely_on_may_miss_a_message() -> None:
    away = (fault(FaultKind.DOWN, 0, 50, 1, 2),)
    assert found(history(MESSAGE, entries=GROUP, faults=away)) == []


# Answers, sessions, retained messages, incidents


def test_late_and_missing_answers_are_found() -> None:
    terms = Terms(puback_s=5.0, suback_s=5.0)
    late = replace(MESSAGE, acknowledged_at=15.1)
    assert names(history(late, got=(GOT,)), terms) == ["puback"]
    assert names(history(replace(MESSAGE, acknowledged_at=None)), terms) == ["puback"]
    assert names(history(replace(MESSAGE, acknowledged_at=None, abandoned=True)), terms) == []
    assert names(history(replace(late, resent=True), got=(GOT,)), terms) == []
    assert names(history(entries=(replace(ENTRY, granted_at=6.1),)), terms) == ["suback"]
    assert names(history(entries=(replace(ENTRY, granted_at=None, reason=None),)), terms) == ["suback"]
    assert names(history(entries=(replace(ENTRY, granted_at=None, reason=None, ended_at=9.0),)), terms) == []


def test_a_session_that_is_gone_is_found() -> None:
    past = history()
    past.attachments += [Attachment("s", 1, True, 1.0, False, False, 5.0), Attachment("s", 1, True, 6.0, True, True)]
    assert found(past) == []
    past.attachments.append(Attachment("s", 1, True, 9.0, False, True))
    assert names(past) == ["session"]


SET = replace(MESSAGE, topic="r", retain=True, source=MessageKind.RETAINED)
CLEARING = replace(SET, number=2, at=20.0, acknowledged_at=20.5, source=MessageKind.CLEARING)


@pytest.mark.parametrize(
    ("messages", "copies", "expected"),
    [
        ((SET,), (1, 1), []),
        ((SET,), (1, 0), ["agree"]),
        ((SET,), (0, 0), ["retained"]),
        ((SET, CLEARING), (0, 0), []),
        ((SET, CLEARING), (1, 1), ["cleared"]),
        ((SET, replace(CLEARING, acknowledged_at=None)), (1, 1), []),
        ((SET, replace(CLEARING, acknowledged_at=None)), (0, 0), []),
        ((SET, replace(SET, number=2, at=20.0, acknowledged_at=20.5)), (1, 1), ["retained"]),
        ((replace(SET, acknowledged_at=None),), (0, 0), []),
    ],
)
def test_retained_copies_agree_and_are_the_last_acknowledged(
    messages: tuple[SentMessage, ...], copies: tuple[int, ...], expected: list[str]
) -> None:
    past = history(*(replace(message, abandoned=True) for message in messages), entries=())
    past.retained += [RetainedCopy(peer, "r", number) for peer, number in enumerate(copies)]
    assert names(past) == expected


def test_incidents_are_violations_of_their_promise() -> None:
    past = history()
    past.incidents.append(Incident(5.0, "peer 3 has ended", promises.ALIVE.name))
    (violation,) = found(past)
    assert violation.line(2.0) == "alive at 3.000 s: peer 3 has ended"
    assert counted([violation, violation]) == {"alive": 2}
