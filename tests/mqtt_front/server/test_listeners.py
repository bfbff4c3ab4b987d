"""Listeners: accepted clients, reported addresses, and addresses that cannot be bound."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl

import pytest

from ringmq.mqtt_front.counters import FrontCounters
from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.server.listeners import Listen, accept_clients, address_of
from ringmq.mqtt_front.server.tls_handshakes import Handshakes

HOST = "127.0.0.1"


def handshakes(timeout_s: float = 10.0) -> Handshakes:
    return Handshakes(timeout_s, lambda _: True, FrontCounters())


class Heard(asyncio.Protocol):
    """Notes what comes first."""

    def __init__(self) -> None:
        self.first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if not self.first.done():
            self.first.set_result(data)


async def heard(websocket: bool, sent: bytes) -> tuple[bytes, list[str]]:
    made: asyncio.Queue[Heard] = asyncio.Queue()
    faults: list[str] = []

    def client() -> Heard:
        heard = Heard()
        made.put_nowait(heard)
        return heard

    server = await accept_clients(Listen(host=HOST, port=0, websocket=websocket), client, faults.append, handshakes())
    _, writer = await asyncio.open_connection(*address_of(server))
    writer.write(sent)
    async with asyncio.timeout(10):
        first = await (await made.get()).first
    writer.transport.abort()
    server.close()
    return first, faults


async def test_bytes_as_they_come() -> None:
    assert await heard(False, b"\x10\x00") == (b"\x10\x00", [])


async def test_bytes_out_of_websocket_frames() -> None:
    upgrade = (
        b"GET /mqtt HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
    )
    assert await heard(True, upgrade + b"\x82\x82\0\0\0\0\x10\x00") == (b"\x10\x00", [])


async def test_address_has_the_chosen_port() -> None:
    server = await accept_clients(Listen(host=HOST, port=0), Heard, print, handshakes())
    host, port = address_of(server)
    assert host == HOST
    assert port > 0
    server.close()


async def test_unusable_address_is_one_line_with_the_address_once() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(FrontError, match=rf"^cannot listen for MQTT on {HOST}:{port}: Address already in use$"):
            await accept_clients(Listen(host=HOST, port=port), Heard, print, handshakes())


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("nosuchhost.invalid", r"[A-Z][a-z -]+"),
        ("a..b", "not a valid host name"),
        ("192.0.2.1", r"Cannot assign requested address|could not bind on .*"),
    ],
)
async def test_a_host_that_is_not_of_this_machine_is_one_reason(host: str, reason: str) -> None:
    with pytest.raises(FrontError) as caught:
        await accept_clients(Listen(host=host, port=0), Heard, print, handshakes())
    assert re.fullmatch(rf"cannot listen for MQTT on {re.escape(host)}:0: ({reason})", str(caught.value))


async def test_no_time_for_a_handshake_is_little_time() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server = await accept_clients(Listen(host=HOST, port=0, tls=context), Heard, print, handshakes(0))
    reader, writer = await asyncio.open_connection(*address_of(server))
    async with asyncio.timeout(10):
        assert await reader.read() == b""
    writer.transport.abort()
    server.close()
