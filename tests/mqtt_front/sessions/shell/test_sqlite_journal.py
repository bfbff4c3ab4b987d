"""The store: what was committed is there again, byte for byte, and nothing else; and what a damaged file leads to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from ringmq.mqtt_front.access.acl import ALL_RIGHTS
from ringmq.mqtt_front.codec.packets import Properties, Subscription, Will
from ringmq.mqtt_front.config import NEVER_EXPIRES_S, FrontConfig
from ringmq.mqtt_front.message import Message, WillMessage
from ringmq.mqtt_front.sessions.journal import SavedSession
from ringmq.mqtt_front.sessions.queue import Delivery
from ringmq.mqtt_front.sessions.session import Session
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store, StoreError

OFFSET_S = 1000.0
"""How far the wall clock is ahead of the clock of the process."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "clients.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store(path, OFFSET_S)
    yield store
    store.close()


def a_session(client_id: str = "c", expiry_s: int = 60) -> Session:
    session = Session(client_id, FrontConfig(), ALL_RIGHTS)
    session.expiry_s = expiry_s
    return session


def reopened(store: Store, path: Path, offset_s: float = OFFSET_S) -> Store:
    """As after `kill -9`: what was not committed is lost."""
    store.close()
    return Store(path, offset_s)


def the_one(store: Store) -> SavedSession:
    (saved,) = store.saved()
    return saved


def facts(delivery: Delivery) -> tuple[object, ...]:
    return delivery.message, delivery.qos, delivery.retain, delivery.ids, delivery.packet_id, delivery.received


def test_a_session_comes_back_with_all_it_has(store: Store, path: Path) -> None:
    session = a_session(expiry_s=77)
    session.user = "anna"
    session.will = Will("w", b"\x00gone", 2, True, Properties(will_delay_s=5, user_properties=(("a", "b"),)))
    session.will_at, session.expires_at = 12.5, 87.0
    store.session(session)
    store.subscribed(session, Subscription("a/+", 1, True, True), 7)
    store.subscribed(session, Subscription("$share/g/b/#", 2), None)
    store.incoming(session, 3, True)
    store.commit()
    store = reopened(store, path, OFFSET_S + 10)  # a process whose clock began 10 s later
    saved = the_one(store)
    assert (saved.client_id, saved.expiry_s, saved.user) == ("c", 77, "anna")
    assert (saved.will, saved.will_at, saved.expires_at) == (session.will, 2.5, 77.0)
    assert saved.subscriptions == [
        (Subscription("$share/g/b/#", 2), None),
        (Subscription("a/+", 1, True, True), 7),
    ]
    assert saved.incoming == [3]
    store.close()


def test_what_was_not_committed_is_not_there(store: Store, path: Path) -> None:
    store.session(a_session())
    assert store.pending
    store = reopened(store, path)
    assert list(store.saved()) == []
    store.close()


def test_deliveries_come_back_in_their_order_and_state(store: Store, path: Path) -> None:
    session = a_session()
    store.session(session)
    message = Message("t", b"\xff\x00", 2, True, b"\x03\x00\x01x", 50.0, "p")
    deliveries = [Delivery(message, qos, qos == 2, (1, 1)) for qos in (1, 2, 2, 1, 2)]
    for delivery in deliveries:
        store.queued(session, delivery)
    for packet_id, delivery in enumerate(deliveries[:3], start=1):
        delivery.packet_id = packet_id
        store.sent(session, delivery)
    deliveries[2].received = True
    store.received(session, deliveries[2])
    store.commit()
    store = reopened(store, path)
    saved = the_one(store)
    assert [facts(one) for one in saved.inflight] == [facts(one) for one in deliveries[:3]]
    assert [facts(one) for one in saved.queue] == [facts(one) for one in deliveries[3:]]
    assert len({id(one.message) for one in (*saved.inflight, *saved.queue)}) == 1
    store.close()


def test_a_message_for_many_is_there_once_and_goes_with_the_last(store: Store, path: Path) -> None:
    message = Message("t", b"x" * 1000, 1)
    sessions = [a_session(str(number)) for number in range(10)]
    deliveries = [Delivery(message, 1, False, ()) for _ in sessions]
    for session, delivery in zip(sessions, deliveries, strict=True):
        store.session(session)
        store.queued(session, delivery)
    store.commit()
    assert count(store, "messages") == 1
    for session, delivery in zip(sessions[1:], deliveries[1:], strict=True):
        store.done(session, delivery)
    store.commit()
    assert (count(store, "messages"), count(store, "deliveries")) == (1, 1)
    store = reopened(store, path)
    saved = {one.client_id: one for one in store.saved()}
    store.done(sessions[0], saved["0"].queue[0])
    store.commit()
    assert (count(store, "messages"), count(store, "deliveries")) == (0, 0)
    store.close()


def test_a_message_that_was_done_within_the_turn_may_come_again_in_it(store: Store) -> None:
    session, message = a_session(), Message("t", b"x", 1)
    store.session(session)
    first, second = Delivery(message, 1, False, ()), Delivery(message, 1, False, ())
    store.sent(session, first)
    store.done(session, first)
    store.sent(session, second)
    store.commit()
    assert (count(store, "messages"), count(store, "deliveries")) == (1, 1)


def test_an_ended_session_leaves_nothing(store: Store) -> None:
    session = a_session()
    store.session(session)
    store.subscribed(session, Subscription("a", 1), None)
    store.incoming(session, 3, True)
    for packet_id in (1, 0):
        delivery = Delivery(Message("a", b"x", 1), 1, False, ())
        delivery.packet_id = packet_id
        if packet_id:
            session.inflight[packet_id] = delivery
        else:
            session.queue.append(delivery)
        store.queued(session, delivery)
    store.ended(session)
    store.commit()
    for table in ("sessions", "subscriptions", "incoming", "deliveries", "messages"):
        assert count(store, table) == 0, table


def test_what_is_changed_and_taken_back(store: Store, path: Path) -> None:
    session = a_session(expiry_s=NEVER_EXPIRES_S)
    store.session(session)
    store.subscribed(session, Subscription("a", 1), 3)
    store.subscribed(session, Subscription("a", 2), None)
    store.subscribed(session, Subscription("b", 2), None)
    store.unsubscribed(session, "b")
    for packet_id in (1, 2, 2):
        store.incoming(session, packet_id, True)
    store.incoming(session, 1, False)
    store.commit()
    store = reopened(store, path)
    saved = the_one(store)
    assert (saved.subscriptions, saved.incoming) == ([(Subscription("a", 2), None)], [2])
    store.close()


def test_the_last_retained_message_of_a_topic_holds(store: Store, path: Path) -> None:
    for payload in (b"1", b"2"):
        store.retained(Message("a", payload, 1, True, b"\x01\x01", 30.0, "p"))
    store.retained(Message("b", b"x", 0, True))
    store.retained(Message("b", b"", 0, True))
    store.retained(Message("c", b"x", 0, True))
    store.commit()
    store.unretained("c")
    store.commit()
    store = reopened(store, path)
    assert list(store.retained_messages()) == [Message("a", b"2", 1, True, b"\x01\x01", 30.0, "p")]
    store.close()


def test_a_commit_of_nothing_costs_nothing(store: Store) -> None:
    assert not store.pending
    store.commit()


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"no database at all " * 100)
    with pytest.raises(StoreError, match=r"cannot use .*clients\.sqlite: file is not a database"):
        Store(path, OFFSET_S)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        Store(tmp_path / "none" / "clients.sqlite", OFFSET_S)


def test_others_may_not_read_the_file(store: Store, path: Path) -> None:
    store.retained(Message("a", b"x", 1, True))
    store.commit()
    files = list(path.parent.iterdir())
    assert len(files) > 1
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_a_file_of_another_version_is_refused(store: Store, path: Path) -> None:
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="is of version 99, this program knows versions 1 to 2"):
        Store(path, OFFSET_S)


def test_a_file_of_the_first_version_is_taken_over(store: Store, path: Path) -> None:
    """It had no tables of wills."""
    store.session(a_session())
    store.commit()
    store.close()
    with sqlite3.connect(path) as database:
        database.executescript("DROP TABLE wills; DROP TABLE delivered_wills; PRAGMA user_version = 1;")
    database.close()
    store = Store(path, OFFSET_S)
    assert the_one(store).client_id == "c"
    will = WillMessage("w", b"gone", 2, token=b"0" * 16)
    store.will_begins(will)
    store.commit()
    store = reopened(store, path)
    assert store.wills() == [will]
    store.close()


def test_wills_on_their_way_and_delivered_ones(store: Store, path: Path) -> None:
    wills = [WillMessage("w", b"gone", 2, True, b"\x01\x01", 30.0, "c", bytes([number]) * 16) for number in range(3)]
    for will in wills:
        store.will_begins(will)
        store.will_delivered(will.token)
    store.commit()
    store.will_ended(wills[0].token)
    store.will_forgotten(wills[0].token)
    store.will_delivered(wills[1].token)
    store.commit()
    store = reopened(store, path, OFFSET_S + 10)
    # The times of the new process are 10 s earlier.
    assert store.wills() == [replace(will, expires_at=20.0) for will in wills[1:]]
    assert store.delivered_wills() == [will.token for will in wills[1:]]
    store.close()


def test_a_file_is_one_process_alone(store: Store, path: Path) -> None:
    store.session(a_session())
    store.commit()
    with sqlite3.connect(path, timeout=0) as other, pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("SELECT * FROM sessions").fetchall()
    other.close()


@pytest.mark.parametrize("table", ["retained", "messages", "deliveries", "sessions"])
def test_damaged_rows_are_named(store: Store, path: Path, table: str) -> None:
    session = a_session()
    session.will = Will("w", b"x", 0, False)
    store.session(session)
    store.retained(Message("a", b"x", 1, True))
    store.queued(session, Delivery(Message("a", b"x", 1), 1, False, ()))
    store.commit()
    column = {"retained": "message", "messages": "message", "deliveries": "identifiers", "sessions": "will"}[table]
    store.close()
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE {table} SET {column} = x'c1'")
    database.close()
    store = Store(path, OFFSET_S)
    with pytest.raises(StoreError, match=r"clients\.sqlite is damaged"):
        list(store.saved() if table != "retained" else store.retained_messages())
    store.close()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE sessions SET expiry_s = NULL",
        "UPDATE sessions SET expires_at = 'soon'",
        "UPDATE deliveries SET qos = 7",
        "UPDATE deliveries SET packet_id = 70000",
        "UPDATE deliveries SET state = 'sent'",
        "UPDATE messages SET message = NULL",
        "UPDATE messages SET message = 'text'",
        "UPDATE subscriptions SET qos = 3",
        "DELETE FROM messages",
    ],
)
def test_values_that_cannot_be_are_named(store: Store, path: Path, damage: str) -> None:
    session = a_session()
    store.session(session)
    store.subscribed(session, Subscription("a", 1), None)
    store.queued(session, Delivery(Message("a", b"x", 1), 1, False, ()))
    store.commit()
    store.close()
    with sqlite3.connect(path) as database:
        database.execute(damage)
    database.close()
    store = Store(path, OFFSET_S)
    with pytest.raises(StoreError, match=r"clients\.sqlite is damaged: "):
        list(store.saved())
    store.close()


def test_what_belongs_to_nothing_is_dropped(store: Store, path: Path) -> None:
    session = a_session()
    store.session(session)
    store.queued(session, Delivery(Message("a", b"x", 1), 1, False, ()))
    store.commit()
    store.close()
    with sqlite3.connect(path) as database:
        database.execute("DELETE FROM sessions")
    database.close()
    store = Store(path, OFFSET_S)
    assert (count(store, "messages"), count(store, "deliveries")) == (0, 0)
    store.close()


def test_a_disk_that_takes_no_more_is_an_error(store: Store) -> None:
    store._database.execute("PRAGMA max_page_count = 20")
    for number in range(100):
        store.retained(Message(str(number), b"x" * 1000, 0, True))
    with pytest.raises(StoreError, match=r"cannot write to .*clients\.sqlite: database or disk is full"):
        store.commit()


def test_a_transaction_ends_whatever_is_raised(store: Store) -> None:
    store.retained(Message("bad", b"x", 0, True))
    store._changes.append(("DELETE FROM messages WHERE id = ?", (1 << 64,)))
    with pytest.raises(StoreError, match=r"cannot write to .*clients\.sqlite"):
        store.commit()
    assert not store._database.in_transaction
    store.retained(Message("good", b"x", 0, True))
    store.commit()
    assert [message.topic for message in store.retained_messages()] == ["good"]


def count(store: Store, table: str) -> int:
    return int(store._database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
