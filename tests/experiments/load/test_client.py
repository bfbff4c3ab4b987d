"""Clients on the event loop at a real front, and at servers that go away."""

from __future__ import annotations

import asyncio

import pytest

from ringmq.experiments.load.client import Client, talking
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.servers import Server
from ringmq.mqtt_front.codec.packets import Publish

WITHIN_S = 10.0


class Heard:
    """Keeps what came, and waits for it."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Publish] = asyncio.Queue()

    def __call__(self, message: Publish) -> None:
        self._queue.put_nowait(message)

    async def next(self) -> tuple[str, bytes, int, bool]:
        message = await asyncio.wait_for(self._queue.get(), WITHIN_S)
        return message.topic, bytes(message.payload), message.qos, message.retain


async def test_messages_pass_with_both_qualities(ringmq_server: Server) -> None:
    heard = Heard()
    async with (
        talking(ringmq_server.address, "talk-a", heard) as one,
        talking(ringmq_server.address, "talk-b") as other,
    ):
        await one.subscribed("talk/+", qos=1)
        other.publish("talk/0", b"a")
        assert await heard.next() == ("talk/0", b"a", 0, False)
        await asyncio.wait_for(other.publish_1("talk/1", b"b"), WITHIN_S)
        assert await heard.next() == ("talk/1", b"b", 1, False)
        await asyncio.wait_for(one.unsubscribe("talk/+"), WITHIN_S)
        await asyncio.wait_for(other.publish_1("talk/1", b"c", retain=True), WITHIN_S)
        await one.subscribed("talk/1")
        assert await heard.next() == ("talk/1", b"c", 0, True)


async def test_more_messages_than_a_receiver_may_have_unacknowledged(ringmq_server: Server) -> None:
    heard = Heard()
    async with (
        talking(ringmq_server.address, "talk-c", heard) as one,
        talking(ringmq_server.address, "talk-d") as other,
    ):
        await one.subscribed("talk/many", qos=1)
        answers = [other.publish_1("talk/many", b"%d" % number) for number in range(300)]
        await asyncio.wait_for(asyncio.gather(*answers), WITHIN_S)
        assert [(await heard.next())[1] for _ in answers] == [b"%d" % number for number in range(300)]


async def test_a_refused_subscription_is_told(ringmq_server: Server) -> None:
    async with talking(ringmq_server.address, "talk-e") as client:
        with pytest.raises(BenchError):
            await client.subscribed("not/#/valid")


async def test_nobody_there_is_told() -> None:
    with pytest.raises(BenchError, match=r"cannot connect to 127\.0\.0\.1:"):
        await Client.connect(("127.0.0.1", choose_ports(0, 1)[0]), "talk")


async def test_an_end_is_told_to_all_who_wait() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x20\x02\x00\x00")
        await reader.read(100)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, talking(server.sockets[0].getsockname(), "talk") as client:
        waiting = [client.subscribe("a"), client.publish_1("a", b"")]
        for one in waiting:
            with pytest.raises(BenchError, match="closed the connection"):
                await asyncio.wait_for(one, WITHIN_S)
        assert client.ended
        with pytest.raises(BenchError, match="closed the connection"):
            await client.publish_1("a", b"")


async def test_a_refused_connection_is_told() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x20\x02\x00\x05")

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        with pytest.raises(BenchError, match="a CONNECT was refused"):
            await Client.connect(server.sockets[0].getsockname(), "talk")
