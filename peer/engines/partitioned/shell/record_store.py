"""Stores retained messages, their tombstones and lasting entries on disk, without partitions: names tell them.

One SQLite file. The changes of one iteration of the event loop are committed together, before any peer is notified that
they are safe here. Times in the file are wall-clock times, as the clock of a process starts again at zero.

Entries come by the thousand when many clients subscribe, and their keys are spread over the whole table: each would
change a page of its own. So their changes are first appended to a log, and moved to the table later, a few at a time.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeVar, cast

import msgspec

from ringmq.mqtt_front.sessions.shell.new_database import make_database
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Count, Peer
from ringmq.peer.engines.partitioned.coordinating.lasting import LASTING, away_since, lapsed
from ringmq.peer.errors import PeerError
from ringmq.peer.messaging.body import aged, remaining_of
from ringmq.peer.replication.record import Number, RecordKind, SharedRecord

VERSION: Final = 4
"""The version of the tables; a file of a later version is refused."""

ENTRIES: Final = """
CREATE TABLE entries (filter TEXT, home TEXT, host TEXT, port INTEGER, home_boot INTEGER, boot INTEGER, count INTEGER,
    away_at INTEGER, PRIMARY KEY (filter, home)) WITHOUT ROWID;
"""
ENTRY_LOG: Final = """
CREATE TABLE entry_log (number INTEGER PRIMARY KEY, filter TEXT, home TEXT, host TEXT, port INTEGER, home_boot INTEGER,
    boot INTEGER, count INTEGER, away_at INTEGER, removed INTEGER);
"""
_STEPS: Final = {1: "DROP TABLE notes;", 2: ENTRIES, 3: ENTRY_LOG}
"""How to come from a version to the next. Version 1 had notes: which topics below a prefix have retained messages.
Version 2 had no entries, version 3 no log of their changes."""

TABLES: Final = f"""
CREATE TABLE retained (topic TEXT PRIMARY KEY, stamp INTEGER, publisher INTEGER, expires_at REAL, body BLOB)
    WITHOUT ROWID;
CREATE TABLE cleared (topic TEXT PRIMARY KEY, stamp INTEGER, publisher INTEGER, at REAL) WITHOUT ROWID;
{ENTRIES}{ENTRY_LOG}"""

LOG_BYTES: Final = 16 << 20
"""The size that the write-ahead log is cut to after a burst."""
MOVED_AT_ONCE: Final = 200
MOVED_PART: Final = 600
"""A checkpoint moves this number of changes from the log of the entries to their table, or this part of a longer log.
With one each second, moving takes a few milliseconds of it, and a change stays in the log for ten minutes or so."""
_COLUMNS: Final = "filter, home, host, port, home_boot, boot, count, away_at"
_LAST: Final = f"SELECT {_COLUMNS}, removed, max(number) FROM entry_log WHERE number < ? GROUP BY filter, home"  # noqa: S608
"""The last change of each entry: beside `max`, SQLite takes the other columns from the row that has the maximum."""
_MOVE: Final = (
    f"INSERT OR REPLACE INTO entries SELECT {_COLUMNS} FROM ({_LAST}) WHERE NOT removed",  # noqa: S608
    f"DELETE FROM entries WHERE (filter, home) IN (SELECT filter, home FROM ({_LAST}) WHERE removed)",  # noqa: S608
    "DELETE FROM entry_log WHERE number < ?",
)

_RETAINED: Final = tuple[str, Count, Count, float | None, bytes]
_CLEARED: Final = tuple[str, Count, Count, float]
_ENTRY: Final = tuple[str, str, str, int, Count, Count, Count, Count | None]
_LOGGED: Final = tuple[int, str, str, str, int, Count, Count, Count, Count | None, Count]
"""The rows of the tables."""

T = TypeVar("T")
Change = tuple[str, tuple[object, ...]]
Subject = tuple[str, str]
"""A topic with KEPT or LEFT."""
KEPT: Final = "kept"
LEFT: Final = "left"


class StoreError(PeerError):
    """The file cannot be used: one clear line."""


class Kept(NamedTuple):
    """The contents of the disk at the start."""

    records: list[SharedRecord]
    cleared: list[tuple[str, Number, float]]
    """Topics, the number of the clearing, and how many seconds ago it was."""


class RecordStore:
    """The disk of the roles. Call `load` first; changes from then on are safe after `commit`."""

    def __init__(self, path: Path, wall_s: Callable[[], float] = time.time) -> None:
        """Open or make the file. Raises StoreError."""
        self._path = path
        self._wall_s = wall_s
        self._changes: dict[Subject, tuple[Change, ...]] = {}
        """The last record of each topic, and the last `leave` of each, which keeps tombstones; in the order of
        arrival."""
        self._entries: dict[tuple[str, Id], tuple[object, ...]] = {}
        """The last change of each entry, as a row of the log without its number."""
        try:
            make_database(path, f"{TABLES} PRAGMA user_version = {VERSION};")
            self._database = sqlite3.connect(path, isolation_level=None)
            self._open()
            first, last = self._database.execute("SELECT min(number), max(number) FROM entry_log").fetchone()
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise StoreError(f"cannot use {path}: {getattr(error, 'strerror', None) or error}") from None
        self._first_logged = 0 if first is None else int(first)
        self._next_logged = 0 if last is None else int(last) + 1

    def _open(self) -> None:
        run = self._database.execute
        # Another process must not change the records that this process has in memory.
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        # SQLite syncs a WAL at each commit only with FULL: NORMAL may lose acknowledged messages in a power failure.
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        version = run("PRAGMA user_version").fetchone()[0]
        if not 1 <= version <= VERSION:
            raise StoreError(f"{self._path} is of version {version}, this program knows versions 1 to {VERSION}")
        for step in range(version, VERSION):
            self._database.executescript(f"BEGIN; {_STEPS[step]} PRAGMA user_version = {step + 1}; COMMIT;")

    def keep(self, topic: str, record: SharedRecord) -> None:
        if record.gone:
            self._do(
                (topic, KEPT),
                ("DELETE FROM retained WHERE topic = ?", (topic,)),
                ("INSERT OR REPLACE INTO cleared VALUES (?, ?, ?, ?)", (topic, *record.number, self._wall_s())),
            )
        else:
            remaining_s = remaining_of(record.body)
            expires_at = None if remaining_s is None else self._wall_s() + remaining_s
            self._do(
                (topic, KEPT),
                ("DELETE FROM cleared WHERE topic = ?", (topic,)),
                ("INSERT OR REPLACE INTO retained VALUES (?, ?, ?, ?, ?)",
                 (topic, *record.number, expires_at, record.body)),
            )  # fmt: skip

    def leave(self, topic: str) -> None:
        # Tombstones stay: for `cleared_s` they overrule older messages, also when other peers own the partition.
        self._do((topic, LEFT), ("DELETE FROM retained WHERE topic = ?", (topic,)))

    def keep_entry(self, record: SharedRecord) -> None:
        self._log_entry(record, removed=0)

    def leave_entry(self, record: SharedRecord) -> None:
        self._log_entry(record, removed=1)

    def _log_entry(self, record: SharedRecord, removed: int) -> None:
        home = record.home
        assert home is not None, "entries have homes"
        away_at = away_since(record) if record.gone else None
        place = home.id.hex(), home.host, home.port, home.boot
        self._entries[record.name, home.id] = (record.name, *place, *record.number, away_at, removed)

    def forget(self, age_s: float) -> None:
        # No topic has this name.
        self._do(("", LEFT), ("DELETE FROM cleared WHERE at <= ?", (self._wall_s() - age_s,)))

    def _do(self, subject: Subject, *changes: Change) -> None:
        # The newest change moves to the end: in the place of the change that it replaces, a `leave` between them would
        # undo it.
        self._changes.pop(subject, None)
        self._changes[subject] = changes

    @property
    def pending(self) -> bool:
        return bool(self._changes or self._entries)

    @property
    def logged(self) -> int:
        """The changes of entries that wait for a checkpoint."""
        return self._next_logged - self._first_logged

    def commit(self) -> None:
        """Raises StoreError when the disk fails: the changes stay pending, and must not be acknowledged."""
        if not self.pending:
            return
        run = self._database.execute
        with self._transaction():
            for changes in self._changes.values():
                for change, values in changes:
                    run(change, values)
            rows = ((number, *row) for number, row in enumerate(self._entries.values(), self._next_logged))
            self._database.executemany("INSERT INTO entry_log VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._changes.clear()
        self._next_logged += len(self._entries)
        self._entries.clear()

    def checkpoint(self) -> None:
        """Move the oldest changes of entries from their log to their table: those that were committed. Raises
        StoreError when the disk fails."""
        if not self.logged:
            return
        end = self._first_logged + min(self.logged, max(MOVED_AT_ONCE, self.logged // MOVED_PART))
        with self._transaction():
            for change in _MOVE:
                self._database.execute(change, (end,))
        self._first_logged = end

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        run = self._database.execute
        try:
            run("BEGIN IMMEDIATE")
            yield
            run("COMMIT")
        except Exception as error:
            # Whatever it was: within an open transaction, no later commit could begin.
            if self._database.in_transaction:
                with suppress(sqlite3.Error):
                    run("ROLLBACK")
            raise StoreError(f"cannot write to {self._path}: {error}") from error

    def close(self) -> None:
        """Uncommitted changes are lost."""
        self._database.close()

    def load(self) -> Kept:
        """Read the whole file. Raises StoreError for an unreadable file.

        100,000 messages take some tenths of a second.
        """
        now = self._wall_s()
        records: list[SharedRecord] = []
        cleared: list[tuple[str, Number, float]] = []
        for topic, stamp, publisher, expires_at, body in self._rows(_RETAINED, "retained"):
            # It is not on its way to anybody any more, so that it is not `confirmed`.
            record = SharedRecord(RecordKind.RETAINED, topic, None, (stamp, publisher), False, body=body)
            remaining_s = 1 if expires_at is None else round(expires_at - now)
            if remaining_s <= 0:
                # Without a tombstone, another peer could bring back an older message of the topic.
                gone = record.ended()
                self.keep(topic, gone)
                cleared.append((topic, gone.number, 0.0))
                continue
            if expires_at is not None:
                record = msgspec.structs.replace(record, body=aged(body, remaining_s))
            records.append(record)
        for topic, stamp, publisher, at in self._rows(_CLEARED, "cleared"):
            # The wall clock may have been set back since the clearing.
            cleared.append((topic, (stamp, publisher), max(0.0, now - at)))
        return Kept([*records, *self._load_entries()], cleared)

    def _load_entries(self) -> Iterator[SharedRecord]:
        entries = {row[:2]: row for row in self._rows(_ENTRY, "entries")}
        # They come in the order of their numbers, which are the table's key.
        for _, *columns, removed in self._rows(_LOGGED, "entry_log"):
            row = cast("tuple[str, str, str, int, int, int, int, int | None]", tuple(columns))
            if removed:
                entries.pop(row[:2], None)
            else:
                entries[row[:2]] = row
        for topic_filter, home_id, host, port, home_boot, boot, count, away_at in entries.values():
            try:
                home = Peer(Id.parse(home_id), host, port, home_boot)
            except ValueError as error:
                raise StoreError(f"{self._path} is damaged: {error}") from None
            number = boot, count
            record = SharedRecord(RecordKind.ENTRY, topic_filter, home, number, False, flags=LASTING)
            yield record if away_at is None else lapsed(record, away_at)

    def _rows(self, kind: type[T], table: str) -> list[T]:
        try:
            with closing(self._database.execute(f"SELECT * FROM {table}")) as cursor:  # noqa: S608 - a constant
                return msgspec.convert(cursor.fetchall(), list[kind])  # type: ignore[valid-type]
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise StoreError(f"cannot read {self._path}: {error}") from None
        except msgspec.ValidationError as error:
            raise StoreError(f"{self._path} is damaged: {error}") from None
