"""What makes a front durable: sessions, subscriptions, waiting messages and retained ones in one SQLite file.

Changes gather while a turn of the event loop lasts, and are committed in one transaction before anything is sent: so
what a client was told is on disk. Only sessions that outlive their connections are written. Times in the file are those
of the wall clock, since the clock of a process begins anew with each.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from mqtt_front.errors import FrontError
from mqtt_front.message import Message
from mqtt_front.receivers import Receiver
from mqtt_front.session import Delivery, Session

VERSION: Final = 1
"""Of the tables; a file of another version is refused, not guessed at."""

QUEUED, SENT, RECEIVED = 0, 1, 2
"""How far a delivery has come."""

TABLES: Final = """
CREATE TABLE sessions (client TEXT PRIMARY KEY, expiry_s INTEGER, expires_at REAL, user TEXT) WITHOUT ROWID;
CREATE TABLE subscriptions (client TEXT, filter TEXT, qos INTEGER, no_local INTEGER, as_published INTEGER,
    identifier INTEGER, PRIMARY KEY (client, filter)) WITHOUT ROWID;
CREATE TABLE messages (id INTEGER PRIMARY KEY, message BLOB);
CREATE TABLE deliveries (id INTEGER PRIMARY KEY, client TEXT, message INTEGER, qos INTEGER, retain INTEGER,
    identifiers BLOB, state INTEGER, packet_id INTEGER);
CREATE INDEX deliveries_of_message ON deliveries (message);
CREATE INDEX deliveries_of_client ON deliveries (client);
CREATE TABLE incoming (client TEXT, packet_id INTEGER, PRIMARY KEY (client, packet_id)) WITHOUT ROWID;
CREATE TABLE retained (topic TEXT PRIMARY KEY, message BLOB) WITHOUT ROWID;
"""

SUBSCRIPTIONS: Final = "SELECT filter, qos, no_local, as_published, identifier FROM subscriptions WHERE client = ?"

Row = tuple[Any, ...]
"""What SQLite gives: of the types that were put in, which the tables do not tell Python."""

_IDS: Final = msgspec.msgpack.Decoder(tuple[int, ...])


class StoreError(FrontError):
    """The file cannot be used: one clear line."""


class Subscribed(NamedTuple):
    """A subscription as the file knows it."""

    topic_filter: str
    qos: int
    no_local: bool
    retain_as_published: bool
    identifier: int | None


class SavedSession(NamedTuple):
    """A session as the file knows it."""

    client_id: str
    expiry_s: int
    expires_at: float | None
    user: str | None
    subscriptions: list[Subscribed]
    queue: list[Delivery]
    inflight: list[Delivery]
    incoming: list[int]


class Place(NamedTuple):
    """Where a delivery is written."""

    row: int
    message: int


class Store:
    """The journal of a front. `commit` at the end of each turn; `saved` and `retained` give it all back at the start.

    `offset_s` is the wall clock less the clock of this process.
    """

    def __init__(self, path: Path, offset_s: float, *, power_safe: bool = True) -> None:
        """Open or make the file. With `power_safe` a commit waits for the disk; without, a process may die but not the
        power. Raises StoreError."""
        self._path = path
        self._offset_s = offset_s
        self._changes: list[tuple[str, tuple[object, ...]]] = []
        self._places: dict[Delivery, Place] = {}
        self._fresh: dict[int, tuple[Message, int]] = {}
        try:
            self._database = sqlite3.connect(path, isolation_level=None)
            self._open(power_safe)
        except sqlite3.Error as error:
            raise StoreError(f"cannot use {path}: {error}") from None
        self._next_delivery = self._highest("deliveries") + 1
        self._next_message = self._highest("messages") + 1

    def _open(self, power_safe: bool) -> None:
        run = self._database.execute
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        run(f"PRAGMA synchronous = {'FULL' if power_safe else 'NORMAL'}")
        version = run("PRAGMA user_version").fetchone()[0]
        if version == 0:
            self._database.executescript(f"BEGIN; {TABLES} PRAGMA user_version = {VERSION}; COMMIT;")
        elif version != VERSION:
            raise StoreError(f"{self._path} is of version {version}, this program knows version {VERSION}")

    def _highest(self, table: str) -> int:
        row = self._database.execute(f"SELECT max(id) FROM {table}").fetchone()  # noqa: S608 - a constant
        return int(row[0] or 0)

    # The journal: what changes

    def began(self, session: Session, user: str | None) -> None:
        """A session has a client; its expiry is known."""
        if session.expiry_s:
            self._do(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, NULL, ?)", session.client_id, session.expiry_s, user
            )

    def left(self, session: Session) -> None:
        """The client of a session is gone."""
        if session.expiry_s:
            at = None if session.expires_at is None else session.expires_at + self._offset_s
            change = "UPDATE sessions SET expires_at = ?, expiry_s = ? WHERE client = ?"
            self._do(change, at, session.expiry_s, session.client_id)

    def ended(self, session: Session) -> None:
        """The session is no more."""
        client = session.client_id
        for table in ("sessions", "subscriptions", "incoming"):
            self._do(f"DELETE FROM {table} WHERE client = ?", client)  # noqa: S608 - constants
        for delivery in (*session.inflight.values(), *session.queue):
            self.done(session, delivery)

    def subscribed(self, session: Session, topic_filter: str, receiver: Receiver[Session]) -> None:
        if session.expiry_s:
            ids = receiver.subscription_ids
            self._do(
                "INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?, ?, ?, ?)",
                session.client_id,
                topic_filter,
                receiver.qos,
                receiver.no_local,
                receiver.retain_as_published,
                ids[0] if ids else None,
            )

    def unsubscribed(self, session: Session, topic_filter: str) -> None:
        if session.expiry_s:
            self._do("DELETE FROM subscriptions WHERE client = ? AND filter = ?", session.client_id, topic_filter)

    def queued(self, session: Session, delivery: Delivery) -> None:
        if session.expiry_s:
            self._write(session, delivery, QUEUED)

    def sent(self, session: Session, delivery: Delivery) -> None:
        if not session.expiry_s:
            return
        place = self._places.get(delivery)
        if place is None:
            self._write(session, delivery, SENT)
        else:
            change = "UPDATE deliveries SET state = 1, packet_id = ? WHERE id = ?"
            self._do(change, delivery.packet_id, place.row)

    def received(self, session: Session, delivery: Delivery) -> None:
        place = self._places.get(delivery)
        if place is not None:
            self._do("UPDATE deliveries SET state = 2 WHERE id = ?", place.row)

    def done(self, session: Session, delivery: Delivery) -> None:
        place = self._places.pop(delivery, None)
        if place is not None:
            self._do("DELETE FROM deliveries WHERE id = ?", place.row)
            orphan = "DELETE FROM messages WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM deliveries WHERE message = ?1)"
            self._do(orphan, place.message)

    def incoming(self, session: Session, packet_id: int, known: bool) -> None:
        if session.expiry_s:
            add = "INSERT OR IGNORE INTO incoming VALUES (?, ?)"
            remove = "DELETE FROM incoming WHERE client = ? AND packet_id = ?"
            self._do(add if known else remove, session.client_id, packet_id)

    def retained_set(self, message: Message) -> None:
        if message.payload:
            self._do("INSERT OR REPLACE INTO retained VALUES (?, ?)", message.topic, self._pack(message))
        else:
            self._do("DELETE FROM retained WHERE topic = ?", message.topic)

    def _do(self, change: str, *values: object) -> None:
        self._changes.append((change, values))

    def _write(self, session: Session, delivery: Delivery, state: int) -> None:
        message = delivery.message
        known = self._fresh.get(id(message))
        if known is None:
            known = self._fresh[id(message)] = message, self._next_message
            self._next_message += 1
            self._do("INSERT INTO messages VALUES (?, ?)", known[1], self._pack(message))
        place = self._places[delivery] = Place(self._next_delivery, known[1])
        self._next_delivery += 1
        self._do(
            "INSERT INTO deliveries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            place.row,
            session.client_id,
            place.message,
            delivery.qos,
            delivery.retain,
            msgspec.msgpack.encode(delivery.ids),
            state,
            delivery.packet_id,
        )

    def _pack(self, message: Message) -> bytes:
        at = message.expires_at
        wall = message if at is None else msgspec.structs.replace(message, expires_at=at + self._offset_s)
        return msgspec.msgpack.encode(wall)

    def _unpack(self, raw: bytes) -> Message:
        message = msgspec.msgpack.decode(raw, type=Message)
        at = message.expires_at
        return message if at is None else msgspec.structs.replace(message, expires_at=at - self._offset_s)

    def commit(self) -> None:
        """Make all changes durable. Raises StoreError when the disk does not take them: then nothing may be sent."""
        changes, self._changes = self._changes, []
        self._fresh.clear()
        if not changes:
            return
        run = self._database.execute
        try:
            run("BEGIN IMMEDIATE")
            for change, values in changes:
                run(change, values)
            run("COMMIT")
        except sqlite3.Error as error:
            raise StoreError(f"cannot write to {self._path}: {error}") from None

    def close(self) -> None:
        """Commit and close. Idempotent."""
        self.commit()
        self._database.close()

    # What was there

    def retained(self) -> Iterator[Message]:
        for row in self._rows("SELECT message FROM retained"):
            yield self._unpack(row[0])

    def saved(self) -> Iterator[SavedSession]:
        """All sessions; their deliveries are known to this store from then on."""
        for client, expiry_s, expires_at, user in self._rows("SELECT client, expiry_s, expires_at, user FROM sessions"):
            yield SavedSession(
                client_id=client,
                expiry_s=expiry_s,
                expires_at=None if expires_at is None else expires_at - self._offset_s,
                user=user,
                subscriptions=[_subscription(row) for row in self._rows(SUBSCRIPTIONS, client)],
                queue=self._deliveries(client, "state = 0"),
                inflight=self._deliveries(client, "state > 0"),
                incoming=[row[0] for row in self._rows("SELECT packet_id FROM incoming WHERE client = ?", client)],
            )

    def _deliveries(self, client: str, condition: str) -> list[Delivery]:
        """In the order in which they were queued or sent."""
        found = []
        query = f"SELECT * FROM deliveries WHERE client = ? AND {condition} ORDER BY id"  # noqa: S608 - constants
        for row, _, message_id, qos, retain, identifiers, state, packet_id in self._rows(query, client):
            raw = self._rows("SELECT message FROM messages WHERE id = ?", message_id)[0][0]
            delivery = Delivery(self._unpack(raw), qos, bool(retain), _IDS.decode(identifiers))
            delivery.packet_id = packet_id
            delivery.received = state == RECEIVED
            self._places[delivery] = Place(row, message_id)
            found.append(delivery)
        return found

    def _rows(self, query: str, *values: object) -> list[Row]:
        with closing(self._database.execute(query, values)) as cursor:
            return cursor.fetchall()


def _subscription(row: Row) -> Subscribed:
    topic_filter, qos, no_local, as_published, identifier = row
    return Subscribed(topic_filter, qos, bool(no_local), bool(as_published), identifier)
