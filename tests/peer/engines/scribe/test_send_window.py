"""Envelopes that must be reported as reached."""

from __future__ import annotations

import pytest

from ringmq.peer.engines.scribe.messages import Arrived, Reached
from ringmq.peer.engines.scribe.send_window import Carrier, Parcel
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.messages import Held
from ringmq.peer.messaging.publication import Publication, encode_control
from tests.peer.engines.scribe.alone import Lone, peer_at

CHILD, OTHER = peer_at(11), peer_at(12)


@pytest.fixture
def carrier(lone: Lone) -> Carrier:
    return lone.core.carrier


def packed(lone: Lone, qos: int = 1, place: str = "a") -> Parcel:
    return lone.core.carrier.pack(place, lone.me, False, Publication(0, 1, qos, "a", b"x"))


def holds(lone: Lone, upto: int) -> None:
    lone.core.receive(CHILD, encode_control(Held(0, upto, ())))


def test_qos_0_is_sent_once_and_not_awaited(lone: Lone, carrier: Carrier) -> None:
    carrier.send_once([CHILD, OTHER], packed(lone, 0))
    assert [peer for peer, _ in lone.told(Publication)] == [CHILD, OTHER]
    assert len(carrier) == 0
    lone.takes = False
    carrier.send_once([CHILD], packed(lone, 0))
    assert lone.core.counters.dropped == 1


def test_what_is_reached_is_told_once(lone: Lone, carrier: Carrier) -> None:
    told: list[bool] = []
    parcel = packed(lone)
    carrier.send(CHILD, parcel, told.append)
    assert len(lone.told(Publication)) == 1
    report = Reached(0, (Arrived(parcel.envelope.seq, True),))
    lone.hears(OTHER, report)
    lone.hears(CHILD, Reached(1, report.items))
    assert told == [], "another peer, and another life of this one"
    holds(lone, 1)
    lone.hears(CHILD, report, report)
    assert told == [True]
    assert len(carrier) == 0
    assert lone.core._state.waiting_bytes == 0


def test_what_is_held_but_not_reached_is_sent_again(lone: Lone, carrier: Carrier) -> None:
    told: list[bool] = []
    carrier.send(CHILD, packed(lone), told.append)
    holds(lone, 1)
    lone.wait(1.9)
    assert len(lone.told(Publication)) == 1
    lone.wait(1.0)
    (_, again), *_ = lone.told(Publication)
    assert (again.seq, again.number) == (1, 2), "the same envelope, as another message of the outlet"
    assert lone.core.counters.overdue == 1
    assert lone.core._state.waiting_bytes > 0


def test_what_is_dropped_counts_as_reached_by_nobody(lone: Lone, carrier: Carrier) -> None:
    told: list[tuple[str, bool]] = []
    for place in ("a", "b"):
        carrier.send(CHILD, packed(lone, 1, place), lambda matched, place=place: told.append((place, matched)))  # type: ignore[misc]
    carrier.drop(CHILD.id, "a")
    assert told == [("a", False)]
    assert len(carrier.send_windows) == 1, "the other one is still on its way"
    carrier.withdraw(CHILD.id, "b")
    assert told == [("a", False)], "nobody is told"
    assert len(carrier.send_windows) == 0
    assert lone.core._state.waiting_bytes == 0


def test_the_bytes_are_counted_until_it_is_reached() -> None:
    lone = Lone(PubSubConfig())
    carrier, state = lone.core.carrier, lone.core._state
    parcel = packed(lone)
    carrier.send(CHILD, parcel, lambda matched: None)
    assert state.waiting_bytes == len(parcel.tail)
    holds(lone, 1)
    assert state.waiting_bytes == len(parcel.tail)
    lone.hears(CHILD, Reached(0, (Arrived(parcel.envelope.seq, False),)))
    assert state.waiting_bytes == 0
