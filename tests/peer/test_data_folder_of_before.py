"""The data folder of the version before, with topics instead of partitions, is taken over; a newer one is refused."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ringmq.mqtt_front.codec.packets import Connack, Connect, Publish, Version
from tests.peer.rings import Start
from tests.peer.test_full_partitions import RawClient

IDENTITY = '{"id": "7f7ce392feddb4cacba0e0aa6aaaf974", "boot": 1795131929874, "peers": []}'

CLIENTS = """
CREATE TABLE deliveries (id INTEGER PRIMARY KEY, client TEXT, message INTEGER, qos INTEGER, retain INTEGER,
    identifiers BLOB, state INTEGER, packet_id INTEGER);
INSERT INTO "deliveries" VALUES(1,'keeper',1,1,0,X'90',0,0);
INSERT INTO "deliveries" VALUES(2,'keeper',2,1,0,X'90',0,0);
CREATE TABLE incoming (client TEXT, packet_id INTEGER, PRIMARY KEY (client, packet_id)) WITHOUT ROWID;
CREATE TABLE messages (id INTEGER PRIMARY KEY, message BLOB);
INSERT INTO "messages" VALUES(1,X'87A5746F706963A968616C6C2F6C616D70A77061796C6F6164C4026F6EA3716F7301A672657461696EC3'
||X'AA70726F70657274696573C400AA657870697265735F6174C0A66F726967696EA170');
INSERT INTO "messages" VALUES(2,X'87A5746F706963AB68616C6C2F372F646F6F72A77061796C6F6164C4046F70656EA3716F7301A6726574'
||X'61696EC2AA70726F70657274696573C400AA657870697265735F6174C0A66F726967696EA170');
CREATE TABLE retained (topic TEXT PRIMARY KEY, message BLOB) WITHOUT ROWID;
CREATE TABLE sessions (client TEXT PRIMARY KEY, expiry_s INTEGER, expires_at REAL, user TEXT, will BLOB, will_at REAL)
    WITHOUT ROWID;
INSERT INTO "sessions" VALUES('keeper',4294967295,NULL,NULL,NULL,NULL);
CREATE TABLE subscriptions (client TEXT, filter TEXT, qos INTEGER, no_local INTEGER, as_published INTEGER,
    identifier INTEGER, PRIMARY KEY (client, filter)) WITHOUT ROWID;
INSERT INTO "subscriptions" VALUES('keeper','hall/+/door',1,0,0,NULL);
INSERT INTO "subscriptions" VALUES('keeper','hall/lamp',1,0,0,NULL);
UPDATE messages SET message = CAST(message AS BLOB);
PRAGMA user_version = 1;
"""
RETAINED = """
CREATE TABLE cleared (topic TEXT PRIMARY KEY, stamp INTEGER, publisher INTEGER, at REAL) WITHOUT ROWID;
INSERT INTO "cleared" VALUES('hall/old',1795131931548103,5449602571656952180,1.79513193154820632933e+09);
CREATE TABLE notes (place TEXT, topic TEXT, number INTEGER, PRIMARY KEY (place, topic)) WITHOUT ROWID;
INSERT INTO "notes" VALUES('#','hall/lamp',1795131931504178);
INSERT INTO "notes" VALUES('hall/#','hall/lamp',1795131931504178);
CREATE TABLE retained (topic TEXT PRIMARY KEY, stamp INTEGER, publisher INTEGER, expires_at REAL, body BLOB)
    WITHOUT ROWID;
INSERT INTO "retained" VALUES('hall/lamp',1795131931504178,5449602571656952180,NULL,X'010000000000000000006F6E');
PRAGMA user_version = 1;
"""
"""Both as that version left them: a kept session, two messages for it, a retained message and a cleared one."""

OPTIONS = ("--overlay", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--timing", "local", "--no-discovery")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "peer.json").write_text(IDENTITY)
    for name, dump in (("clients", CLIENTS), ("retained", RETAINED)):
        with closing(sqlite3.connect(tmp_path / f"{name}.sqlite")) as database:
            database.executescript(dump)
    return tmp_path


def test_sessions_and_retained_messages_of_the_version_before_are_there(
    start: Start, ringmq: Start, folder: Path
) -> None:
    peer = start("peer", *OPTIONS, "--data", str(folder))
    overlay = peer.says("active: 7f7ce392").rpartition(" ")[2]
    status = json.loads(ringmq("status", "--peer", overlay, "--json").out)
    address = status["listeners"]["mqtt"]
    reader = RawClient(address, "reader", Version.V311)
    assert reader.subscribe("hall/#") == (1,)
    assert _messages(reader, 1) == [("hall/lamp", b"on", True)]
    keeper = RawClient(address, "keeper", Version.V311, connect=False)
    connack = keeper.ask(Connect(Version.V311, "keeper", False, 0))
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert _messages(keeper, 2) == [("hall/lamp", b"on", False), ("hall/7/door", b"open", False)]
    reader.publish("hall/9/door")
    assert _messages(keeper, 1) == [("hall/9/door", b"x", False)]


def _messages(client: RawClient, count: int) -> list[tuple[str, bytes, bool]]:
    packets: list[Any] = [client.take() for _ in range(count)]
    assert all(isinstance(packet, Publish) for packet in packets)
    return [(packet.topic, bytes(packet.payload), packet.retain) for packet in packets]


@pytest.mark.parametrize("name", ["clients", "retained"])
def test_a_file_of_a_later_version_ends_the_start_with_one_line(ringmq: Start, folder: Path, name: str) -> None:
    with closing(sqlite3.connect(folder / f"{name}.sqlite")) as database:
        database.execute("PRAGMA user_version = 99")
    ended = ringmq("peer", *OPTIONS, "--data", str(folder))
    assert ended.popen.returncode != 0
    lines = [line for line in ended.err.splitlines() if line.startswith("ringmq: ")]
    assert len(lines) == 1
    assert f"{name}.sqlite is of version 99" in lines[0]
