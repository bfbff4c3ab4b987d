"""What makes a front durable: sessions, subscriptions, waiting messages and retained ones in one SQLite file.

The changes of one turn of the event loop gather and are committed together, before anything is sent: so what a client
was told is on the disk. Times in the file are those of the wall clock, since the clock of a process begins anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from ringmq.mqtt_front.codec.packets import Subscription, Will
from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.message import Message, WillMessage
from ringmq.mqtt_front.sessions.journal import SavedSession
from ringmq.mqtt_front.sessions.queue import Delivery
from ringmq.mqtt_front.sessions.session import Session
from ringmq.mqtt_front.sessions.shell.new_database import make_database

VERSION: Final = 2
"""Of the tables; a file of another version than this and the first is refused, not guessed at."""

QUEUED, SENT, RECEIVED = 0, 1, 2
"""How far a delivery has come."""

TABLES: Final = """
CREATE TABLE sessions (client TEXT PRIMARY KEY, expiry_s INTEGER, expires_at REAL, user TEXT, will BLOB, will_at REAL)
    WITHOUT ROWID;
CREATE TABLE subscriptions (client TEXT, filter TEXT, qos INTEGER, no_local INTEGER, as_published INTEGER,
    identifier INTEGER, PRIMARY KEY (client, filter)) WITHOUT ROWID;
CREATE TABLE messages (id INTEGER PRIMARY KEY, message BLOB);
CREATE TABLE deliveries (id INTEGER PRIMARY KEY, client TEXT, message INTEGER, qos INTEGER, retain INTEGER,
    identifiers BLOB, state INTEGER, packet_id INTEGER);
CREATE TABLE incoming (client TEXT, packet_id INTEGER, PRIMARY KEY (client, packet_id)) WITHOUT ROWID;
CREATE TABLE retained (topic TEXT PRIMARY KEY, message BLOB) WITHOUT ROWID;
"""

# The last sets the order of tokens: the oldest are forgotten first.
TABLES_OF_WILLS: Final = """
CREATE TABLE wills (token BLOB PRIMARY KEY, message BLOB) WITHOUT ROWID;
CREATE TABLE delivered_wills (id INTEGER PRIMARY KEY, token BLOB UNIQUE);
"""

LOG_BYTES: Final = 16 << 20
"""What the write-ahead log is cut to after a burst."""

_Flag = Literal[0, 1]
_Qos = Literal[0, 1, 2]
_PacketId = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF)]
_SESSION: Final = tuple[str, Annotated[int, msgspec.Meta(ge=1)], float | None, str | None, bytes | None, float | None]
_SUBSCRIPTION: Final = tuple[str, _Qos, _Flag, _Flag, int | None]
_DELIVERY: Final = tuple[int, str, int, Literal[1, 2], _Flag, bytes, Literal[0, 1, 2], _PacketId]
"""The rows of the tables."""

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class StoreError(FrontError):
    """The file cannot be used: one clear line."""


class Store:
    """The journal of a front. `saved` and `retained_messages` give it all back at the start.

    `offset_s` is the wall clock less the clock of this process.
    """

    def __init__(self, path: Path, offset_s: float) -> None:
        """Open or make the file. Raises StoreError."""
        self._path = path
        self._offset_s = offset_s
        self._changes: list[tuple[str, tuple[object, ...]]] = []
        self._places: dict[Delivery, tuple[int, int]] = {}
        """The rows of a delivery and of its message."""
        self._uses: dict[int, int] = {}
        """How many deliveries a message has, by its row."""
        self._fresh: dict[int, tuple[Message, int]] = {}
        """The messages of this turn and their rows, by identity: several sessions wait for one."""
        try:
            make_database(path, f"{TABLES}{TABLES_OF_WILLS} PRAGMA user_version = {VERSION};")
            # `commit` begins its transactions itself: sqlite3 would begin one at the first change, without IMMEDIATE.
            self._database = sqlite3.connect(path, isolation_level=None)
            self._open()
            self._drop_orphans()
            self._next_delivery = self._highest("deliveries") + 1
            self._next_message = self._highest("messages") + 1
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise StoreError(f"cannot use {path}: {getattr(error, 'strerror', None) or error}") from None

    def _open(self) -> None:
        run = self._database.execute
        # Another process must not change the state that this process has in memory.
        run("PRAGMA locking_mode = EXCLUSIVE")
        run("PRAGMA journal_mode = WAL")
        # With NORMAL, a power cut could undo the last commits in the log, after clients were answered.
        run("PRAGMA synchronous = FULL")
        run(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        version = run("PRAGMA user_version").fetchone()[0]
        if version == 1:
            self._database.executescript(f"BEGIN; {TABLES_OF_WILLS} PRAGMA user_version = {VERSION}; COMMIT;")
        elif version != VERSION:
            raise StoreError(f"{self._path} is of version {version}, this program knows versions 1 to {VERSION}")

    def _drop_orphans(self) -> None:
        """What belongs to nothing can only be there after a file was mended by hand."""
        self._database.execute("DELETE FROM deliveries WHERE client NOT IN (SELECT client FROM sessions)")
        self._database.execute("DELETE FROM messages WHERE id NOT IN (SELECT message FROM deliveries)")

    def _highest(self, table: str) -> int:
        row = self._database.execute(f"SELECT max(id) FROM {table}").fetchone()  # noqa: S608 - a constant
        return int(row[0] or 0)

    def session(self, session: Session) -> None:
        self._do(
            "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?, ?, ?)",
            session.client_id,
            session.expiry_s,
            self._on_the_wall(session.expires_at),
            session.user,
            None if session.will is None else msgspec.msgpack.encode(session.will),
            self._on_the_wall(session.will_at),
        )

    def ended(self, session: Session) -> None:
        client = session.client_id
        for table in ("sessions", "subscriptions", "incoming"):
            self._do(f"DELETE FROM {table} WHERE client = ?", client)  # noqa: S608 - constants
        for delivery in (*session.inflight.values(), *session.queue):
            self.done(session, delivery)

    def subscribed(self, session: Session, subscription: Subscription, identifier: int | None) -> None:
        self._do(
            "INSERT OR REPLACE INTO subscriptions VALUES (?, ?, ?, ?, ?, ?)",
            session.client_id,
            subscription.filter,
            subscription.qos,
            subscription.no_local,
            subscription.retain_as_published,
            identifier,
        )

    def unsubscribed(self, session: Session, topic_filter: str) -> None:
        self._do("DELETE FROM subscriptions WHERE client = ? AND filter = ?", session.client_id, topic_filter)

    def queued(self, session: Session, delivery: Delivery) -> None:
        self._write(session, delivery, QUEUED)

    def sent(self, session: Session, delivery: Delivery) -> None:
        place = self._places.get(delivery)
        if place is None:
            self._write(session, delivery, SENT)
        else:
            change = "UPDATE deliveries SET state = 1, packet_id = ? WHERE id = ?"
            self._do(change, delivery.packet_id, place[0])

    def received(self, session: Session, delivery: Delivery) -> None:
        self._do("UPDATE deliveries SET state = 2 WHERE id = ?", self._places[delivery][0])

    def done(self, session: Session, delivery: Delivery) -> None:
        row, message = self._places.pop(delivery)
        self._do("DELETE FROM deliveries WHERE id = ?", row)
        self._uses[message] -= 1
        if not self._uses[message]:
            del self._uses[message]
            self._do("DELETE FROM messages WHERE id = ?", message)

    def incoming(self, session: Session, packet_id: int, known: bool) -> None:
        add = "INSERT OR IGNORE INTO incoming VALUES (?, ?)"
        remove = "DELETE FROM incoming WHERE client = ? AND packet_id = ?"
        self._do(add if known else remove, session.client_id, packet_id)

    def retained(self, message: Message) -> None:
        if message.payload:
            self._do("INSERT OR REPLACE INTO retained VALUES (?, ?)", message.topic, self._pack(message))
        else:
            self.unretained(message.topic)

    def unretained(self, topic: str) -> None:
        self._do("DELETE FROM retained WHERE topic = ?", topic)

    def will_begins(self, will: WillMessage) -> None:
        self._do("INSERT OR REPLACE INTO wills VALUES (?, ?)", will.token, self._pack(will))

    def will_ended(self, token: bytes) -> None:
        self._do("DELETE FROM wills WHERE token = ?", token)

    def will_delivered(self, token: bytes) -> None:
        self._do("INSERT OR IGNORE INTO delivered_wills (token) VALUES (?)", token)

    def will_forgotten(self, token: bytes) -> None:
        self._do("DELETE FROM delivered_wills WHERE token = ?", token)

    def _write(self, session: Session, delivery: Delivery, state: int) -> None:
        message = delivery.message
        known = self._fresh.get(id(message))
        if known is None or known[1] not in self._uses:  # the first, or one that all others have had already
            known = self._fresh[id(message)] = message, self._next_message
            self._next_message += 1
            self._uses[known[1]] = 0
            self._do("INSERT INTO messages VALUES (?, ?)", known[1], self._pack(message))
        self._uses[known[1]] += 1
        self._places[delivery] = self._next_delivery, known[1]
        self._do(
            "INSERT INTO deliveries VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            self._next_delivery,
            session.client_id,
            known[1],
            delivery.qos,
            delivery.retain,
            msgspec.msgpack.encode(delivery.ids),
            state,
            delivery.packet_id,
        )
        self._next_delivery += 1

    def _do(self, change: str, *values: object) -> None:
        self._changes.append((change, values))

    def _on_the_wall(self, at: float | None) -> float | None:
        return None if at is None else at + self._offset_s

    def _here(self, wall: float | None) -> float | None:
        return None if wall is None else wall - self._offset_s

    def _pack(self, message: Message) -> bytes:
        return msgspec.msgpack.encode(_with_expiry(message, self._on_the_wall(message.expires_at)))

    def _unpack(self, raw: bytes) -> Message:
        return self._unpacked(raw, Message)

    def _unpacked(self, raw: bytes, kind: type[M]) -> M:
        message = self._decoded(raw, kind)
        return _with_expiry(message, self._here(message.expires_at))

    @property
    def pending(self) -> bool:
        return bool(self._changes)

    def commit(self) -> None:
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
        except Exception as error:
            # Whatever it was: within an open transaction, no later commit could begin.
            if self._database.in_transaction:
                with suppress(sqlite3.Error):
                    run("ROLLBACK")
            raise StoreError(f"cannot write to {self._path}: {error}") from error

    def close(self) -> None:
        """What was not committed is gone."""
        self._database.close()

    def retained_messages(self) -> list[Message]:
        """Raises StoreError for what cannot be read."""
        return [self._unpack(raw) for (raw,) in self._rows(tuple[bytes], "SELECT message FROM retained")]

    def wills(self) -> list[WillMessage]:
        """Wills that were on their way when the last process ended. Raises StoreError for what cannot be read."""
        return [self._unpacked(raw, WillMessage) for (raw,) in self._rows(tuple[bytes], "SELECT message FROM wills")]

    def delivered_wills(self) -> list[bytes]:
        """The tokens of wills that were delivered here, the oldest first."""
        return [token for (token,) in self._rows(tuple[bytes], "SELECT token FROM delivered_wills ORDER BY id")]

    def saved(self) -> Iterator[SavedSession]:
        """All sessions; their deliveries are known to this store from then on. Raises StoreError."""
        deliveries = self._deliveries()
        for client, expiry_s, expires_at, user, will, will_at in self._rows(_SESSION, "SELECT * FROM sessions"):
            found = deliveries.get(client, [])
            incoming = self._rows(tuple[_PacketId], "SELECT packet_id FROM incoming WHERE client = ?", client)
            yield SavedSession(
                client_id=client,
                expiry_s=expiry_s,
                expires_at=self._here(expires_at),
                user=user,
                will=None if will is None else self._decoded(will, Will),
                will_at=self._here(will_at),
                subscriptions=self._subscriptions(client),
                queue=[delivery for delivery in found if not delivery.packet_id],
                inflight=[delivery for delivery in found if delivery.packet_id],
                incoming=[packet_id for (packet_id,) in incoming],
            )

    def _subscriptions(self, client: str) -> list[tuple[Subscription, int | None]]:
        query = "SELECT filter, qos, no_local, as_published, identifier FROM subscriptions WHERE client = ?"
        return [
            (Subscription(name, qos, bool(no_local), bool(as_published)), identifier)
            for name, qos, no_local, as_published, identifier in self._rows(_SUBSCRIPTION, query, client)
        ]

    def _deliveries(self) -> dict[str, list[Delivery]]:
        """Of each client, in the order in which they were queued or sent; one message is one object again."""
        rows = self._rows(tuple[int, bytes], "SELECT id, message FROM messages")
        messages = {row: self._unpack(raw) for row, raw in rows}
        self._uses = dict.fromkeys(messages, 0)
        found: dict[str, list[Delivery]] = {}
        query = "SELECT * FROM deliveries ORDER BY id"
        for row, client, message, qos, retain, ids, state, packet_id in self._rows(_DELIVERY, query):
            if message not in messages:
                raise StoreError(f"{self._path} is damaged: a message is missing")
            subscription_ids = self._decoded(ids, tuple[int, ...])
            delivery = Delivery(messages[message], qos, bool(retain), subscription_ids, packet_id, state == RECEIVED)
            self._places[delivery] = row, message
            self._uses[message] += 1
            found.setdefault(client, []).append(delivery)
        return found

    def _decoded(self, raw: bytes, kind: type[T]) -> T:
        try:
            return msgspec.msgpack.decode(raw, type=kind)
        except msgspec.DecodeError as error:
            raise StoreError(f"{self._path} is damaged: {error}") from None

    def _rows(self, kind: type[T], query: str, *values: object) -> list[T]:
        try:
            with closing(self._database.execute(query, values)) as cursor:
                return msgspec.convert(cursor.fetchall(), list[kind])  # type: ignore[valid-type]
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise StoreError(f"cannot read {self._path}: {error}") from None
        except msgspec.ValidationError as error:
            raise StoreError(f"{self._path} is damaged: {error}") from None


def _with_expiry(message: M, expires_at: float | None) -> M:
    return message if message.expires_at is None else msgspec.structs.replace(message, expires_at=expires_at)
