"""A client that stays connected: to which address, after which ends, and what happens to its publications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from ringmq.mqtt_front.client.events import Acknowledged, Arrived, Completed, Opened, Ponged, Subscribed
from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.client.shell import client as client_module
from ringmq.mqtt_front.client.shell.client import Client, ClientSettings
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import NoConnectionError, Trouble
from tests.mqtt_front.client.shell.fake_servers import HOST, PlayedServer, Running

Run = Callable[..., Running]


@pytest_asyncio.fixture
async def server() -> AsyncIterator[PlayedServer]:
    played = PlayedServer()
    await played.start()
    yield played
    await played.stop()


@pytest_asyncio.fixture
async def run(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Run]:
    """Run a client; attempts come at once."""
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(client_module, "LONGEST_PAUSE_S", 0.02)
    running: list[Running] = []

    def runner(*addresses: ServerAddress, connect: Connect | None = None, reconnects: bool = True) -> Running:
        running.append(Running(*addresses, connect=connect, reconnects=reconnects))
        return running[-1]

    yield runner
    for each in running:
        await each.stop()


async def test_a_client_subscribes_gets_messages_and_leaves(server: PlayedServer, run: Run) -> None:
    running = run(server.address)
    visit = await server.admitted()
    assert isinstance(await running.event(), Opened)
    running.client.subscribe(Subscription("a/#", 1))
    asked = await visit.packet()
    assert isinstance(asked, Subscribe)
    visit.send(Suback(asked.packet_id, (Reason.GRANTED_QOS_1,)), Publish("a/b", b"c", 1, packet_id=7))
    assert isinstance(await running.event(), Subscribed)
    message = await running.event()
    assert isinstance(message, Arrived)
    running.client.acknowledge(message, running.client.connections)
    assert await visit.packet() == Puback(7)
    leaving = asyncio.create_task(running.client.leave())
    assert await visit.left()
    await leaving
    assert await running.failure() is None


async def test_the_next_address_is_tried_when_one_cannot_be_reached(
    server: PlayedServer, run: Run, closed_port: int
) -> None:
    running = run(ServerAddress(HOST, closed_port), server.address)
    await server.admitted()
    assert isinstance(await running.event(), Opened)
    assert running.notices == [f"{HOST}:{closed_port}: connection refused; trying {server.address}"]


async def test_the_first_connection_must_come_about(run: Run, closed_port: int) -> None:
    failure = await run(ServerAddress(HOST, closed_port)).failure()
    assert isinstance(failure, NoConnectionError)
    assert (failure.trouble, str(failure)) == (Trouble.NOBODY_LISTENS, f"{HOST}:{closed_port}: connection refused")


async def test_a_refusal_is_final_unless_it_may_pass(server: PlayedServer, run: Run) -> None:
    for reason, final in ((Reason.BAD_USER_NAME_OR_PASSWORD, True), (Reason.SERVER_BUSY, False)):
        running = run(server.address, ServerAddress(HOST, server.port))
        visit = await server.next()
        await visit.packet()
        visit.send(Connack(False, reason, Properties(reason_string="think\nagain")))
        if not final:
            await server.admitted()
            assert isinstance(await running.event(), Opened)
            continue
        failure = await running.failure()
        assert isinstance(failure, NoConnectionError)
        assert (failure.trouble, failure.reason) == (Trouble.REFUSED, reason)
        assert str(failure) == f"{server.address}: refused: bad user name or password (think again)"


async def test_a_lost_connection_is_followed_by_another(server: PlayedServer, run: Run) -> None:
    running = run(server.address)
    first = await server.admitted()
    await running.event()
    first.drop()
    await server.admitted()
    assert isinstance(await running.event(), Opened)
    assert running.client.connections == 2
    lost, again = running.notices
    assert lost.startswith(f"{server.address}: the connection was lost; connecting again in 0.0 s")
    assert again == f"{server.address}: connected again, in a new session"


async def test_a_server_that_is_away_is_tried_until_it_is_back(server: PlayedServer, run: Run) -> None:
    running = run(server.address)
    visit = await server.admitted()
    await running.event()
    port = server.port
    await server.stop()
    visit.drop()
    await running.notice("connection refused; connecting again")
    await server.start(port)
    await server.admitted()
    assert isinstance(await running.event(), Opened)


async def test_without_reconnecting_a_lost_connection_is_the_end(server: PlayedServer, run: Run) -> None:
    running = run(server.address, reconnects=False)
    (await server.admitted()).drop()
    assert str(await running.failure()) == f"{server.address}: the connection was lost"


@pytest.mark.parametrize("reason", [Reason.SESSION_TAKEN_OVER, Reason.NOT_AUTHORIZED])
async def test_an_end_that_would_come_again_is_final(server: PlayedServer, run: Run, reason: Reason) -> None:
    running = run(server.address)
    (await server.admitted()).send(Disconnect(reason))
    failure = await running.failure()
    assert isinstance(failure, NoConnectionError)
    assert (failure.trouble, failure.reason) == (Trouble.ENDED, reason)


async def test_a_server_that_shuts_down_is_left_for_the_next(server: PlayedServer, run: Run) -> None:
    other = PlayedServer()
    await other.start()
    try:
        running = run(server.address, other.address)
        visit = await server.admitted()
        await server.stop()
        visit.send(Disconnect(Reason.SERVER_SHUTTING_DOWN))
        visit.drop()
        await other.admitted()
        await running.event()
        assert isinstance(await running.event(), Opened)
    finally:
        await other.stop()


@pytest.mark.parametrize(
    ("clean_start", "expiry_s", "resumes"), [(True, None, False), (True, 60, True), (False, 60, True)]
)
async def test_a_session_that_outlives_its_connection_is_resumed(
    server: PlayedServer, run: Run, clean_start: bool, expiry_s: int | None, resumes: bool
) -> None:
    connect = Connect(Version.V5, "c", clean_start, 60, properties=Properties(session_expiry_s=expiry_s))
    run(server.address, connect=connect)
    first = await server.admitted()
    assert first.connect == connect
    first.drop()
    second = await server.admitted(session_present=resumes)
    assert isinstance(second.connect, Connect)
    assert second.connect.clean_start is not resumes


async def test_publications_wait_for_their_acknowledgements(server: PlayedServer, run: Run) -> None:
    running = run(server.address)
    visit = await server.admitted()
    await running.client.ready()
    running.client.publish("a", b"b", 1, False)
    sent = await visit.packet()
    assert isinstance(sent, Publish)
    settled = asyncio.create_task(running.client.settled())
    await asyncio.sleep(0)
    assert not settled.done()
    visit.send(Puback(sent.packet_id))
    async with asyncio.timeout(10):
        await settled
    kinds = [type(await running.event()) for _ in range(3)]
    assert kinds == [Opened, Acknowledged, Completed]


async def test_discarded_publications_are_reported_at_the_next_connection(server: PlayedServer, run: Run) -> None:
    running = run(server.address)
    visit = await server.admitted()
    await running.client.ready()
    running.client.publish("a", b"b", 1, False)
    await visit.packet()
    visit.drop()
    await server.admitted()
    await running.event()
    again = await running.event()
    assert isinstance(again, Opened)
    assert [publication.payload for publication in again.discarded] == [b"b"]


async def test_an_acknowledgement_for_an_earlier_connection_is_dropped(server: PlayedServer, run: Run) -> None:
    running = run(server.address)
    visit = await server.admitted()
    visit.send(Publish("a", b"", 1, packet_id=1))
    await running.event()
    message = await running.event()
    assert isinstance(message, Arrived)
    visit.drop()
    again = await server.admitted()
    assert isinstance(await running.event(), Opened)
    running.client.acknowledge(message, 1)
    running.client.ping()
    assert await again.packet() == Pingreq()
    again.send(Pingresp())
    assert await running.event() == Ponged()


async def test_a_silent_server_is_pinged_and_then_lost(server: PlayedServer, run: Run) -> None:
    running = run(server.address, connect=Connect(Version.V5, "c", True, 1), reconnects=False)
    visit = await server.admitted()
    assert await visit.packet() == Pingreq()
    assert str(await running.failure()) == f"{server.address}: the connection was lost: no PINGRESP within 1 s"


async def test_a_client_that_reads_nothing_gets_nothing_and_still_sends(server: PlayedServer, run: Run) -> None:
    running = run(server.address)
    visit = await server.admitted()
    await running.event()
    running.client.read_nothing(True)
    visit.send(Publish("a", b"1"))
    running.client.publish("a", b"2", 0, False)
    assert await visit.packet() == Publish("a", b"2")
    assert running.events.empty()
    running.client.read_nothing(False)
    assert isinstance(await running.event(), Arrived)


async def test_ready_waits_while_the_server_reads_nothing(server: PlayedServer, run: Run) -> None:
    running = run(server.address)
    visit = await server.admitted()
    visit.writer.transport.pause_reading()
    payload = bytes(1 << 20)
    published = 0

    async def publish() -> None:
        nonlocal published
        while published < 64:
            await running.client.ready()
            running.client.publish("a", payload, 0, False)
            published += 1

    publishing = asyncio.create_task(publish())
    before = -1
    while before != published or published == 0:
        before = published
        for _ in range(100):
            await asyncio.sleep(0)
    assert published < 64
    visit.writer.transport.resume_reading()
    while published < 64:
        assert isinstance(await visit.packet(), Publish)
    await publishing


async def test_ready_waits_for_acknowledgements(
    server: PlayedServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_PENDING_BYTES", 2)
    running = run(server.address)
    visit = await server.admitted()
    for _ in range(2):
        await running.client.ready()
        running.client.publish("a", b"b", 1, False)
    packets = [await visit.packet() for _ in range(2)]
    ready = asyncio.create_task(running.client.ready())
    await asyncio.sleep(0)
    assert not ready.done()
    assert isinstance(packets[0], Publish)
    visit.send(Puback(packets[0].packet_id))
    async with asyncio.timeout(10):
        await ready
    # What a new session has discarded is not pending any more.
    running.client.publish("a", b"b", 1, False)
    visit.drop()
    await server.admitted()
    async with asyncio.timeout(10):
        await running.client.ready()


async def test_leaving_a_server_that_does_not_answer_ends(
    server: PlayedServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringmq.mqtt_front.client.shell.server_line.LEAVE_S", 0.05)
    running = run(server.address)
    visit = await server.admitted()
    await running.event()
    await running.client.leave()
    assert await visit.packet() == Disconnect()
    assert await running.failure() is None


async def test_a_server_that_never_answers_is_given_up(server: PlayedServer) -> None:
    settings = ClientSettings(Connect(Version.V5, "c", True, 60), (server.address,), connect_timeout_s=1.0)
    with pytest.raises(NoConnectionError, match=r"no answer within 1 s") as caught:
        await Client(settings, print, print).run()
    assert caught.value.trouble is Trouble.SILENT
    visit = await server.next()
    await visit.packet()
    assert await visit.reader.read() == b""
