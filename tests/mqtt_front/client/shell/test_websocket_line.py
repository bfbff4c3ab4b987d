"""WebSocket between a client and its server: payloads both ways, pings, and the end from either side."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.client.shell import websocket_line
from ringmq.mqtt_front.client.shell.websocket_line import WebSocketLine
from ringmq.mqtt_front.errors import UpgradeRefusedError
from ringmq.mqtt_front.server.websocket_frames import (
    FRAMES_A_CALL,
    Close,
    FrameReader,
    Opcode,
    Ping,
    close_frame,
    frame_head,
)
from ringmq.mqtt_front.server.websocket_upgrade import Upgrade

PING = 0x80 | Opcode.PING


class Told(asyncio.Protocol):
    """The client above."""

    def __init__(self) -> None:
        self.line: WebSocketLine | None = None
        self.got = b""
        self.calls: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.line = cast("WebSocketLine", transport)

    def data_received(self, data: bytes) -> None:
        self.got += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append("lost")

    def pause_writing(self) -> None:
        self.calls.append("pause")

    def resume_writing(self) -> None:
        self.calls.append("resume")


class Wire(asyncio.Transport):
    """The socket below."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.calls: list[str] = []
        self.ended = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return bool({"close", "abort"} & set(self.calls))

    def close(self) -> None:
        self.calls.append("close")

    def abort(self) -> None:
        self.calls.append("abort")
        self.ended.set()

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def frames(self) -> list[bytes | Ping | Close]:
        """What was sent since the last call, as a server reads it."""
        sent, self.sent = self.sent, b""
        return list(FrameReader().feed(sent))


def frame(payload: bytes) -> bytes:
    return frame_head(Opcode.BINARY, len(payload)) + payload


def opened(rest: bytes = b"") -> tuple[WebSocketLine, Told, Wire]:
    told, wire = Told(), Wire()
    line = WebSocketLine(told, ServerAddress("a", 80, path="/"))
    line.connection_made(wire)
    answered = Upgrade().feed(wire.sent)
    assert answered is not None
    wire.sent = b""
    assert told.line is None
    line.data_received(answered[0] + rest)
    return line, told, wire


async def test_payloads_pass_both_ways_from_the_answer_on() -> None:
    line, told, wire = opened(frame(b"first"))
    assert line.opened.done()
    assert told.line is line
    line.data_received(frame(b" second")[:4])
    line.data_received(frame(b" second")[4:])
    assert told.got == b"first second"
    line.write(b"up")
    line.write(memoryview(b"wards"))
    assert wire.frames() == [b"up", b"wards"]


async def test_masks_differ() -> None:
    line, _, wire = opened()
    line.write(bytes(8))
    line.write(bytes(8))
    assert wire.sent[:14] != wire.sent[14:]


async def test_a_ping_is_answered() -> None:
    line, _, wire = opened()
    line.data_received(bytes((PING, 1)) + b"x")
    assert wire.sent[0] == 0x80 | Opcode.PONG


async def test_many_tiny_frames_are_read_at_once() -> None:
    line, told, _ = opened()
    line.data_received(frame(b"x") * (2 * FRAMES_A_CALL + 1))
    assert told.got == b"x" * (2 * FRAMES_A_CALL + 1)


async def test_a_close_of_the_server_is_answered_and_ends_the_socket() -> None:
    line, told, wire = opened()
    line.data_received(frame(b"last") + close_frame(1000))
    assert (told.got, wire.frames(), wire.calls) == (b"last", [Close(1000)], ["close"])
    line.write(b"late")
    assert wire.sent == b""
    line.connection_lost(None)
    assert told.calls == ["lost"]


async def test_a_breach_of_the_server_ends_the_socket() -> None:
    line, _, wire = opened()
    line.data_received(b"\x81\x01x")
    assert (wire.frames(), wire.calls) == ([Close(1003)], ["close"])


async def test_a_close_of_the_client_waits_for_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    line, _, wire = opened()
    line.close()
    line.close()
    assert (wire.frames(), wire.calls, line.is_closing()) == ([Close(1000)], [], True)
    line.data_received(close_frame(1000))
    assert (wire.frames(), wire.calls) == ([], ["close"])
    monkeypatch.setattr(websocket_line, "CLOSE_S", 0.0)
    line, _, wire = opened()
    line.close()
    await wire.ended.wait()
    assert wire.calls == ["abort"]


async def test_a_refused_opening_is_raised_and_ends_the_socket() -> None:
    told, wire = Told(), Wire()
    line = WebSocketLine(told, ServerAddress("a", 80, path="/"))
    line.connection_made(wire)
    line.data_received(b"HTTP/1.1 403 Forbidden\r\n\r\n")
    with pytest.raises(UpgradeRefusedError, match="it answered 403 Forbidden"):
        await line.opened
    assert (told.line, wire.calls) == (None, ["abort"])
    line.connection_lost(None)
    assert told.calls == []


async def test_a_connection_that_is_lost_while_it_opens_is_raised() -> None:
    line = WebSocketLine(Told(), ServerAddress("a", 80, path="/"))
    line.connection_made(Wire())
    line.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await line.opened


async def test_pauses_are_passed_on() -> None:
    line, told, wire = opened()
    line.pause_writing()
    line.resume_writing()
    line.pause_reading()
    line.resume_reading()
    assert told.calls == wire.calls == ["pause", "resume"]
