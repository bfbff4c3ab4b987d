"""New databases: whole or not there, and never in place of one that has lost its content."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.sessions.shell.new_database import make_database
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store
from ringmq.peer.engines.partitioned.shell.record_store import RecordStore
from ringmq.peer.errors import PeerError

SCRIPT = "CREATE TABLE a (b INTEGER); PRAGMA user_version = 7;"
STORES: list[Callable[[Path], Store | RecordStore]] = [lambda path: Store(path, 0.0), RecordStore]


def tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return [name for (name,) in database.execute("SELECT name FROM sqlite_master")]


def test_a_new_database_has_its_tables(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    make_database(path, SCRIPT)
    assert tables(path) == ["a"]
    assert path.stat().st_mode & 0o777 == 0o600
    make_database(path, "this is not even read")
    assert list(tmp_path.iterdir()) == [path]


def test_a_process_that_ends_in_between_leaves_no_database(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    with pytest.raises(sqlite3.Error):
        make_database(path, "CREATE TABLE a (b INTEGER); nonsense;")
    assert not path.exists()
    (tmp_path / "new.sqlite.new").write_bytes(b"half of it")
    make_database(path, SCRIPT)
    assert tables(path) == ["a"]


@pytest.mark.parametrize("store", STORES)
def test_an_empty_file_is_refused_and_stays(tmp_path: Path, store: Callable[[Path], Store | RecordStore]) -> None:
    path = tmp_path / "kept.sqlite"
    path.touch()
    with pytest.raises(
        (FrontError, PeerError), match=r"^cannot use .*kept\.sqlite: it is empty, so what was in it is lost"
    ):
        store(path)
    assert list(tmp_path.iterdir()) == [path]
    assert not path.stat().st_size


@pytest.mark.parametrize("store", STORES)
def test_a_file_that_is_gone_while_its_log_is_there_is_refused(
    tmp_path: Path, store: Callable[[Path], Store | RecordStore]
) -> None:
    log = tmp_path / "kept.sqlite-wal"
    log.write_bytes(b"changes of a file that is gone")
    with pytest.raises((FrontError, PeerError), match=r"^cannot use .*kept\.sqlite: it is gone, and its log is there"):
        store(tmp_path / "kept.sqlite")
    assert list(tmp_path.iterdir()) == [log]


@pytest.mark.parametrize("store", STORES)
def test_a_file_without_tables_is_refused(tmp_path: Path, store: Callable[[Path], Store | RecordStore]) -> None:
    path = tmp_path / "kept.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("CREATE TABLE other (a INTEGER);")
    with pytest.raises((FrontError, PeerError), match="is of version 0, this program knows versions 1 to"):
        store(path)
