"""The turn of a front that keeps what it is told: first the disk, then the clients."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ringmq.mqtt_front.codec.packets import Disconnect, Publish
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.journal import NoJournal
from tests.mqtt_front.front_bench import DEADLINE_S, Bench, until

if TYPE_CHECKING:
    from ringmq.mqtt_front.sessions.session import Session


class FullDisk(NoJournal):
    """Accepts `turns` commits, then fails."""

    def __init__(self, turns: int) -> None:
        self.turns = turns
        self.pending = False
        self.open = True

    def session(self, session: Session) -> None:
        self.pending = True

    def retained(self, message: Message) -> None:
        self.pending = True

    def commit(self) -> None:
        if self.pending and not self.turns:
            raise FrontError("cannot write to clients.sqlite: database or disk is full")
        self.turns -= self.pending
        self.pending = False

    def close(self) -> None:
        self.open = False


async def test_nothing_is_acknowledged_that_was_not_committed(bench: Bench) -> None:
    failed = asyncio.Event()
    front = await bench.start(on_fault=failed.set)
    journal = front.broker.journal = FullDisk(turns=1)
    client = await bench.connect("c", properties={"session_expiry_s": 1000})
    other = await bench.connect("other")
    client.send(Publish("t", b"x", 1, retain=True, packet_id=1))
    assert await client.closed(), "without a PUBACK"
    assert await other.closed()
    await asyncio.wait_for(failed.wait(), DEADLINE_S)
    assert front.fault == "cannot write to clients.sqlite: database or disk is full"
    await front.stop()
    assert not journal.open


async def test_change_without_a_receiver_is_committed(bench: Bench) -> None:
    """A retained message with QoS 0: there is nothing to send, and yet something to commit."""
    front = await bench.start()
    journal = front.broker.journal = FullDisk(turns=1)
    client = await bench.connect("c")
    client.send(Publish("t", b"x", retain=True))
    await until(lambda: journal.turns == 0)
    assert front.fault is None


async def test_a_stop_commits_and_closes(bench: Bench) -> None:
    front = await bench.start()
    journal = front.broker.journal = FullDisk(turns=2)
    client = await bench.connect("c", properties={"session_expiry_s": 1000})
    await front.stop()
    assert (journal.turns, journal.pending, journal.open) == (0, False, False)
    assert (await client.next(Disconnect)).reason is Reason.SERVER_SHUTTING_DOWN
