"""What a publisher does when its connection is lost with messages under way; the test plays the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ringmq.mqtt_front.client.shell import client as client_module
from ringmq.mqtt_front.client.shell.client import Client, ClientSettings
from ringmq.mqtt_front.codec.packets import (
    NO_PROPERTIES,
    Connect,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Version,
)
from ringmq.peer.cli.clients.attending import Teller
from ringmq.peer.cli.clients.pub import Order, PublishTask
from tests.mqtt_front.client.shell.fake_servers import PlayedServer


@pytest_asyncio.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PlayedServer]:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.01)
    played = PlayedServer()
    await played.start()
    yield played
    await played.stop()


class Publishing:
    """A publisher of one message, under way."""

    def __init__(self, server: PlayedServer, qos: int) -> None:
        task = PublishTask(Order("a", qos, False, NO_PROPERTIES), Teller(quiet=False, debug=False))
        settings = ClientSettings(Connect(Version.V5, "c", True, 60), (server.address,))
        self.client = Client(settings, task.take, Teller(quiet=True, debug=False).say)
        self._running = asyncio.create_task(self.client.run())
        self.working = asyncio.create_task(task.work(self.client, task.repeated(self.client, b"x"), None))

    async def status(self) -> int:
        async with asyncio.timeout(10):
            found = await self.working
        self._running.cancel()
        await self.client.leave()
        return found


async def test_a_message_without_acknowledgement_is_published_again(
    server: PlayedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    publishing = Publishing(server, 1)
    first = await server.admitted()
    assert isinstance(await first.packet(), Publish)
    first.drop()
    second = await server.admitted()
    again = await second.packet()
    assert isinstance(again, Publish)
    assert (again.payload, again.qos, again.dup) == (b"x", 1, False)
    second.send(Puback(again.packet_id))
    assert await second.packet() == Pingreq()
    second.send(Pingresp())
    assert await publishing.status() == 0
    assert capsys.readouterr().err == "ringmq: publishing 1 messages again: some may arrive twice\n"


async def test_a_message_that_the_server_has_is_not_published_again(server: PlayedServer) -> None:
    publishing = Publishing(server, 2)
    first = await server.admitted()
    sent = await first.packet()
    assert isinstance(sent, Publish)
    first.send(Pubrec(sent.packet_id))
    assert await first.packet() == Pubrel(sent.packet_id)
    first.drop()
    second = await server.admitted()
    assert await second.packet() == Pingreq()
    second.send(Pingresp())
    assert await publishing.status() == 0


async def test_a_message_with_qos_0_is_done_when_the_server_has_read_it(server: PlayedServer) -> None:
    publishing = Publishing(server, 0)
    visit = await server.admitted()
    assert isinstance(await visit.packet(), Publish)
    assert await visit.packet() == Pingreq()
    assert not publishing.working.done()
    visit.send(Pingresp())
    assert await publishing.status() == 0


async def test_a_connection_that_is_lost_before_the_answer_to_the_ping_is_not_enough(server: PlayedServer) -> None:
    publishing = Publishing(server, 0)
    visit = await server.admitted()
    await visit.packet()
    await visit.packet()
    visit.drop()
    again = await server.admitted()
    assert await again.packet() == Pingreq()
    assert not publishing.working.done()
    again.send(Pingresp())
    assert await publishing.status() == 0
