"""What makes a front durable: sessions, subscriptions, waiting messages and retained ones in one SQLite file.

Changes gather while the turn of the event loop lasts, and are committed in one transaction before anything is sent; so
what a client was told is on disk. Only sessions that outlive their connection are written. Times in the file are those
of the wall clock, since the one of the process begins anew.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mqtt_front.errors import FrontError
from mqtt_front.message import Message
from mqtt_front.router import Router
from mqtt_front.session import Delivery, Session

VERSION: Final = 1
"""Of the tables; a file of another version is refused, not guessed at."""

QUEUED, SENT, RECEIVED = 0, 1, 2

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS sessions (client TEXT PRIMARY KEY, expiry_s INTEGER, expires_at REAL, user TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS subscriptions (client TEXT, filter TEXT, qos INTEGER, no_local INTEGER, as_published INTEGER,
    identifier INTEGER, PRIMARY KEY (client, filter)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, topic TEXT, payload BLOB, qos INTEGER, retain INTEGER,
    properties BLOB, expires_at REAL, origin TEXT);
CREATE TABLE IF NOT EXISTS deliveries (id INTEGER PRIMARY KEY, client TEXT, message INTEGER, qos INTEGER, retain INTEGER,
    identifiers BLOB, state INTEGER, packet_id INTEGER);
CREATE INDEX IF NOT EXISTS deliveries_of_message ON deliveries (message);
CREATE INDEX IF NOT EXISTS deliveries_of_client ON deliveries (client);
CREATE TABLE IF NOT EXISTS incoming (client TEXT, packet_id INTEGER, PRIMARY KEY (client, packet_id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS retained (topic TEXT PRIMARY KEY, message BLOB, expires_at REAL) WITHOUT ROWID;
"""
