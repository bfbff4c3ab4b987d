"""Fronts joined by a ring, with real sockets on both sides: clients of different peers talk to each other."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.server import Listen, MqttServer
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store
from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import LOCAL
from ringmq.overlay.node import Node
from ringmq.peer.engines.partitioned.shell.adapter import PartitionedAdapter
from ringmq.peer.engines.partitioned.shell.record_store import RecordStore
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import LOCAL as ROLES

PATIENCE_S = 20.0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - anything may become true, and nothing else should have to tell
            await asyncio.sleep(0.002)


class Client:
    """A client of MQTT 3.1.1 that notes what it is told."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._task = asyncio.create_task(self._read())
        self._ids = 0
        self.packets: list[tuple[int, bytes]] = []
        self.messages: list[tuple[str, bytes, bool]] = []

    @classmethod
    async def to(cls, port: int, name: str, clean: bool = True) -> Client:
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        payload = _text("MQTT") + bytes([4, 2 if clean else 0, 0, 0]) + _text(name)
        client._send(0x10, payload)
        await until(lambda: client.told(0x20))
        return client

    def told(self, kind: int) -> list[bytes]:
        return [body for first, body in self.packets if first & 0xF0 == kind]

    def _send(self, first: int, body: bytes) -> None:
        length, size = b"", len(body)
        while True:
            size, rest = divmod(size, 128)
            length += bytes([rest | (0x80 if size else 0)])
            if not size:
                break
        self._writer.write(bytes([first]) + length + body)

    async def subscribe(self, *filters: str) -> None:
        self._ids += 1
        packet_id = self._ids.to_bytes(2, "big")
        self._send(0x82, packet_id + b"".join(_text(one) + b"\x01" for one in filters))
        await until(lambda: any(body[:2] == packet_id for body in self.told(0x90)))

    async def unsubscribe(self, name: str) -> None:
        self._ids += 1
        self._send(0xA2, self._ids.to_bytes(2, "big") + _text(name))
        await until(lambda: self.told(0xB0))

    async def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False) -> None:
        self._ids += 1
        packet_id = self._ids.to_bytes(2, "big")
        self._send(0x30 | qos << 1 | retain, _text(topic) + (packet_id if qos else b"") + payload)
        if qos == 1:
            await until(lambda: any(body[:2] == packet_id for body in self.told(0x40)))

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                first = (await self._reader.readexactly(1))[0]
                size, shift = 0, 0
                while True:
                    byte = (await self._reader.readexactly(1))[0]
                    size |= (byte & 0x7F) << shift
                    shift += 7
                    if byte < 128:
                        break
                body = await self._reader.readexactly(size)
                self.packets.append((first, body))
                if first & 0xF0 == 0x30:
                    self._on_publish(first, body)

    def _on_publish(self, first: int, body: bytes) -> None:
        end = 2 + int.from_bytes(body[:2], "big")
        qos = first >> 1 & 3
        self.messages.append((body[2:end].decode(), body[end + 2 if qos else end :], bool(first & 1)))
        if qos:
            self._send(0x40, body[end : end + 2])

    async def close(self) -> None:
        self._writer.close()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def _text(text: str) -> bytes:
    return len(text.encode()).to_bytes(2, "big") + text.encode()


class PeerHere:
    """A peer without a process: node, roles and front. With a folder it keeps there what it must find again."""

    def __init__(self, number: int, seeds: tuple[tuple[str, int], ...], folder: Path | None = None) -> None:
        timing = dataclasses.replace(LOCAL, join_s=0.2)
        config = OverlayConfig(
            id=Id(number << 100), boot=1, listen=("127.0.0.1", 0), seeds=seeds, timing=timing, discovery=False
        )
        self.store = None if folder is None else RecordStore(folder / f"retained {number}")
        iteration = Iteration()
        self.faults: list[str | None] = []
        self.ports = PartitionedAdapter(ROLES, iteration, store=self.store, on_fault=self._failed)
        self.front = MqttServer(iteration, cluster=self.ports)
        self.node = Node(config, self.ports, iteration)
        self.ports.attach(self.node, self.front)
        if folder is not None:
            self.front.restore(Store(folder / f"clients {number}", 0.0))
        self.mqtt_port = 0

    def _failed(self) -> None:
        self.faults.append(self.ports.fault)

    async def start(self) -> None:
        await self.node.start()
        self.ports.begin()
        _, self.mqtt_port = await self.front.listen(Listen(host="127.0.0.1", port=0))
        await self.node.wait_active(PATIENCE_S)

    async def stop(self) -> None:
        await self.front.stop()
        self.ports.stop()
        await self.node.stop()


async def started(count: int, folder: Path | None = None) -> list[PeerHere]:
    peers: list[PeerHere] = []
    for number in range(1, count + 1):
        seeds = (peers[0].node.address,) if peers else ()
        peers.append(PeerHere(number, seeds, folder))
        await peers[-1].start()
    return peers


@contextlib.asynccontextmanager
async def lasting(count: int, folder: Path) -> AsyncIterator[list[PeerHere]]:
    """A ring whose peers keep what they must find again."""
    peers = await started(count, folder)
    try:
        yield peers
    finally:
        for one in peers:
            await one.stop()


@pytest.fixture
async def ring() -> AsyncIterator[Callable[[int], Coroutine[Any, Any, list[PeerHere]]]]:
    """Starts so many peers; all are stopped in the end."""
    peers: list[PeerHere] = []

    async def start(count: int) -> list[PeerHere]:
        peers.extend(await started(count))
        return peers

    yield start
    for one in peers:
        await one.stop()


async def test_clients_of_two_peers_talk(ring: Callable[[int], Coroutine[Any, Any, list[PeerHere]]]) -> None:
    peers = await ring(4)
    hearer = await Client.to(peers[0].mqtt_port, "hearer")
    await hearer.subscribe("room/+/heat", "room/1/light")
    speaker = await Client.to(peers[3].mqtt_port, "speaker")
    await speaker.publish("room/1/heat", b"21")
    assert hearer.messages == [("room/1/heat", b"21", False)], "PUBACK comes when the subscriber's peer holds it"
    await speaker.publish("room/1/light", b"on", qos=0)
    await until(lambda: len(hearer.messages) == 2)
    await hearer.unsubscribe("room/+/heat")
    await speaker.publish("room/1/heat", b"22")
    await speaker.publish("room/1/light", b"off")
    await until(lambda: len(hearer.messages) == 3)
    assert hearer.messages[2] == ("room/1/light", b"off", False)
    await hearer.close()
    await speaker.close()


async def test_retained_messages_reach_later_subscribers_anywhere(
    ring: Callable[[int], Coroutine[Any, Any, list[PeerHere]]],
) -> None:
    peers = await ring(3)
    speaker = await Client.to(peers[0].mqtt_port, "speaker")
    await speaker.publish("door/1", b"open", retain=True)
    await speaker.publish("door/2", b"shut", retain=True)
    hearers = [await Client.to(one.mqtt_port, f"hearer {place}") for place, one in enumerate(peers)]
    for hearer, name in zip(hearers, ("door/1", "door/+", "#"), strict=True):
        await hearer.subscribe(name)
    both = [("door/1", b"open", True), ("door/2", b"shut", True)]
    await until(lambda: hearers[0].messages == both[:1])
    await until(lambda: all(sorted(hearer.messages) == both for hearer in hearers[1:]))
    second = await Client.to(peers[2].mqtt_port, "second")
    await second.subscribe("#")
    await until(lambda: sorted(second.messages) == both)
    await speaker.publish("door/1", b"", retain=True)
    late = await Client.to(peers[1].mqtt_port, "late")
    await late.subscribe("#")
    await until(lambda: late.messages == both[1:])
    for client in (speaker, second, late, *hearers):
        await client.close()


async def test_one_member_of_a_group_gets_each_message(
    ring: Callable[[int], Coroutine[Any, Any, list[PeerHere]]],
) -> None:
    peers = await ring(3)
    members = [await Client.to(one.mqtt_port, f"member {place}") for place, one in enumerate(peers)]
    for member in members:
        await member.subscribe("$share/crew/job")
    await members[0].subscribe("job")
    for number in range(6):
        await members[2].publish("job", str(number).encode())
    await until(lambda: sum(len(member.messages) for member in members) >= 12)
    assert sorted(body for member in members for _, body, _ in member.messages) == sorted(
        b"001122334455"[n : n + 1] for n in range(12)
    )
    assert all(len(member.messages) == 2 for member in members[1:])
    for member in members:
        await member.close()


async def test_topics_of_the_server_stay_on_their_peer(
    ring: Callable[[int], Coroutine[Any, Any, list[PeerHere]]],
) -> None:
    (peer,) = await ring(1)
    answers: list[Reason] = []
    peer.ports.published(Message("$SYS/x", b"1"), 0, answers.append)
    assert answers == [Reason.SUCCESS]
    assert peer.ports.core.counters.published == 0
    client = await Client.to(peer.mqtt_port, "curious")
    await client.subscribe("$SYS/broker/version")
    await until(lambda: client.messages)
    await client.publish("nobody/wants/this", b"")
    await client.close()


async def test_retained_and_delivered_message_are_one_object(
    ring: Callable[[int], Coroutine[Any, Any, list[PeerHere]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    peers = await ring(2)
    given: list[Message] = []
    for one in peers:
        give = one.front.broker.distribute_unshared
        monkeypatch.setattr(one.front.broker, "distribute_unshared", lambda m, give=give: given.append(m) or give(m))
    clients = [await Client.to(one.mqtt_port, f"client {place}") for place, one in enumerate(peers)]
    for client in clients:
        await client.subscribe("a")
    await clients[0].publish("a", b"kept", retain=True)
    kept = [one.front.broker.retained.matching("a", 0.0) for one in peers]
    assert [len(messages) for messages in kept] == [1, 1]
    assert all(any(message is messages[0] for message in given) for messages in kept)
    for client in clients:
        await client.close()


async def _seen(port: int, *filters: str) -> dict[str, bytes]:
    """What a new client finds retained."""
    client = await Client.to(port, f"reader of {filters}")
    await client.subscribe(*filters, "end")
    await client.publish("end", b"")
    await until(lambda: client.messages and client.messages[-1][0] == "end")
    await client.close()
    return {topic: payload for topic, payload, retained in client.messages if retained}


async def test_a_ring_that_was_stopped_finds_what_is_retained(tmp_path: Path) -> None:
    async with lasting(3, tmp_path) as peers:
        speaker = await Client.to(peers[0].mqtt_port, "speaker")
        for number in range(30):
            await speaker.publish(f"room/{number}", str(number).encode(), retain=True)
        for number in range(10):
            await speaker.publish(f"room/{number}", b"", retain=True)
        await speaker.close()
    wanted = {f"room/{number}": str(number).encode() for number in range(10, 30)}
    async with lasting(3, tmp_path) as peers:
        await until(lambda: all(len(one.node.ring.leaves) == 2 for one in peers))
        assert await _seen(peers[1].mqtt_port, "room/+") == wanted
        assert await _seen(peers[2].mqtt_port, *[f"room/{number}" for number in range(30)]) == wanted


async def test_nothing_is_acknowledged_that_the_disk_does_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with lasting(2, tmp_path) as peers:
        assert peers[1].store is not None
        peers[1].store._database.execute("PRAGMA max_page_count = 1")
        speaker = await Client.to(peers[0].mqtt_port, "speaker")
        acknowledged = asyncio.create_task(speaker.publish("a", bytes(100_000), retain=True))
        await until(lambda: peers[1].faults)
        assert peers[0].faults == []
        assert peers[1].faults == [f"cannot write to {tmp_path / 'retained 2'}: database or disk is full"]
        heard: list[bytes] = []
        receive = peers[1].ports.core.receive
        monkeypatch.setattr(
            peers[1].ports.core, "receive", lambda sender, payload: heard.append(payload) or receive(sender, payload)
        )
        await until(lambda: sum(b"\0" * 1000 in payload for payload in heard) > 2)
        assert not acknowledged.done(), "however often it is told"
        acknowledged.cancel()
        await speaker.close()


async def test_a_peer_that_was_alone_brings_what_it_kept(tmp_path: Path) -> None:
    store = Store(tmp_path / "clients 2", 0.0)
    now = asyncio.get_running_loop().time()
    for message in (Message("old", b"1"), Message("known", b"1"), Message("expired", b"1", expires_at=now - 1)):
        store.retained(message)
    store.commit()
    store.close()
    async with lasting(1, tmp_path) as peers:
        speaker = await Client.to(peers[0].mqtt_port, "speaker")
        await speaker.publish("known", b"2", retain=True)
        await speaker.close()
    for _ in range(2):
        async with lasting(2, tmp_path) as peers:
            await until(lambda: all(len(one.node.ring.leaves) == 1 for one in peers))
            for one in peers:
                assert await _seen(one.mqtt_port, "#") == {"old": b"1", "known": b"2"}
        store = Store(tmp_path / "clients 2", 0.0)
        assert store.retained_messages() == [], "they are the ring's now"
        store.close()


async def test_time_never_goes_back_in_a_tick_that_is_early() -> None:
    iteration = Iteration()
    ports = PartitionedAdapter(ROLES, iteration)
    ports.begin()
    times: list[float] = []
    ahead = asyncio.get_running_loop().time() + 5.0
    iteration.advance(ahead)
    ports.core.receive = lambda sender, payload: times.append(ports.core.clock.now)  # type: ignore[method-assign]
    iteration.begin()
    ports.receive(Peer(Id(1), "127.0.0.1", 1, 1), b"")
    assert times == [ahead]
    ports.stop()


async def test_stop_commits_the_retained_messages(tmp_path: Path) -> None:
    async with lasting(1, tmp_path) as (peer,):
        peer.ports.published(Message("late", b"x", retain=True), 0, None)
        peer.ports.stop()
        store = RecordStore(tmp_path / "retained 1")
        assert "late" in [record.name for record in store.load().records]
        store.close()


async def test_overdue_timers_run_while_the_loop_is_busy() -> None:
    iteration, loop = Iteration(), asyncio.get_running_loop()
    ports = PartitionedAdapter(ROLES, iteration)
    done: list[float] = []
    ports.core._state.timers.at(loop.time() - 5, lambda now, _: done.append(now))
    began = loop.time()
    while not done:
        assert loop.time() < began + PATIENCE_S
        iteration.begin()
        await asyncio.sleep(0)
    ports.stop()
