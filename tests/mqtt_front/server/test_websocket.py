"""Between socket and client: the opening, frames both ways, pings, and every way to close. Real clients have their own
tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest
import pytest_asyncio

from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.server import websocket
from ringmq.mqtt_front.server.listeners import Listen
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.server.websocket import WebSocket
from ringmq.mqtt_front.server.websocket_frames import FRAMES_A_CALL, Opcode, frame_head, unmask
from ringmq.peer.iteration import Iteration

REQUEST = (
    b"GET /mqtt HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CLOSE = b"\x88\x02\x03\xe8"


def frame(payload: bytes, opcode: int = Opcode.BINARY) -> bytes:
    mask = b"mask"
    return bytes((0x80 | opcode, 0x80 | len(payload))) + mask + unmask(payload, mask)


class Socket(asyncio.Transport):
    """A transport like asyncio's."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "socket": object()})
        self.sent = b""
        self.closed = self.aborted = self.paused = False
        self.cut_off = asyncio.Event()

    def write(self, data: Any) -> None:
        assert not self.closed
        self.sent += data

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True
        self.cut_off.set()

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = high, low

    def get_write_buffer_size(self) -> int:
        return 7

    def take(self) -> bytes:
        sent, self.sent = self.sent, b""
        return sent


class Client(asyncio.Protocol):
    """The protocol behind; `transport` is the WebSocket."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.events: list[str] = []
        self.transport: WebSocket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, WebSocket)
        self.transport = transport
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        self.received.append(data)

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class Side:
    """One connection with both its sides."""

    def __init__(self, opened: bool = True) -> None:
        self.socket, self.client, self.faults = Socket(), Client(), list[str]()
        self.between = WebSocket(self.client, self.faults.append)
        self.between.connection_made(self.socket)
        if opened:
            self.feed(REQUEST)
            assert self.socket.take().startswith(b"HTTP/1.1 101 ")

    def feed(self, *data: bytes) -> None:
        self.between.data_received(b"".join(data))


def test_the_client_is_told_before_the_request() -> None:
    """So that its deadline and the number of connections count from there."""
    side = Side(opened=False)
    assert side.client.events == ["made"]
    assert side.client.transport is side.between
    side.feed(REQUEST[:50])
    assert side.socket.sent == b""
    side.feed(REQUEST[50:], frame(b"first"))
    assert side.socket.sent.startswith(b"HTTP/1.1 101 ")
    assert side.client.received == [b"first"]


def test_a_request_that_is_refused() -> None:
    side = Side(opened=False)
    side.feed(REQUEST.replace(b"mqtt\r\n", b"chat\r\n"), frame(b"never read"))
    assert side.socket.sent.startswith(b"HTTP/1.1 400 ")
    assert side.socket.closed
    assert side.client.received == []
    assert side.faults == ["the client must offer the subprotocol mqtt"]


def test_frames_behind_the_request_are_processed_at_once() -> None:
    """Packets need not begin and end with frames [MQTT-6.0.0-2]."""
    side = Side()
    side.feed(frame(b"one "), frame(b"pack"), frame(b"et, and more")[:14])
    assert side.client.received == [b"one packet, and "]
    side.feed(frame(b"et, and more")[14:])
    assert side.client.received[1:] == [b"more"]


def test_a_write_is_a_binary_frame() -> None:
    side = Side()
    for size in (1, 125, 126, 70_000):
        side.client.transport.write(b"x" * size)
        assert side.socket.take() == frame_head(Opcode.BINARY, size) + b"x" * size
    side.client.transport.writelines([b"ab", b"cd"])
    assert side.socket.take() == b"\x82\x04abcd"
    side.client.transport.write(b"")
    assert side.socket.take() == b""


def test_a_ping_is_answered() -> None:
    side = Side()
    side.feed(frame(b"are you there", Opcode.PING))
    assert side.socket.take() == b"\x8a\x0dare you there"
    assert side.client.received == []


def test_client_that_does_not_read_gets_only_the_last_pong() -> None:
    side = Side()
    side.between.pause_writing()
    side.feed(frame(b"1", Opcode.PING), frame(b"2", Opcode.PING))
    side.feed(frame(b"3", Opcode.PING))
    assert side.socket.take() == b""
    side.between.resume_writing()
    assert side.socket.take() == b"\x8a\x013"
    assert side.client.events == ["made", "pause", "resume"]


@pytest.mark.parametrize(
    ("data", "code"),
    [(frame(b"text", Opcode.TEXT), 1003), (b"\x82\x01x", 1002), (frame(b"\x03\xe8\xff", Opcode.CLOSE), 1007)],
)
def test_client_that_violates_the_protocol_is_closed(data: bytes, code: int) -> None:
    """[MQTT-6.0.0-1], and with all that was right before it."""
    side = Side()
    side.feed(frame(b"right"), data)
    assert side.client.received == [b"right"]
    assert side.socket.take() == b"\x88\x02" + code.to_bytes(2, "big")
    assert side.socket.closed
    assert len(side.faults) == 1
    side.feed(frame(b"more"), data)
    side.feed(data)
    side.client.transport.write(b"more")
    assert side.client.received == [b"right"]
    assert side.socket.sent == b""
    assert len(side.faults) == 1


@pytest.mark.parametrize("payload", [b"", b"\x03\xe8", b"\x0f\xa0bye"])
def test_the_client_closes(payload: bytes) -> None:
    side = Side()
    side.feed(frame(b"last"), frame(payload, Opcode.CLOSE), frame(b"too late"))
    assert side.client.received == [b"last"]
    assert side.socket.take() == bytes((0x88, len(payload[:2]))) + payload[:2]
    assert side.socket.closed
    assert side.between.is_closing()
    assert side.faults == []
    side.between.connection_lost(None)
    assert side.client.events == ["made", "lost"]


async def test_the_server_closes() -> None:
    side = Side()
    side.client.transport.write(b"bye")
    side.client.transport.pause_reading()
    side.client.transport.close()
    side.client.transport.close()
    assert side.socket.take() == b"\x82\x03bye" + CLOSE
    assert side.between.is_closing()
    assert not side.socket.paused, "the answer would never be seen"
    side.client.transport.write(b"more")
    side.feed(frame(b"not heard any more"), frame(b"", Opcode.PING))
    assert (side.client.received, side.socket.sent, side.socket.closed) == ([], b"", False)
    side.feed(frame(b"\x03\xe8", Opcode.CLOSE))
    assert (side.socket.sent, side.socket.closed, side.socket.aborted) == (b"", True, False)
    side.between.connection_lost(None)


async def test_client_that_does_not_answer_a_close_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(websocket, "CLOSE_S", 0.0)
    side = Side()
    side.client.transport.close()
    async with asyncio.timeout(5):
        await side.socket.cut_off.wait()


async def test_closed_client_is_not_aborted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket, "CLOSE_S", 0.0)
    side = Side()
    side.client.transport.close()
    side.between.connection_lost(None)
    passed = asyncio.Event()
    asyncio.get_running_loop().call_later(0, passed.set)
    await passed.wait()
    await asyncio.sleep(0)
    assert not side.socket.aborted


def test_the_server_closes_before_the_request() -> None:
    side = Side(opened=False)
    side.feed(REQUEST[:50])
    side.client.transport.write(b"there is no frame to put this in")
    side.client.transport.close()
    assert (side.socket.sent, side.socket.closed) == (b"", True)
    side.feed(REQUEST[50:])
    assert side.socket.sent == b""


def test_an_end_without_a_word() -> None:
    side = Side()
    side.client.transport.abort()
    assert side.socket.aborted
    assert side.between.is_closing()
    side.feed(frame(b"more"))
    assert side.client.received == []
    side.between.connection_lost(ConnectionResetError())
    assert side.client.events == ["made", "lost"]


def test_other_transport_methods_are_those_of_the_socket() -> None:
    side = Side()
    transport = side.client.transport
    transport.set_write_buffer_limits(high=10)
    assert side.socket.limits == (10, None)
    assert transport.get_write_buffer_size() == 7
    transport.pause_reading()
    assert side.socket.paused
    transport.resume_reading()
    assert not side.socket.paused
    assert transport.get_extra_info("peername") == ("127.0.0.1", 1)
    assert transport.get_extra_info("socket") is None, "nobody is to write past the frames"


# Many frames


def flood(last: bytes, number: int = 5 * FRAMES_A_CALL // 2) -> bytes:
    return frame(b"", Opcode.PING) * number + last


async def test_many_frames_are_processed_over_iterations_without_reading() -> None:
    side = Side()
    side.feed(flood(frame(b"last")))
    assert side.socket.paused
    assert side.client.received == []
    await asyncio.sleep(0)
    assert side.socket.paused
    assert side.client.received == []
    await asyncio.sleep(0)
    assert side.client.received == [b"last"]
    assert not side.socket.paused
    assert side.socket.take() == b"\x8a\0" * 3


async def test_frames_of_a_paused_client_wait() -> None:
    side = Side()
    side.feed(flood(frame(b"last")))
    side.client.transport.pause_reading()
    for _ in range(5):
        await asyncio.sleep(0)
    assert side.client.received == []
    side.client.transport.resume_reading()
    for _ in range(3):
        assert side.socket.paused or side.client.received
        await asyncio.sleep(0)
    assert side.client.received == [b"last"]
    assert not side.socket.paused


@pytest.mark.parametrize("paused", [True, False])
async def test_frames_before_the_end_are_processed(paused: bool) -> None:
    side = Side()
    side.feed(flood(frame(b"last")))
    if paused:
        side.client.transport.pause_reading()
    side.socket.closed = True
    side.between.connection_lost(None)
    assert side.client.events == ["made"]
    for _ in range(4):
        await asyncio.sleep(0)
    assert side.client.received == [b"last"]
    assert side.client.events == ["made", "lost"]


@pytest.mark.parametrize("last", [frame(b"\x03\xe8", Opcode.CLOSE), frame(b"", Opcode.TEXT)])
async def test_a_close_behind_many_frames(last: bytes) -> None:
    side = Side()
    side.feed(flood(last))
    for _ in range(4):
        await asyncio.sleep(0)
    assert side.socket.closed
    assert side.between.is_closing()
    side.between.connection_lost(None)
    assert side.client.events == ["made", "lost"]


async def test_the_server_closes_before_it_has_read_all() -> None:
    side = Side()
    side.feed(flood(frame(b"not heard any more") + frame(b"\x03\xe8", Opcode.CLOSE)))
    side.client.transport.pause_reading()
    side.client.transport.close()
    for _ in range(4):
        await asyncio.sleep(0)
    assert side.client.received == []
    assert side.socket.closed
    side.between.connection_lost(None)
    assert side.client.events == ["made", "lost"]


# Behind a listener of a front

CONNECT = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c"
CONNACK = b"\x20\x02\0\0"
SUBSCRIBE = b"\x82\x06\0\x01\0\x01a\0"
SUBACK = b"\x90\x03\0\x01\0"
PUBLISH = b"\x30\x04\0\x01a!"
DEADLINE_S = 10.0


class Dialled(NamedTuple):
    """A client's end of a real connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def read(self, size: int) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.readexactly(size)

    async def rest(self) -> bytes:
        """All until the server closes."""
        async with asyncio.timeout(DEADLINE_S):
            return await self.reader.read()


@pytest_asyncio.fixture
async def front() -> AsyncIterator[MqttServer]:
    front = MqttServer(Iteration(), FrontConfig(sys_interval_s=0))
    yield front
    await front.stop()


@pytest_asyncio.fixture
async def dialled(front: MqttServer) -> AsyncIterator[Dialled]:
    address = await front.listen(Listen(host="127.0.0.1", port=0, websocket=True))
    reader, writer = await asyncio.open_connection(*address)
    yield Dialled(reader, writer)
    writer.transport.abort()


async def test_packets_of_an_iteration_are_one_frame(dialled: Dialled) -> None:
    dialled.writer.write(REQUEST + frame(CONNECT))
    async with asyncio.timeout(DEADLINE_S):
        assert (await dialled.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    assert await dialled.read(6) == b"\x82\x04" + CONNACK
    dialled.writer.write(frame(SUBSCRIBE[:3]) + frame(SUBSCRIBE[3:] + PUBLISH + PUBLISH))
    expected = SUBACK + PUBLISH + PUBLISH
    assert await dialled.read(2 + len(expected)) == bytes((0x82, len(expected))) + expected


async def test_a_client_that_leaves_gets_a_close(front: MqttServer, dialled: Dialled) -> None:
    dialled.writer.write(REQUEST + frame(CONNECT + b"\xe0\0"))
    async with asyncio.timeout(DEADLINE_S):
        await dialled.reader.readuntil(b"\r\n\r\n")
    assert await dialled.read(10) == b"\x82\x04" + CONNACK + CLOSE
    dialled.writer.write(frame(b"\x03\xe8", Opcode.CLOSE))
    assert await dialled.rest() == b""
    assert front.broker.counters.protocol_errors == 0


async def test_a_request_that_does_not_come_in_time(front: MqttServer, dialled: Dialled) -> None:
    dialled.writer.write(REQUEST[:-2])
    async with asyncio.timeout(DEADLINE_S):
        while not any(_has_read(client.transport) for client in front.clients.values()):  # noqa: ASYNC110
            await asyncio.sleep(0)
    late = front.iteration.time() + front.config.connect_timeout_s + 1
    front.iteration.time = lambda: late
    front.iteration._end()
    front._sweep()
    assert await dialled.rest() == b""
    assert not front.clients


def _has_read(transport: asyncio.Transport | None) -> bool:
    assert isinstance(transport, WebSocket)
    return len(transport._upgrade._reader._buffer) == len(REQUEST) - 2


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", REQUEST + frame(b"", Opcode.TEXT)])
async def test_protocol_violation_is_counted(front: MqttServer, dialled: Dialled, data: bytes) -> None:
    dialled.writer.write(data)
    assert (await dialled.rest()).startswith(b"HTTP/1.1 ")
    assert front.broker.counters.protocol_errors == 1
    assert not front.clients
