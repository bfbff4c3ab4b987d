"""The disk of the coordinated engine's shell. Rings of such shells are in tests/peer/messaging/shell."""

from __future__ import annotations

from pathlib import Path

from ringmq.mqtt_front.message import Message
from ringmq.peer.engines.coordinated.shell.adapter import CoordinatedAdapter
from ringmq.peer.engines.coordinated.shell.retained_store import RetainedStore
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import LOCAL


async def test_without_a_store_the_front_keeps_its_retained_messages() -> None:
    adapter = CoordinatedAdapter(LOCAL, Iteration())
    assert not adapter.take_over([Message("a", b"x", retain=True)])
    adapter.stop()


async def test_retained_messages_that_are_taken_over_are_committed_at_once(tmp_path: Path) -> None:
    store = RetainedStore(tmp_path / "retained")
    adapter = CoordinatedAdapter(LOCAL, Iteration(), store=store)
    assert adapter.take_over([Message("a", b"x", retain=True)])
    assert not store.pending
    adapter.stop()
    adapter.stop()
    again = RetainedStore(tmp_path / "retained")
    assert list(again.load().places) == ["a"]
    again.close()


async def test_a_disk_that_fails_is_a_fault_and_is_reported_once(tmp_path: Path) -> None:
    store = RetainedStore(tmp_path / "retained")
    faults: list[str] = []
    adapter = CoordinatedAdapter(LOCAL, Iteration(), store=store, on_fault=lambda: faults.append("fault"))
    store._database.execute("PRAGMA max_page_count = 1")
    messages = [Message("a", bytes(100_000), retain=True)]
    assert not adapter.take_over(messages)
    assert adapter.fault == f"cannot write to {tmp_path / 'retained'}: database or disk is full"
    assert not adapter.take_over(messages)
    assert faults == ["fault"]
    adapter.stop()
