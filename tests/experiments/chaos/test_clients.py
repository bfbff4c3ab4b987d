"""Clients of a run at a real front: what they record when connections open, end and come back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest

from ringmq.experiments.chaos.clients import ChaosClient
from ringmq.experiments.chaos.history import MessageKind
from ringmq.experiments.chaos.recorder import Recorder
from ringmq.experiments.chaos.traffic import WillClient
from ringmq.experiments.processes.servers import Server

WITHIN_S = 10.0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.01)


class Clients:
    """Makes clients of one front, and closes them."""

    def __init__(self, server: Server) -> None:
        self.recorder = Recorder()
        self.made: list[ChaosClient] = []
        self._server = server

    async def dial(self, peer: int) -> socket.socket:
        line = socket.create_connection(self._server.address, 5)
        line.setblocking(False)
        return line

    async def come(self, name: str, *wanted: tuple[str, int], kept: bool = False) -> ChaosClient:
        client = ChaosClient(self.recorder, self.dial, name, 0, kept)
        client.wanted = list(wanted)
        return await self.add(client)

    async def add(self, client: ChaosClient) -> ChaosClient:
        self.made.append(client)
        client.come()
        await until(lambda: client.is_ready)
        return client

    def numbers(self, name: str) -> list[int]:
        return [got.number for got in self.recorder.history.deliveries if got.client == name]


@pytest.fixture
async def clients(ringmq_server: Server) -> AsyncIterator[Clients]:
    made = Clients(ringmq_server)
    yield made
    for client in made.made:
        await client.close()


@pytest.mark.parametrize("name", ["chaos-a", "chaos-b"], ids=["one version", "the other"])
async def test_messages_their_acknowledgements_and_deliveries_are_recorded(clients: Clients, name: str) -> None:
    await clients.come(f"{name}-sub", (f"{name}/#", 2))
    publisher = await clients.come(name)
    sent = [publisher.publish(f"{name}/x", qos) for qos in (0, 1, 2)]
    await until(lambda: len(clients.numbers(f"{name}-sub")) == 3 and not publisher.pending)
    assert [message.is_acknowledged for message in sent if message] == [False, True, True]
    assert sorted(clients.numbers(f"{name}-sub")) == [message.number for message in sent if message]
    (entry,) = clients.recorder.history.entries
    assert entry.is_granted
    assert entry.ended_at is None


async def test_a_kept_client_comes_back_to_its_session_and_a_clean_one_subscribes_again(clients: Clients) -> None:
    kept = await clients.come("chaos-kept", ("k/#", 1), kept=True)
    clean = await clients.come("chaos-clean", ("k/#", 1))
    publisher = await clients.come("chaos-pub")
    for client in (kept, clean):
        client.drop()
    await until(lambda: not kept.is_open and not clean.is_open)
    missed = publisher.publish("k/1", 1)
    assert missed is not None
    await until(lambda: missed.is_acknowledged)
    for client in (kept, clean):
        client.come()
    await until(lambda: clean.is_ready and clients.numbers("chaos-kept"))
    history = clients.recorder.history
    assert clients.numbers("chaos-kept") == [missed.number]
    assert clients.numbers("chaos-clean") == []
    assert [(each.present, each.returning) for each in history.attachments if each.client == "chaos-kept"] == [
        (False, False),
        (True, True),
    ]
    ended = {entry.client: entry.ended_at is not None for entry in reversed(history.entries)}
    assert ended == {"chaos-kept": False, "chaos-clean": True}
    assert len([entry for entry in history.entries if entry.client == "chaos-clean"]) == 2


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_will_is_noted_as_wanted_unless_its_client_said_good_bye(clients: Clients, wanted: bool) -> None:
    await clients.come("chaos-heir", ("w/#", 1))
    will = await clients.add(WillClient(clients.recorder, clients.dial, f"chaos-will-{wanted}", 0))
    will.drop() if wanted else will.leave()
    await until(lambda: clients.recorder.history.messages)
    (noted,) = clients.recorder.history.messages.values()
    assert (noted.source, noted.wanted, noted.topic) == (MessageKind.WILL, wanted, f"w/chaos-will-{wanted}")
    if wanted:
        await until(lambda: clients.numbers("chaos-heir") == [noted.number])


async def test_grants_are_called_at_the_suback_and_filters_end_with_unsubscribe(clients: Clients) -> None:
    client = await clients.come("chaos-grant")
    called: list[bool] = []
    client.subscribe("g/1", 1, lambda: called.append(client.recorder.history.entries[0].is_granted))
    await until(lambda: called)
    assert called == [True]
    client.unsubscribe("g/1")
    assert client.recorder.history.entries[0].ended_at is not None


async def test_a_slow_client_acknowledges_later_and_gets_everything(clients: Clients) -> None:
    slow = ChaosClient(clients.recorder, clients.dial, "chaos-slow", 0)
    slow.acknowledges_after_s = 0.05
    slow.wanted = [("slow/#", 2)]
    await clients.add(slow)
    publisher = await clients.come("chaos-quick")
    for number in range(5):
        publisher.publish("slow/x", 1 + number % 2)
    await until(lambda: len(clients.numbers("chaos-slow")) == 5 and not publisher.pending)
    assert slow.breaches == []


async def test_nothing_is_published_without_a_connection(clients: Clients) -> None:
    client = await clients.come("chaos-gone")
    client.drop()
    await until(lambda: not client.is_open)
    assert client.publish("a", 1) is None
    assert clients.recorder.history.messages == {}


async def test_a_publication_that_a_kept_client_sends_again_is_marked(clients: Clients) -> None:
    client = await clients.come("chaos-again", kept=True)
    message = client.publish("again", 1)
    assert message is not None
    client.drop()  # before the acknowledgement was read
    await until(lambda: not client.is_open)
    client.come()
    await until(lambda: client.is_ready and not client.pending)
    assert message.resent
    assert message.is_acknowledged
