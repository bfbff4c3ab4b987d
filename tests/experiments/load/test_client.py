"""Clients on the event loop at a real front, and at servers that refuse or close."""

from __future__ import annotations

import asyncio

import pytest

from ringmq.experiments.load.client import Client, connected_client
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.servers import Server
from ringmq.mqtt_front.codec.packets import Publish

WITHIN_S = 10.0


class MessageQueue:
    """Queues the messages of a client."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Publish] = asyncio.Queue()

    def __call__(self, message: Publish) -> None:
        self._queue.put_nowait(message)

    async def next(self) -> tuple[str, bytes, int, bool]:
        message = await asyncio.wait_for(self._queue.get(), WITHIN_S)
        return message.topic, bytes(message.payload), message.qos, message.retain


async def test_messages_pass_with_qos_0_and_1(ringmq_server: Server) -> None:
    messages = MessageQueue()
    async with (
        connected_client(ringmq_server.address, "talk-a", messages) as subscriber,
        connected_client(ringmq_server.address, "talk-b") as publisher,
    ):
        await subscriber.subscribe_and_wait("talk/+", qos=1)
        publisher.publish("talk/0", b"a")
        assert await messages.next() == ("talk/0", b"a", 0, False)
        await asyncio.wait_for(publisher.publish_qos1("talk/1", b"b"), WITHIN_S)
        assert await messages.next() == ("talk/1", b"b", 1, False)
        await asyncio.wait_for(subscriber.unsubscribe("talk/+"), WITHIN_S)
        await asyncio.wait_for(publisher.publish_qos1("talk/1", b"c", retain=True), WITHIN_S)
        await subscriber.subscribe_and_wait("talk/1")
        assert await messages.next() == ("talk/1", b"c", 0, True)


async def test_client_acknowledges_more_messages_than_a_front_keeps_in_flight(ringmq_server: Server) -> None:
    messages = MessageQueue()
    async with (
        connected_client(ringmq_server.address, "talk-c", messages) as subscriber,
        connected_client(ringmq_server.address, "talk-d") as publisher,
    ):
        await subscriber.subscribe_and_wait("talk/many", qos=1)
        answers = [publisher.publish_qos1("talk/many", b"%d" % number) for number in range(300)]
        await asyncio.wait_for(asyncio.gather(*answers), WITHIN_S)
        assert [(await messages.next())[1] for _ in answers] == [b"%d" % number for number in range(300)]


async def test_refused_subscription_is_an_error(ringmq_server: Server) -> None:
    async with connected_client(ringmq_server.address, "talk-e") as client:
        with pytest.raises(BenchError):
            await client.subscribe_and_wait("not/#/valid")


async def test_closed_port_is_an_error() -> None:
    with pytest.raises(BenchError, match=r"cannot connect to 127\.0\.0\.1:"):
        await Client.connect(("127.0.0.1", choose_ports(0, 1)[0]), "talk")


async def test_end_of_the_connection_fails_all_answers() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x20\x02\x00\x00")
        await reader.read(100)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, connected_client(server.sockets[0].getsockname(), "talk") as client:
        waiting = [client.subscribe("a"), client.publish_qos1("a", b"")]
        for answer_future in waiting:
            with pytest.raises(BenchError, match="closed the connection"):
                await asyncio.wait_for(answer_future, WITHIN_S)
        assert client.ended
        with pytest.raises(BenchError, match="closed the connection"):
            await client.publish_qos1("a", b"")


async def test_refused_connection_is_an_error() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"\x20\x02\x00\x05")

    server = await asyncio.start_server(refuse, "127.0.0.1", 0)
    async with server:
        with pytest.raises(BenchError, match="a CONNECT was refused"):
            await Client.connect(server.sockets[0].getsockname(), "talk")
