"""The disk of the roles: what was committed is there again, and no more; and what a damaged file leads to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.mqtt_front.message import Message
from ringmq.peer.engines.coordinated.messages import Kind, Number, Record
from ringmq.peer.engines.coordinated.shell.retained_store import VERSION, RetainedStore, StoreError
from ringmq.peer.messaging.body import encode_body, remaining_of


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
def store(path: Path, wall: Wall) -> Iterator[RetainedStore]:
    store = RetainedStore(path, wall)
    yield store
    store.close()


def message(topic: str, number: Number = (5, 6), expiry_s: int | None = None, payload: bytes = b"\0x") -> Record:
    body = encode_body(Message(topic, payload, expires_at=expiry_s), 0.0)
    return Record(Kind.RETAINED, topic, None, number, False, True, body)


def clearing(topic: str, number: Number = (7, 8)) -> Record:
    return Record(Kind.RETAINED, topic, None, number, True)


def note(topic: str, number: int = 1, gone: bool = False) -> Record:
    return Record(Kind.NOTE, topic, None, (number, 0), gone)


def again(store: RetainedStore, path: Path, wall: Wall) -> RetainedStore:
    """As after `kill -9`."""
    store.close()
    return RetainedStore(path, wall)


def test_what_was_committed_is_there_again(store: RetainedStore, path: Path, wall: Wall) -> None:
    highest = (1 << 63) - 1
    for record in (message("ä/b", (highest, highest)), message("x"), message("x", (6, 0), payload=b"second")):
        store.keep(record.name, record)
    store.keep("x/#", note("x", 3))
    store.keep("#", note("x"))
    store.keep("#", note("ä/b"))
    store.keep("#", note("ä/b", 2, gone=True))
    store.keep("c", message("c"))
    store.keep("c", clearing("c"))
    assert store.pending
    store.commit()
    assert not store.pending
    store.keep("late", message("late"))
    wall.now += 100
    found = again(store, path, wall).load()
    assert {place: [record.name for record in records] for place, records in found.places.items()} == {
        "ä/b": ["ä/b"],
        "x": ["x"],
        "x/#": ["x"],
        "#": ["x"],
    }
    (record,) = found.places["x"]
    assert (record.number, record.gone, record.peer) == ((6, 0), False, None)
    assert record.body == message("x", payload=b"second").body
    assert not record.confirmed, "it is not on its way to anybody any more"
    assert found.places["ä/b"][0].number == (highest, highest)
    assert found.places["x/#"] == [note("x", 3)]
    assert found.cleared == [("c", (7, 8), 100.0)]


def test_the_last_word_counts(store: RetainedStore, path: Path, wall: Wall) -> None:
    """Whether it is committed together with what was before or not."""
    for commit in (lambda: None, store.commit):
        store.keep("a", clearing("a"))
        commit()
        store.keep("a", message("a", (9, 0)))
        store.keep("b", message("b"))
        store.keep("b/#", note("b"))
        commit()
        store.leave("b")
        store.leave("b/#")
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
        assert sorted(found.places) == ["a", "d"]
        assert [topic for topic, _, _ in found.cleared] == ["e"], "leaving a place forgets no clearing"
    store.close()


def test_time_goes_on_while_the_peer_is_away(store: RetainedStore, path: Path, wall: Wall) -> None:
    store.keep("soon", message("soon", expiry_s=10))
    store.keep("late", message("late", expiry_s=100))
    store.keep("never", message("never"))
    store.commit()
    wall.now += 30
    store = again(store, path, wall)
    found = store.load()
    assert {place: remaining_of(records[0].body) for place, records in found.places.items()} == {
        "late": 70,
        "never": None,
    }
    assert found.cleared == [("soon", (6, 6), 0.0)], "so that nobody brings back what was before it"
    store.commit()
    assert again(store, path, wall).load().cleared == [("soon", (6, 6), 0.0)]


def test_the_file_is_nobody_elses_business(store: RetainedStore, path: Path) -> None:
    store.keep("a", message("a"))
    store.commit()
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}


def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    path.write_bytes(b"not a database " * 100)
    with pytest.raises(StoreError, match=r"cannot use .*retained\.sqlite"):
        RetainedStore(path)
    assert path.read_bytes().startswith(b"not a database")


def test_a_file_of_another_version_is_refused(store: RetainedStore, path: Path) -> None:
    store.close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
    with pytest.raises(StoreError, match=f"is of version {VERSION + 1}"):
        RetainedStore(path)


@pytest.mark.parametrize(
    "row",
    [
        "retained VALUES ('t', 'x', 0, NULL, x'00')",
        "retained VALUES ('t', -1, 0, NULL, x'00')",
        "retained VALUES ('t', 1, 0, NULL, 'no bytes')",
        "notes VALUES ('t', 't', -1)",
        "cleared VALUES (x'ff', 1, 1, 0.0)",
    ],
)
def test_a_damaged_row_is_one_clear_line(store: RetainedStore, path: Path, row: str) -> None:
    store.close()
    with sqlite3.connect(path) as database:
        database.execute(f"INSERT INTO {row}")
    database.close()
    damaged = RetainedStore(path)
    with pytest.raises(StoreError, match=r"retained\.sqlite is damaged") as raised:
        damaged.load()
    assert "\n" not in str(raised.value)
    damaged.close()


def test_a_disk_that_takes_no_more_is_one_clear_line(store: RetainedStore) -> None:
    store._database.execute("PRAGMA max_page_count = 1")
    store.keep("a", message("a", payload=bytes(100_000)))
    with pytest.raises(StoreError, match=r"cannot write to .*retained\.sqlite: database or disk is full"):
        store.commit()
    assert store.pending, "so that nothing is promised by mistake"
