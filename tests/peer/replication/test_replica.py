"""One place: what becomes of leases when a coordinator begins and ends."""

from __future__ import annotations

from math import inf

import pytest

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import Id, key_of
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Epoch, Kind, Record
from ringmq.peer.messaging.body import encode_body
from ringmq.peer.messaging.config import LAN
from ringmq.peer.replication.replica import NOTHING, Replica, Role, Waiter, lease_s

ME, OTHER = Id(1), Peer(Id(2), "h", 1, 0)
ENTRY = Record(Kind.ENTRY, "a", OTHER, (0, 1), False)
PUBLISHER = Record(Kind.PUBLISHER, "", OTHER, (1, 0), False)


def test_a_shadow_lets_nothing_expire() -> None:
    replica = Replica("a", ME)
    assert replica.key == key_of("a")
    assert replica.take(ENTRY, 5.0, LAN)
    assert not replica.take(ENTRY, 6.0, LAN)
    assert not replica.coordinates
    assert not replica.expires


def test_all_leases_begin_anew_with_a_reign() -> None:
    replica = Replica("a", ME)
    for record in (ENTRY, PUBLISHER, Record(Kind.NOTE, "a/b", None, (1, 0), False)):
        replica.take(record, 0.0, LAN)
    replica.begin(Epoch(1, ME), 100.0, LAN)
    assert replica.expires[ENTRY.key] == 100.0 + LAN.entry_s
    assert replica.expires[Kind.NOTE, "a/b", 0] == 100.0 + LAN.note_s == 100.0 + lease_s(Kind.NOTE, LAN)
    assert replica.publishers[OTHER.id].until == 100.0 + LAN.void_s
    assert PUBLISHER.key not in replica.expires
    replica.end()
    assert replica.role is Role.HOLDER
    assert not replica.publishers
    assert len(replica.book) == 3, "what it holds it still holds"


def test_a_coordinator_follows_who_publishes() -> None:
    replica = Replica("a", ME)
    replica.begin(Epoch(1, ME), 0.0, LAN)
    replica.take(PUBLISHER, 1.0, LAN)
    assert replica.publishers[OTHER.id].until < inf
    replica.take(Record(Kind.PUBLISHER, "", OTHER, (2, 0), True), 2.0, LAN)
    assert not replica.publishers


def test_what_is_gone_is_remembered_for_a_while() -> None:
    replica = Replica("a", ME)
    replica.take(ENTRY, 0.0, LAN)
    assert replica.present()
    replica.take(Record(Kind.ENTRY, "a", OTHER, (0, 2), True), 10.0, LAN)
    assert not replica.present()
    replica.forget_gone(10.0)
    assert len(replica.book) == 1
    replica.forget_gone(10.1)
    assert len(replica.book) == 0


def retained(stamp: int, expiry_s: int | None = None) -> Record:
    body = encode_body(Message("a", b"x", expires_at=expiry_s), 0.0)
    return Record(Kind.RETAINED, "a", None, (stamp, 0), False, body=body)


def test_what_is_retained_is_told_with_what_remains_of_its_time() -> None:
    replica = Replica("a", ME)
    replica.take(retained(1, 100), 10.0, LAN)
    replica.take(ENTRY, 10.0, LAN)
    assert replica.ends_at == 110.0
    assert replica.told(replica.book, 40.0) == (retained(1, 70), ENTRY)
    assert replica.retained(109.0) == retained(1, 1)
    assert replica.retained(110.0) == retained(1).ended(), "nobody need be quick to drop it"
    replica.take(retained(2), 50.0, LAN)
    assert replica.ends_at == inf
    assert replica.retained(1000.0) == retained(2)
    replica.take(retained(3, 5), 60.0, LAN)
    replica.take(retained(3).ended(), 65.0, LAN)
    assert replica.ends_at == inf
    assert Replica("b", ME).retained(0.0) is None


def test_the_end_wins_over_what_has_ended() -> None:
    record = retained(4, 1)
    assert record.ended().gone
    assert record.ended().rank() > record.rank()
    assert ENTRY.ended().number == ENTRY.number, "entries are the subscribers' to number"


def test_a_copy_goes_on_with_the_time_it_had() -> None:
    replica = Replica("a", ME)
    replica.take(retained(1, 100), 0.0, LAN)
    mine = next(iter(replica.book))
    assert replica.become([mine, ENTRY], 7, 50.0) == [ENTRY]
    assert replica.ends_at == 100.0
    assert replica.become([retained(2, 100)], 8, 50.0) == [retained(2, 100)]
    assert replica.ends_at == 150.0
    gone = Record(Kind.ENTRY, "a", OTHER, (0, 2), True)
    replica.become([gone], 9, 60.0)
    assert replica.gone_at == {gone.key: 60.0}
    assert (replica.book.position, len(replica.book)) == (9, 1)


def test_who_waits_for_nobody() -> None:
    replica = Replica("a", ME)
    replica.take(retained(1), 0.0, LAN)
    assert not replica.settled, "it has no coordinator"
    replica.begin(Epoch(1, ME), 0.0, LAN)
    assert replica.settled
    replica.wait(1, Waiter(9, lambda: None))
    assert not replica.settled
    replica.end()
    assert not replica.settled
    replica.owners, replica.epoch, replica.synced = (OTHER,), Epoch(2, OTHER.id), 5
    assert replica.settled
    replica.role = Role.GATHERING
    assert not replica.settled


def test_when_there_is_something_to_do() -> None:
    replica = Replica("a", ME)
    replica.take(retained(1), 0.0, LAN)
    replica.begin(Epoch(1, ME), 0.0, LAN)
    assert replica.due_at(LAN) == inf
    replica.take(retained(2, 1000), 0.0, LAN)
    assert replica.due_at(LAN) == 1000.0
    replica.take(Record(Kind.NOTE, "a/b", None, (1, 0), True), 0.0, LAN)
    assert replica.due_at(LAN) == LAN.tomb_s
    replica.take(ENTRY, 1.0, LAN)
    assert replica.due_at(LAN) == 1.0 + LAN.entry_s
    replica.take(PUBLISHER, 1.0, LAN)
    assert replica.due_at(LAN) == 1.0 + LAN.void_s


def tables_of(replica: Replica) -> list[object]:
    return [replica.shadows, replica.publishers, replica.expires, replica.gone_at, replica.waiters]


def test_what_holds_one_message_has_no_tables() -> None:
    replica = Replica("a", ME)
    assert all(table is NOTHING for table in tables_of(replica))
    replica.begin(Epoch(1, ME), 0.0, LAN)
    for record in (retained(1), ENTRY, PUBLISHER):
        replica.take(record, 0.0, LAN)
    replica.wait(1, Waiter(9, lambda: None))
    assert [len(table) for table in (replica.publishers, replica.expires, replica.waiters)] == [1, 1, 1]
    replica.slim()
    assert [len(table) for table in (replica.publishers, replica.expires, replica.waiters)] == [1, 1, 1]
    for record in (ENTRY, PUBLISHER):
        replica.take(record.ended(), 0.0, LAN)
    del replica.waiters[1]
    replica.forget_gone(1.0)
    replica.slim()
    assert all(table is NOTHING for table in tables_of(replica))
    replica.become([retained(1)], 1, 0.0)
    replica.end()
    assert all(table is NOTHING for table in tables_of(replica))
    with pytest.raises(TypeError, match="all"):
        replica.gone_at[ENTRY.key] = 0.0
    assert not NOTHING
