"""The disk of the roles: what was committed is there again, and no more; and what a damaged file leads to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.lasting import LASTING, away_since, lapsed
from ringmq.peer.engines.partitioned.shell import record_store
from ringmq.peer.engines.partitioned.shell.record_store import (
    MOVED_AT_ONCE,
    MOVED_PART,
    VERSION,
    RecordStore,
    StoreError,
)
from ringmq.peer.messaging.body import encode_body, remaining_of
from ringmq.peer.replication.record import Number, RecordKind, SharedRecord

HOME = Peer(Id(1), "10.0.0.1", 4883, 7)


class Wall:
    """A clock on the wall, to be set by hand."""

    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "retained.sqlite"


@pytest.fixture
def wall() -> Wall:
    return Wall()


@pytest.fixture
def store(path: Path, wall: Wall) -> Iterator[RecordStore]:
    store = RecordStore(path, wall)
    yield store
    store.close()


def message(topic: str, number: Number = (5, 6), expiry_s: int | None = None, payload: bytes = b"\0x") -> SharedRecord:
    body = encode_body(Message(topic, payload, expires_at=expiry_s), 0.0)
    return SharedRecord(RecordKind.RETAINED, topic, None, number, False, True, body=body)


def clearing(topic: str, number: Number = (7, 8)) -> SharedRecord:
    return SharedRecord(RecordKind.RETAINED, topic, None, number, True)


def again(store: RecordStore, path: Path, wall: Wall) -> RecordStore:
    """As after `kill -9`."""
    store.close()
    return RecordStore(path, wall)


def test_what_was_committed_is_there_again(store: RecordStore, path: Path, wall: Wall) -> None:
    highest = (1 << 63) - 1
    for record in (message("ä/b", (highest, highest)), message("x"), message("x", (6, 0), payload=b"second")):
        store.keep(record.name, record)
    store.keep("c", message("c"))
    store.keep("c", clearing("c"))
    assert store.pending
    store.commit()
    assert not store.pending
    store.keep("late", message("late"))
    wall.now += 100
    found = again(store, path, wall).load()
    records = {record.name: record for record in found.records}
    assert sorted(records) == ["x", "ä/b"]
    record = records["x"]
    assert (record.number, record.gone, record.home) == ((6, 0), False, None)
    assert record.body == message("x", payload=b"second").body
    assert not record.confirmed, "it is not on its way to anybody any more"
    assert records["ä/b"].number == (highest, highest)
    assert found.cleared == [("c", (7, 8), 100.0)]


def entry(name: str, count: int, home: Peer = HOME) -> SharedRecord:
    return SharedRecord(RecordKind.ENTRY, name, home, (home.boot, count), False, flags=LASTING)


def test_lasting_entries_are_there_again_with_their_homes(store: RecordStore, path: Path, wall: Wall) -> None:
    other = Peer(Id(2), "10.0.0.2", 4884, 3)
    ended, away = entry("ended", 1), lapsed(entry("away", 2), 999_000)
    for record in (entry("a/+", 3), entry("a/+", 4, other), ended, entry("away", 2), away):
        store.keep_entry(record)
    store.keep("a/+", message("a/+"))
    store.commit()
    store.leave_entry(ended)
    store.keep_entry(entry("a/+", 5))
    store.commit()
    store.leave_entry(away)
    found = again(store, path, wall).load().records
    entries = {record.key: record for record in found if record.kind is RecordKind.ENTRY}
    assert entries == {record.key: record for record in (entry("a/+", 5), entry("a/+", 4, other), away)}
    assert away_since(entries[away.key]) == 999_000
    assert len(found) == len(entries) + 1, "a topic is no filter"


def changed_entries(store: RecordStore) -> None:
    """The third entry is removed, the second is removed and comes back, the first changes its number."""
    for count, name in enumerate(("first", "second", "third", "fourth")):
        store.keep_entry(entry(name, count))
        store.commit()
    for name in ("third", "second"):
        store.leave_entry(entry(name, 5))
        store.commit()
    for count, name in enumerate(("second", "first"), 6):
        store.keep_entry(entry(name, count))
        store.commit()


CHANGED: Final = [("first", (HOME.boot, 7)), ("fourth", (HOME.boot, 3)), ("second", (HOME.boot, 6))]


@pytest.mark.parametrize("moved_at_once", range(1, 10))
def test_checkpoints_change_nothing_of_the_entries(
    store: RecordStore, path: Path, wall: Wall, monkeypatch: pytest.MonkeyPatch, moved_at_once: int
) -> None:
    """However many changes each moves, before and after a restart."""
    monkeypatch.setattr(record_store, "MOVED_AT_ONCE", moved_at_once)
    changed_entries(store)
    assert store.logged == 8
    while store.logged:
        before = store.logged
        store.checkpoint()
        assert before - store.logged == min(before, moved_at_once)
        store = again(store, path, wall)
        assert store.logged == max(0, before - moved_at_once), "a restart goes on where it was"
        found = sorted((record.name, record.number) for record in store.load().records)
        assert found == CHANGED
    store.checkpoint()
    rows = store._database.execute("SELECT filter, boot, count FROM entries ORDER BY filter").fetchall()
    assert [(name, (boot, count)) for name, boot, count in rows] == CHANGED


def test_a_long_log_is_moved_in_a_bounded_number_of_checkpoints(store: RecordStore) -> None:
    """A peer that gets more changes a second than one checkpoint moves must not keep all of them for ever."""
    most = MOVED_AT_ONCE * MOVED_PART
    for count in range(2 * most):
        store.keep_entry(entry(f"{count}", count))
    store.commit()
    store.checkpoint()
    assert store.logged == 2 * most - 2 * MOVED_AT_ONCE


def test_a_checkpoint_that_fails_moves_nothing(store: RecordStore, path: Path, wall: Wall) -> None:
    changed_entries(store)
    store._database.execute("DROP TABLE entries")
    store._database.execute("CREATE VIEW entries AS SELECT filter, home FROM entry_log")
    with pytest.raises(StoreError, match=r"cannot write to .*retained\.sqlite"):
        store.checkpoint()
    assert store.logged == 8
    assert store._database.execute("SELECT count(*) FROM entry_log").fetchone() == (8,)


def test_the_last_word_counts(store: RecordStore, path: Path, wall: Wall) -> None:
    """Whether it is committed together with what was before or not."""
    for commit in (lambda: None, store.commit):
        store.keep("a", clearing("a"))
        commit()
        store.keep("a", message("a", (9, 0)))
        store.keep("b", message("b"))
        commit()
        store.leave("b")
        store.keep("c", clearing("c"))
        commit()
        wall.now += 10.0
        store.forget(10.0)
        store.keep("d", message("d"))
        store.leave("d")
        commit()
        store.keep("d", message("d"))
        store.keep("e", clearing("e"))
        store.leave("e")
        store.commit()
        store = again(store, path, wall)
        found = store.load()
        assert sorted(record.name for record in found.records) == ["a", "d"]
        assert [topic for topic, _, _ in found.cleared] == ["e"], (
            "a peer that stops keeping a topic forgets no clearing"
        )
    store.close()


def test_time_goes_on_while_the_peer_is_away(store: RecordStore, path: Path, wall: Wall) -> None:
    store.keep("soon", message("soon", expiry_s=10))
    store.keep("late", message("late", expiry_s=100))
    store.keep("never", message("never"))
    store.commit()
    wall.now += 30
    store = again(store, path, wall)
    found = store.load()
    assert {record.name: remaining_of(record.body) for record in found.records} == {
        "late": 70,
        "never": None,
    }
    assert found.cleared == [("soon", (6, 6), 0.0)], "so that nobody brings back what was before it"
    store.commit()
    assert again(store, path, wall).load().cleared == [("soon", (6, 6), 0.0)]


def test_the_file_is_nobody_elses_business(store: RecordStore, path: Path) -> None:
    store.keep("a", message("a"))
    store.commit()
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database " * 100)
    with pytest.raises(StoreError, match=r"cannot use .*retained\.sqlite"):
        RecordStore(path)
    assert path.read_bytes().startswith(b"not a database")


def test_a_file_of_a_later_version_is_refused(store: RecordStore, path: Path) -> None:
    store.close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    with pytest.raises(StoreError, match=f"is of version {VERSION + 1}"):
        RecordStore(path)


VERSION_1 = """
CREATE TABLE retained (topic TEXT PRIMARY KEY, stamp INTEGER, publisher INTEGER, expires_at REAL, body BLOB)
    WITHOUT ROWID;
CREATE TABLE notes (place TEXT, topic TEXT, number INTEGER, PRIMARY KEY (place, topic)) WITHOUT ROWID;
CREATE TABLE cleared (topic TEXT PRIMARY KEY, stamp INTEGER, publisher INTEGER, at REAL) WITHOUT ROWID;
INSERT INTO retained VALUES ('a/b', 5, 6, NULL, x'0078');
INSERT INTO notes VALUES ('a/#', 'a/b', 1);
INSERT INTO cleared VALUES ('c', 7, 8, 999900.0);
PRAGMA user_version = 1;
"""


VERSION_2 = """
CREATE TABLE retained (topic TEXT PRIMARY KEY, stamp INTEGER, publisher INTEGER, expires_at REAL, body BLOB)
    WITHOUT ROWID;
CREATE TABLE cleared (topic TEXT PRIMARY KEY, stamp INTEGER, publisher INTEGER, at REAL) WITHOUT ROWID;
INSERT INTO retained VALUES ('a/b', 5, 6, NULL, x'0078');
INSERT INTO cleared VALUES ('c', 7, 8, 999900.0);
PRAGMA user_version = 2;
"""
VERSION_3 = VERSION_2.replace(
    "PRAGMA user_version = 2;",
    """
CREATE TABLE entries (filter TEXT, home TEXT, host TEXT, port INTEGER, home_boot INTEGER, boot INTEGER, count INTEGER,
    away_at INTEGER, PRIMARY KEY (filter, home)) WITHOUT ROWID;
PRAGMA user_version = 3;
""",
)


@pytest.mark.parametrize("before", [VERSION_1, VERSION_2, VERSION_3])
def test_a_file_of_an_earlier_version_is_taken_over(path: Path, wall: Wall, before: str) -> None:
    """Version 1 had notes, version 2 had no entries, and version 3 no log of them."""
    with sqlite3.connect(path) as database:
        database.executescript(before)
    database.close()
    for _ in range(2):
        store = RecordStore(path, wall)
        found = store.load()
        assert [(record.name, record.number, record.body) for record in found.records] == [("a/b", (5, 6), b"\0x")]
        assert found.cleared == [("c", (7, 8), 100.0)]
        store.close()
    with sqlite3.connect(path) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    database.close()
    assert tables == {"retained", "cleared", "entries", "entry_log"}


@pytest.mark.parametrize(
    "row",
    [
        "retained VALUES ('t', 'x', 0, NULL, x'00')",
        "retained VALUES ('t', -1, 0, NULL, x'00')",
        "retained VALUES ('t', 1, 0, NULL, 'no bytes')",
        "cleared VALUES (x'ff', 1, 1, 0.0)",
        "entries VALUES ('f', 'no id', 'host', 1, 1, 1, 1, NULL)",
        "entries VALUES ('f', '00000000000000000000000000000001', 'host', 'x', 1, 1, 1, NULL)",
        "entry_log VALUES (1, 'f', 'no id', 'host', 1, 1, 1, 1, NULL, 0)",
        "entry_log VALUES (1, 'f', '00000000000000000000000000000001', 'host', 1, 1, 1, 1, NULL, 'x')",
    ],
)
def test_a_damaged_row_is_one_clear_line(store: RecordStore, path: Path, row: str) -> None:
    store.close()
    with sqlite3.connect(path) as database:
        database.execute(f"INSERT INTO {row}")
    database.close()
    damaged = RecordStore(path)
    with pytest.raises(StoreError, match=r"retained\.sqlite is damaged") as raised:
        damaged.load()
    assert "\n" not in str(raised.value)
    damaged.close()


def test_a_disk_that_takes_no_more_is_one_clear_line(store: RecordStore) -> None:
    store._database.execute("PRAGMA max_page_count = 1")
    store.keep("a", message("a", payload=bytes(100_000)))
    with pytest.raises(StoreError, match=r"cannot write to .*retained\.sqlite: database or disk is full"):
        store.commit()
    assert store.pending, "nothing is promised by mistake"


@pytest.mark.parametrize("number", [(1 << 63, 1), ("x", None)])
def test_a_transaction_ends_whatever_is_raised(store: RecordStore, path: Path, wall: Wall, number: Number) -> None:
    store.keep("good", message("good"))
    store.keep("bad", message("bad", number))
    store._changes["bad", "kept"] = (("INSERT INTO retained VALUES (?, ?, ?, ?, ?)", ("bad", 1 << 64, 0, None, b"")),)
    with pytest.raises(StoreError, match=r"cannot write to .*retained\.sqlite"):
        store.commit()
    assert not store._database.in_transaction
    del store._changes["bad", "kept"]
    store.commit()
    assert [record.name for record in again(store, path, wall).load().records] == ["good"]


def test_a_folder_with_the_highest_numbers_can_be_used(store: RecordStore, path: Path, wall: Wall) -> None:
    """An earlier version may have stored what a faulty peer had sent."""
    most = (1 << 63) - 1
    store.keep("expired", message("expired", (most, most), expiry_s=1))
    store.keep("cleared", clearing("cleared", (most, most)))
    store.commit()
    wall.now += 10
    for _ in range(2):
        store = again(store, path, wall)
        kept = store.load()
        store.commit()
        assert kept.records == []
        assert {topic for topic, _, _ in kept.cleared} == {"expired", "cleared"}
