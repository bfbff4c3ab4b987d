"""Handshakes over real sockets: the alert that a refused client reads, the log lines, and bytes that come early."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme
from structlog.testing import capture_logs

from ringmq.mqtt_front.counters import FrontCounters
from ringmq.mqtt_front.server import tls_handshakes
from ringmq.mqtt_front.server.listeners import Listen, accept_clients, address_of
from ringmq.mqtt_front.server.tls import server_context
from ringmq.mqtt_front.server.tls_handshakes import Handshakes

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop

HOST = "127.0.0.1"
WITHIN_S = 10.0
EARLY = b"\x10\x00" * 20_000
"""More than one record of TLS."""
LOOPS = (asyncio.new_event_loop, new_event_loop)
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


class Echo(asyncio.Protocol):
    """Sends back what comes, until the client ends its side."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport.get_extra_info("peername")[1], int)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)  # type: ignore[attr-defined]


class Door:
    """A listener that wants certificates of its CA."""

    def __init__(self, folder: Path) -> None:
        self._ca = trustme.CA()
        ca = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(str(ca))
        issued = self._ca.issue_cert(HOST)
        self.file = folder / "server.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(self.file))
        self.context = server_context(self.file, self.file, ca)
        self.counters = FrontCounters()
        self.room = 100

    @asynccontextmanager
    async def open(self, timeout_s: float = WITHIN_S) -> AsyncIterator[int]:
        """Gives the port."""
        self.handshakes = Handshakes(timeout_s, lambda count: count < self.room, self.counters)
        server = await accept_clients(Listen(host=HOST, port=0, tls=self.context), Echo, print, self.handshakes)
        try:
            yield address_of(server)[1]
        finally:
            server.close()
            self.handshakes.stop()

    def client(self, version: ssl.TLSVersion, issuer: trustme.CA | None) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = context.maximum_version = version
        self._ca.configure_trust(context)
        if issuer is not None:
            issuer.issue_cert("client.example").configure_cert(context)
        return context

    @property
    def ca(self) -> trustme.CA:
        return self._ca


@pytest.fixture
def door(tmp_path: Path) -> Door:
    return Door(tmp_path)


def said_to(context: ssl.SSLContext, port: int, sent: bytes = EARLY) -> tuple[bytes, str]:
    """What a client with a blocking socket gets for its bytes, and the alert that it reads."""
    got = b""
    with socket.create_connection((HOST, port), WITHIN_S) as below:
        try:
            with context.wrap_socket(below, server_hostname=HOST) as client:
                client.sendall(sent)
                while len(got) < len(sent):
                    data = client.recv(1 << 16)
                    if not data:
                        break
                    got += data
        except ssl.SSLError as error:
            return got, str(error.reason)
    return got, ""


def run(loop: Callable[[], asyncio.AbstractEventLoop], door: Door, *clients: ssl.SSLContext) -> list[tuple[bytes, str]]:
    async def serve() -> list[tuple[bytes, str]]:
        async with door.open() as port:
            return [await asyncio.to_thread(said_to, client, port) for client in clients]

    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(serve())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_that_come_with_the_end_of_the_handshake_are_not_lost(
    door: Door, loop: Callable[[], asyncio.AbstractEventLoop], version: ssl.TLSVersion
) -> None:
    client = door.client(version, door.ca)
    assert run(loop, door, client, client) == [(EARLY, ""), (EARLY, "")]
    assert door.counters.refused == 0


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("known", "why"),
    [(False, "the client has sent none"), (True, "unable to get local issuer certificate")],
)
def test_a_refused_certificate_ends_in_an_alert_and_a_log_line(
    door: Door, loop: Callable[[], asyncio.AbstractEventLoop], version: ssl.TLSVersion, known: bool, why: str
) -> None:
    stranger = door.client(version, trustme.CA() if known else None)
    with capture_logs() as logs:
        answers = run(loop, door, stranger, stranger, door.client(version, door.ca))
    (got, alert), (_, again), (echo, _) = answers
    assert got == b""
    assert "ALERT" in alert
    assert again == alert
    assert echo == EARLY, "others are none the worse for it"
    warnings = [line for line in logs if line["log_level"] == "warning"]
    # A client that comes again at once is not logged again.
    assert [(line["event"], line["why"]) for line in warnings] == [("a client certificate was refused", why)]
    host, _, port = warnings[0]["client"].rpartition(":")
    assert host == HOST
    assert int(port) > 0
    assert door.counters.refused == 2


async def test_what_is_no_tls_is_closed_and_logged_for_debugging_alone(door: Door) -> None:
    with capture_logs() as logs:
        async with door.open() as port:
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"GET / HTTP/1.1\r\n\r\n" * 100)
            writer.write_eof()
            async with asyncio.timeout(WITHIN_S):
                await reader.read()
            writer.transport.abort()
    assert [line["log_level"] for line in logs] == ["debug"]


async def test_a_refused_client_that_stays_is_closed_when_its_time_is_over(door: Door) -> None:
    async with door.open(timeout_s=0.3) as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(WITHIN_S):
            await reader.read()
            while True:  # It may send until then, and nothing of it gathers.
                try:
                    writer.write(bytes(1 << 16))
                    await writer.drain()
                except ConnectionError:
                    break
        writer.transport.abort()


async def test_handshakes_are_bounded(door: Door) -> None:
    door.room = 2
    async with door.open() as port:
        opened = [await asyncio.open_connection(HOST, port) for _ in range(3)]
        async with asyncio.timeout(WITHIN_S):
            assert await opened[2][0].read() == b""
        assert door.counters.refused == 1
        for _, writer in opened:
            writer.transport.abort()


async def test_a_stop_ends_handshakes(door: Door) -> None:
    async with door.open() as port:
        reader, writer = await asyncio.open_connection(HOST, port)
        await asyncio.to_thread(said_to, door.client(VERSIONS[1], door.ca), port)  # The first is accepted by now.
    async with asyncio.timeout(WITHIN_S):
        assert await reader.read() == b""
    writer.transport.abort()


async def test_clients_that_are_refused_again_and_again_are_logged_once_in_a_time(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_handshakes, "MOST_LOGGED", 2)
    handshakes = Handshakes(1.0, lambda _: True, door.counters)
    error = ssl.SSLError("refused")
    error.reason = tls_handshakes.NO_CERTIFICATE
    with capture_logs() as logs:
        for host in ("a", "a", "b", "c", "a"):
            handshakes.failed(host, 1, error)
        monkeypatch.setattr(tls_handshakes, "REPEAT_S", 0.0)
        handshakes.failed("c", 2, error)
    assert [line["client"] for line in logs] == ["a:1", "b:1", "c:2"]
    assert door.counters.refused == 6
