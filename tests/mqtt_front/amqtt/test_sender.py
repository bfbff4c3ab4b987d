"""Messages in flight to a client, and their fate when the client does not acknowledge them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("amqtt", reason="the extra amqtt is not installed")

from amqtt.session import ApplicationMessage, Session

from ringmq.mqtt_front.amqtt.sender import READY, Sender
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.counters import FrontCounters
from tests.mqtt_front.amqtt_bench import until


class Handler:
    """amqtt's, which is done with a message when the test says so."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes, int, bool]] = []
        self.acknowledged: list[asyncio.Future[None]] = []

    async def mqtt_publish(self, topic: str, data: bytes, qos: int, retain: bool) -> None:
        self.sent.append((topic, data, qos, retain))
        self.acknowledged.append(asyncio.get_running_loop().create_future())
        await self.acknowledged[-1]


class Sent:
    """A session, its handler and its client, here or not."""

    def __init__(self, clean: bool = False, connected: bool = True) -> None:
        self.counters = FrontCounters()
        self.sending = Sender(FrontConfig(max_queued=2), self.counters)
        self.handler = Handler()
        self.session = Session()
        self.session.client_id, self.session.clean_session = "c", clean
        if connected:
            self.session.attributes[READY] = True

    def hand(self, payload: bytes = b"x", qos: int = 1, handler: Any = ...) -> None:
        message = ApplicationMessage(None, "t", 2, payload, False)
        self.sending.deliver(self.session, self.handler if handler is ... else handler, message, qos)

    @property
    def kept(self) -> list[tuple[bytes, int]]:
        queue = self.session.retained_messages
        found = [queue.get_nowait() for _ in range(queue.qsize())]
        assert not any(message.retain for message in found)
        return [(message.data, message.qos) for message in found]


@pytest.fixture
async def sent() -> AsyncIterator[Sent]:
    made = Sent()
    yield made
    for acknowledged in made.handler.acknowledged:
        acknowledged.cancel()


async def test_acknowledged_message_is_not_kept(sent: Sent) -> None:
    sent.hand()
    await until(lambda: sent.handler.sent == [("t", b"x", 1, False)])
    sent.handler.acknowledged[0].set_result(None)
    await until(lambda: sent.counters.publish_sent == 1)
    assert sent.kept == []


@pytest.mark.parametrize("how", ["time", "end"])
async def test_unacknowledged_message_is_queued(sent: Sent, how: str) -> None:
    sent.hand(b"one")
    sent.hand(b"none", qos=0)
    await until(lambda: len(sent.handler.sent) == 2)
    for acknowledged in sent.handler.acknowledged:
        if how == "time":
            acknowledged.set_exception(TimeoutError())
        else:
            acknowledged.cancel()
    await until(sent.session.retained_messages.qsize)
    await asyncio.sleep(0)
    assert sent.kept == [(b"one", 1)]


async def test_clean_session_loses_unacknowledged_messages() -> None:
    sent = Sent(clean=True)
    sent.hand()
    await until(lambda: sent.handler.acknowledged)
    sent.handler.acknowledged[0].cancel()
    await until(lambda: not sent.sending._in_flight)
    assert sent.kept == []


async def test_messages_in_flight_are_queued_in_order(sent: Sent) -> None:
    sent.hand(b"1")
    await until(lambda: sent.handler.acknowledged)
    sent.hand(b"2", qos=2)
    sent.hand(b"0", qos=0)
    sent.sending.cut(sent.session)
    assert sent.kept == [(b"1", 1), (b"2", 2)]
    sent.sending.cut(sent.session)
    await until(sent.handler.acknowledged[0].cancelled)
    assert (sent.kept, sent.sending._in_flight) == ([], {})


async def test_message_acknowledged_before_the_cut_is_not_queued(sent: Sent) -> None:
    sent.hand()
    await until(lambda: sent.handler.acknowledged)
    (task,) = sent.sending._in_flight["c"]
    sent.handler.acknowledged[0].set_result(None)
    task.add_done_callback(lambda _: sent.sending.cut(sent.session))
    await until(task.done)
    await asyncio.sleep(0)
    assert sent.kept == []


async def test_no_more_is_in_flight_than_may_wait(sent: Sent) -> None:
    for _ in range(3):
        sent.hand()
    assert sent.counters.publish_dropped == 1
    await until(lambda: len(sent.handler.acknowledged) == 2)
    sent.handler.acknowledged[0].set_result(None)
    await until(lambda: sent.counters.publish_sent)
    sent.hand()
    assert sent.counters.publish_dropped == 1


async def test_message_for_a_disconnected_client_is_queued() -> None:
    sent = Sent(connected=False)
    sent.hand(b"1")
    sent.hand(b"0", qos=0)
    sent.hand(b"2", qos=2)
    sent.hand(b"over")
    assert sent.kept == [(b"1", 1), (b"2", 2)]
    assert (sent.handler.sent, sent.counters.publish_dropped) == ([], 1)


async def test_message_without_a_handler_is_queued(sent: Sent) -> None:
    sent.hand(handler=None)
    assert sent.kept == [(b"x", 1)]
