"""One place: what becomes of leases when a coordinator begins and ends."""

from __future__ import annotations

from math import inf

import pytest

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import Id, key_of
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Kind, Record, Reign
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.config import LAN
from ringmq.peer.replication.replica import NOTHING, Holding, Role, Waiter, lease_s

ME, OTHER = Id(1), Peer(Id(2), "h", 1, 0)
ENTRY = Record(Kind.ENTRY, "a", OTHER, (0, 1), False)
PUBLISHER = Record(Kind.PUBLISHER, "", OTHER, (1, 0), False)


def test_a_shadow_lets_nothing_expire() -> None:
    holding = Holding("a", ME)
    assert holding.key == key_of("a")
    assert holding.take(ENTRY, 5.0, LAN)
    assert not holding.take(ENTRY, 6.0, LAN)
    assert not holding.coordinates
    assert not holding.expires


def test_all_leases_begin_anew_with_a_reign() -> None:
    holding = Holding("a", ME)
    for record in (ENTRY, PUBLISHER, Record(Kind.NOTE, "a/b", None, (1, 0), False)):
        holding.take(record, 0.0, LAN)
    holding.begin(Reign(1, ME), 100.0, LAN)
    assert holding.expires[ENTRY.key] == 100.0 + LAN.entry_s
    assert holding.expires[Kind.NOTE, "a/b", 0] == 100.0 + LAN.note_s == 100.0 + lease_s(Kind.NOTE, LAN)
    assert holding.publishers[OTHER.id].until == 100.0 + LAN.void_s
    assert PUBLISHER.key not in holding.expires
    holding.end()
    assert holding.role is Role.HOLDER
    assert not holding.publishers
    assert len(holding.book) == 3, "what it holds it still holds"


def test_a_coordinator_follows_who_publishes() -> None:
    holding = Holding("a", ME)
    holding.begin(Reign(1, ME), 0.0, LAN)
    holding.take(PUBLISHER, 1.0, LAN)
    assert holding.publishers[OTHER.id].until < inf
    holding.take(Record(Kind.PUBLISHER, "", OTHER, (2, 0), True), 2.0, LAN)
    assert not holding.publishers


def test_what_is_gone_is_remembered_for_a_while() -> None:
    holding = Holding("a", ME)
    holding.take(ENTRY, 0.0, LAN)
    assert holding.present()
    holding.take(Record(Kind.ENTRY, "a", OTHER, (0, 2), True), 10.0, LAN)
    assert not holding.present()
    holding.forget_gone(10.0)
    assert len(holding.book) == 1
    holding.forget_gone(10.1)
    assert len(holding.book) == 0


def retained(stamp: int, expiry_s: int | None = None) -> Record:
    body = encode_body(Message("a", b"x", expires_at=expiry_s), 0.0)
    return Record(Kind.RETAINED, "a", None, (stamp, 0), False, body=body)


def test_what_is_retained_is_told_with_what_remains_of_its_time() -> None:
    holding = Holding("a", ME)
    holding.take(retained(1, 100), 10.0, LAN)
    holding.take(ENTRY, 10.0, LAN)
    assert holding.ends_at == 110.0
    assert holding.told(holding.book, 40.0) == (retained(1, 70), ENTRY)
    assert holding.retained(109.0) == retained(1, 1)
    assert holding.retained(110.0) == retained(1).ended(), "nobody need be quick to drop it"
    holding.take(retained(2), 50.0, LAN)
    assert holding.ends_at == inf
    assert holding.retained(1000.0) == retained(2)
    holding.take(retained(3, 5), 60.0, LAN)
    holding.take(retained(3).ended(), 65.0, LAN)
    assert holding.ends_at == inf
    assert Holding("b", ME).retained(0.0) is None


def test_the_end_wins_over_what_has_ended() -> None:
    record = retained(4, 1)
    assert record.ended().gone
    assert record.ended().rank() > record.rank()
    assert ENTRY.ended().number == ENTRY.number, "entries are the subscribers' to number"


def test_a_copy_goes_on_with_the_time_it_had() -> None:
    holding = Holding("a", ME)
    holding.take(retained(1, 100), 0.0, LAN)
    mine = next(iter(holding.book))
    assert holding.become([mine, ENTRY], 7, 50.0) == [ENTRY]
    assert holding.ends_at == 100.0
    assert holding.become([retained(2, 100)], 8, 50.0) == [retained(2, 100)]
    assert holding.ends_at == 150.0
    gone = Record(Kind.ENTRY, "a", OTHER, (0, 2), True)
    holding.become([gone], 9, 60.0)
    assert holding.gone_at == {gone.key: 60.0}
    assert (holding.book.position, len(holding.book)) == (9, 1)


def test_who_waits_for_nobody() -> None:
    holding = Holding("a", ME)
    holding.take(retained(1), 0.0, LAN)
    assert not holding.settled, "it has no coordinator"
    holding.begin(Reign(1, ME), 0.0, LAN)
    assert holding.settled
    holding.wait(1, Waiter(9, lambda: None))
    assert not holding.settled
    holding.end()
    assert not holding.settled
    holding.owners, holding.reign, holding.synced = (OTHER,), Reign(2, OTHER.id), 5
    assert holding.settled
    holding.role = Role.GATHERING
    assert not holding.settled


def test_when_there_is_something_to_do() -> None:
    holding = Holding("a", ME)
    holding.take(retained(1), 0.0, LAN)
    holding.begin(Reign(1, ME), 0.0, LAN)
    assert holding.due_at(LAN) == inf
    holding.take(retained(2, 1000), 0.0, LAN)
    assert holding.due_at(LAN) == 1000.0
    holding.take(Record(Kind.NOTE, "a/b", None, (1, 0), True), 0.0, LAN)
    assert holding.due_at(LAN) == LAN.tomb_s
    holding.take(ENTRY, 1.0, LAN)
    assert holding.due_at(LAN) == 1.0 + LAN.entry_s
    holding.take(PUBLISHER, 1.0, LAN)
    assert holding.due_at(LAN) == 1.0 + LAN.void_s


def tables_of(holding: Holding) -> list[object]:
    return [holding.shadows, holding.publishers, holding.expires, holding.gone_at, holding.waiters]


def test_what_holds_one_message_has_no_tables() -> None:
    holding = Holding("a", ME)
    assert all(table is NOTHING for table in tables_of(holding))
    holding.begin(Reign(1, ME), 0.0, LAN)
    for record in (retained(1), ENTRY, PUBLISHER):
        holding.take(record, 0.0, LAN)
    holding.wait(1, Waiter(9, lambda: None))
    assert [len(table) for table in (holding.publishers, holding.expires, holding.waiters)] == [1, 1, 1]
    holding.slim()
    assert [len(table) for table in (holding.publishers, holding.expires, holding.waiters)] == [1, 1, 1]
    for record in (ENTRY, PUBLISHER):
        holding.take(record.ended(), 0.0, LAN)
    del holding.waiters[1]
    holding.forget_gone(1.0)
    holding.slim()
    assert all(table is NOTHING for table in tables_of(holding))
    holding.become([retained(1)], 1, 0.0)
    holding.end()
    assert all(table is NOTHING for table in tables_of(holding))
    with pytest.raises(TypeError, match="all"):
        holding.gone_at[ENTRY.key] = 0.0
    assert not NOTHING
