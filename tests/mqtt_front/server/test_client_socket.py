"""The socket of a client, without one: when it writes, when it closes, and when it stops to read."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Publish,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.client_socket import ClientSocket
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.sessions.journal import NO_JOURNAL, NoJournal
from ringmq.peer.iteration import Iteration


class Transport(asyncio.Transport):
    """Notes what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.written: list[bytes] = []
        self.waiting_bytes = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.calls.append(f"high {high}")

    def is_closing(self) -> bool:
        return "close" in self.calls or "abort" in self.calls

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.waiting_bytes

    def __getattribute__(self, name: str) -> Any:
        if name in ("abort", "close", "pause_reading", "resume_reading"):
            return lambda: self.calls.append(name)
        return super().__getattribute__(name)


class Line:
    def __init__(self, **config: int) -> None:
        self.front = MqttServer(Iteration(), FrontConfig(sys_interval_s=0, **config))  # type: ignore[arg-type]
        self.transport = Transport()
        self.client = ClientSocket(self.front, anonymous=True)
        self.client.connection_made(self.transport)

    def connect(self) -> None:
        self.client.data_received(encode(Version.V5, Connect(Version.V5, "c", True, 0)))


@pytest.fixture
async def line() -> Line:
    return Line()


async def test_packets_of_an_iteration_share_a_write(line: Line) -> None:
    line.connect()
    line.client.data_received(encode(Version.V5, Pingreq()) * 3)
    assert line.transport.written == []
    line.front.iteration._end()
    (written,) = line.transport.written
    assert written.endswith(b"\xd0\0" * 3)
    await line.front.stop()


async def test_nothing_is_written_to_a_closed_socket(line: Line) -> None:
    line.connect()
    line.transport.calls.append("close")
    line.front.iteration._end()
    assert line.transport.written == []
    assert line.client.connection.writer.out == []
    await line.front.stop()


async def test_connection_beyond_the_limit_is_aborted_and_not_registered() -> None:
    line = Line(max_connections=1)
    other, transport = ClientSocket(line.front, anonymous=True), Transport()
    other.connection_made(transport)
    assert transport.calls == ["abort"]
    assert len(line.front.clients) == 1
    await line.front.stop()


async def test_a_fast_publisher_is_not_read_from_for_a_while(line: Line) -> None:
    line.connect()
    connection = line.client.connection
    for pausing in (True, False):
        connection.handlers.full = pausing
        connection.writer.wake()
        line.front.send_soon()
        line.front.iteration._end()
    assert line.transport.calls[1:] == ["pause_reading", "resume_reading"]
    await line.front.stop()


async def test_client_with_a_full_buffer_is_cut_off() -> None:
    line = Line(max_buffer_bytes=1000)
    line.connect()
    line.transport.waiting_bytes = 2001
    line.front.iteration._end()
    assert line.transport.calls == ["high 1000", "abort"]
    assert line.client.connection.writer.closing
    await line.front.stop()


async def test_reading_pauses_at_once_beyond_the_budget_of_an_iteration(line: Line) -> None:
    line.connect()
    line.front.iteration._end()
    line.client.data_received(encode(Version.V5, Pingreq()) * 20_000)
    assert line.transport.calls[1:] == ["pause_reading"]
    while line.client.connection.pausing or line.front.broker.dirty:
        line.front.iteration._end()
    assert line.transport.calls[1:] == ["pause_reading", "resume_reading"]
    assert sum(len(written) for written in line.transport.written[1:]) == 2 * 20_000
    await line.front.stop()


@pytest.mark.parametrize("polite", [True, False])
async def test_bytes_of_a_closed_client_are_processed_over_iterations_too(line: Line, polite: bool) -> None:
    will = Will("t", b"will", 0, False)
    line.client.data_received(encode(Version.V5, Connect(Version.V5, "c", True, 0, will)))
    line.client.data_received(
        encode(Version.V5, Pingreq()) * 20_000 + (encode(Version.V5, Disconnect()) if polite else b"")
    )
    line.transport.calls.append("abort")
    line.client.connection_lost(None)
    turns, front = 0, line.front
    while front.clients:
        assert front.broker.dirty, "it would wait for ever"
        front.iteration._end()
        turns += 1
    assert turns > 2
    assert line.client.transport is None
    assert front.broker.counters.messages_received == 20_000 + polite
    assert not front.broker.sessions
    assert front.broker.counters.messages_sent > 20_000
    await front.stop()


async def test_reconnecting_client_does_not_wait_for_its_old_bytes(line: Line) -> None:
    line.connect()
    line.client.data_received(encode(Version.V5, Pingreq()) * 20_000)
    line.client.connection_lost(None)
    other, transport = ClientSocket(line.front, anonymous=True), Transport()
    other.connection_made(transport)
    other.data_received(encode(Version.V5, Connect(Version.V5, "c", True, 0)))
    line.front.iteration._end()
    assert list(line.front.clients) == [other.connection.writer]
    assert line.front.broker.sessions["c"].writer is other.connection.writer
    await line.front.stop()


# At once


class Socket:
    """A client's socket that can be written to past the transport, and its other end."""

    def __init__(self, front: MqttServer | None = None, client_id: str = "c") -> None:
        self.front = front or MqttServer(Iteration(), FrontConfig(sys_interval_s=0))
        self.near, self.far = socket.socketpair()
        for sock in (self.near, self.far):
            sock.setblocking(False)
        self.transport = Transport()
        self.transport._extra["socket"] = self.near  # type: ignore[attr-defined]
        self.client = ClientSocket(self.front, anonymous=True, bare=True)
        self.client.connection_made(self.transport)
        self.send(Connect(Version.V5, client_id, True, 0))
        self.far.recv(1000)
        self.front.iteration._end()

    def send(self, *packets: Packet) -> None:
        self.client.data_received(b"".join(encode(Version.V5, packet) for packet in packets))

    def ping(self) -> None:
        self.send(Pingreq())

    @property
    def came(self) -> bytes:
        try:
            return self.far.recv(1 << 20)
        except BlockingIOError:
            return b""

    async def close(self) -> None:
        await self.front.stop()
        self.near.close()
        self.far.close()


@pytest.fixture
async def bare() -> AsyncIterator[Socket]:
    bare = Socket()
    yield bare
    await bare.close()


PINGRESP = b"\xd0\0"


async def test_first_answer_leaves_at_once_and_the_next_at_the_end_of_the_iteration(bare: Socket) -> None:
    for _ in range(2):
        bare.ping()
        assert bare.came == PINGRESP
        bare.ping()
        bare.ping()
        assert bare.came == b""
        bare.front.iteration._end()
        assert bare.transport.written.pop() == PINGRESP * 2
    assert bare.front.broker.counters.bytes_sent > 6 * len(PINGRESP)


async def test_messages_go_before_acknowledgements(bare: Socket) -> None:
    """However many publish in an iteration: a client that only gets an answer does not count as one of the few."""
    front = bare.front
    pairs = [(Socket(front, f"from {number}"), Socket(front, f"to {number}")) for number in range(5)]
    for number, (_, subscriber) in enumerate(pairs):
        subscriber.send(Subscribe(1, (Subscription(str(number), 1),)))
    front.iteration._end()
    front.iteration._end()
    for number, (publisher, subscriber) in enumerate(pairs):
        publisher.send(Publish(str(number), b"x", 1, packet_id=7))
        assert subscriber.came.endswith(encode(Version.V5, Publish(str(number), b"x", 1, packet_id=1)))
        publisher.ping()
        assert publisher.came == b""
    front.iteration._end()
    for publisher, subscriber in pairs:
        assert publisher.transport.written == [encode(Version.V5, Puback(7)) + PINGRESP]
        for client in (publisher, subscriber):
            client.near.close()
            client.far.close()


@pytest.mark.parametrize("gathered", [False, True])
async def test_gathered_messages_leave_for_all_clients_at_once(bare: Socket, gathered: bool) -> None:
    front = bare.front
    subscribers = [Socket(front, f"to {number}") for number in range(5)]
    for subscriber in subscribers:
        subscriber.send(Subscribe(1, (Subscription("a", 0),)))
    front.iteration._end()
    front.iteration._end()
    packet = encode(Version.V5, Publish("a", b"x"))
    front.broker.distribute(Message("a", b"x"))
    front.send_soon(gathered=gathered)
    assert [subscriber.came.endswith(packet) for subscriber in subscribers] == [gathered] * 5
    front.iteration._end()
    for subscriber in subscribers:
        assert (packet in b"".join(subscriber.transport.written)) is not gathered
        subscriber.near.close()
        subscriber.far.close()


async def test_an_acknowledgement_alone_leaves_at_once(bare: Socket) -> None:
    bare.send(Publish("nobody", b"", 1, packet_id=7))
    assert bare.came == encode(Version.V5, Puback(7, Reason.NO_MATCHING_SUBSCRIBERS))


async def test_nothing_overtakes_bytes_in_the_transport(bare: Socket) -> None:
    bare.transport.waiting_bytes = 1
    bare.ping()
    bare.front.iteration._end()
    assert (bare.came, bare.transport.written) == (b"", [PINGRESP])


async def test_bytes_that_a_full_socket_rejects_go_to_the_transport(bare: Socket) -> None:
    filled = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            filled += bare.near.send(b"x" * 65536)
    bare.ping()
    bare.front.iteration._end()
    assert bare.transport.written == [PINGRESP]
    assert filled


async def test_partial_write_is_completed_by_the_transport(bare: Socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.write", lambda file, data: 1)
    bare.ping()
    assert bare.transport.written == [PINGRESP[1:]]


async def test_nothing_is_sent_before_the_commit(bare: Socket) -> None:
    class Pending(NoJournal):
        pending = True

    bare.front.broker.journal = Pending()
    bare.ping()
    assert bare.came == b""
    bare.front.iteration._end()
    assert bare.transport.written == [PINGRESP]
    bare.front.broker.journal = NO_JOURNAL


async def test_closing_client_is_sent_to_by_the_transport(bare: Socket) -> None:
    bare.client.data_received(encode(Version.V5, Disconnect()) + encode(Version.V5, Pingreq()))
    assert bare.came == b""
    bare.front.iteration._end()
    assert "close" in bare.transport.calls


async def test_bytes_inside_of_something_else_never_leave_past_it(line: Line) -> None:
    line.transport._extra["socket"] = None  # type: ignore[attr-defined]
    line.connect()
    assert line.transport.written == []
    line.front.iteration._end()
    assert len(line.transport.written) == 1
    await line.front.stop()
