"""The disk of the partitioned engine's shell. Rings of such shells are in tests/peer/messaging/shell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from ringmq.mqtt_front.message import Message
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.coordinating.lasting import LASTING
from ringmq.peer.engines.partitioned.shell import adapter as adapter_module
from ringmq.peer.engines.partitioned.shell import record_store
from ringmq.peer.engines.partitioned.shell.adapter import PartitionedAdapter
from ringmq.peer.engines.partitioned.shell.record_store import RecordStore
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import LOCAL
from ringmq.peer.replication.record import RecordKind, SharedRecord

HOME: Final = Peer(Id(1), "10.0.0.1", 4883, 7)


async def test_without_a_store_the_front_keeps_its_retained_messages() -> None:
    adapter = PartitionedAdapter(LOCAL, Iteration())
    assert not adapter.take_over([Message("a", b"x", retain=True)])
    adapter.stop()


async def test_retained_messages_that_are_taken_over_are_committed_at_once(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "retained")
    adapter = PartitionedAdapter(LOCAL, Iteration(), store=store)
    assert adapter.take_over([Message("a", b"x", retain=True)])
    assert not store.pending
    adapter.stop()
    adapter.stop()
    again = RecordStore(tmp_path / "retained")
    assert [record.name for record in again.load().records] == ["a"]
    again.close()


async def test_a_disk_that_fails_is_a_fault_and_is_reported_once(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "retained")
    faults: list[str] = []
    adapter = PartitionedAdapter(LOCAL, Iteration(), store=store, on_fault=lambda: faults.append("fault"))
    store._database.execute("PRAGMA max_page_count = 1")
    messages = [Message("a", bytes(100_000), retain=True)]
    assert not adapter.take_over(messages)
    assert adapter.fault == f"cannot write to {tmp_path / 'retained'}: database or disk is full"
    assert not adapter.take_over(messages)
    assert faults == ["fault"]
    adapter.stop()


async def test_messages_of_the_disk_are_not_written_again(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "retained")
    adapter = PartitionedAdapter(LOCAL, Iteration(), store=store)
    assert adapter.take_over([Message("a", b"x", retain=True), Message("b", b"x", retain=True)])
    adapter.stop()
    store = RecordStore(tmp_path / "retained")
    adapter = PartitionedAdapter(LOCAL, Iteration(), store=store)
    assert not store.pending
    assert sorted(record.name for _, record in adapter.core.replicas) == ["a", "b"]
    adapter.stop()


async def test_a_message_that_is_taken_over_does_not_replace_what_the_ring_knows(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "retained")
    store.keep("kept", SharedRecord(RecordKind.RETAINED, "kept", None, (5, 6), False, body=b"\0of the ring"))
    store.keep("ended", SharedRecord(RecordKind.RETAINED, "ended", None, (7, 8), True))
    store.commit()
    adapter = PartitionedAdapter(LOCAL, Iteration(), store=store)
    assert adapter.take_over([Message(topic, b"old", retain=True) for topic in ("kept", "ended")])
    assert [(record.name, record.number) for _, record in adapter.core.replicas] == [("kept", (5, 6))]
    adapter.stop()


async def test_changes_of_entries_come_to_their_table_by_and_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adapter_module, "CHECKPOINT_S", 0.001)
    monkeypatch.setattr(record_store, "MOVED_AT_ONCE", 1)
    store = RecordStore(tmp_path / "retained")
    adapter = PartitionedAdapter(LOCAL, Iteration(), store=store)
    for count in range(3):
        store.keep_entry(SharedRecord(RecordKind.ENTRY, f"f/{count}", HOME, (7, count), False, flags=LASTING))
    adapter._commit()
    assert store.logged == 3
    async with asyncio.timeout(30):
        while store.logged:  # noqa: ASYNC110 - the store knows no loop
            await asyncio.sleep(0.01)
    adapter.stop()
    store = RecordStore(tmp_path / "retained")
    assert sorted(record.name for record in store.load().records) == ["f/0", "f/1", "f/2"]
    store.close()


async def test_a_checkpoint_that_fails_is_a_fault(tmp_path: Path) -> None:
    store = RecordStore(tmp_path / "retained")
    faults: list[str] = []
    adapter = PartitionedAdapter(LOCAL, Iteration(), store=store, on_fault=lambda: faults.append("fault"))
    store.keep_entry(SharedRecord(RecordKind.ENTRY, "f", HOME, (7, 1), False, flags=LASTING))
    adapter._commit()
    store._database.execute("DROP TABLE entries")
    adapter._checkpoint()
    assert adapter.fault == f"cannot write to {tmp_path / 'retained'}: no such table: entries"
    assert faults == ["fault"]
    adapter.stop()
