"""Dialling: listeners of every kind, and one clear line for everything else that may be at an address."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.mqtt_front.client.client_tls import TlsFiles, client_context
from ringmq.mqtt_front.client.events import Opened
from ringmq.mqtt_front.client.server_address import ServerAddress, parse_server
from ringmq.mqtt_front.client.shell.client import Client, ClientSettings
from ringmq.mqtt_front.codec.packets import Connect, Version
from ringmq.mqtt_front.errors import NoConnectionError, Trouble
from tests.mqtt_front.client.shell.fake_servers import HOST, WITHIN_S, answering
from tests.mqtt_front.real_clients.listeners import Listeners
from tests.mqtt_front.server.test_tls import Files

CONNECT = Connect(Version.V5, "", True, 60)


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    made = Listeners(tmp_path_factory.mktemp("listeners"))
    yield made
    made.close()


def address_of(listeners: Listeners, kind: str, path: str = "/mqtt") -> ServerAddress:
    websocket = kind in ("ws", "wss")
    return ServerAddress(HOST, listeners.cluster[kind], kind not in ("tcp", "ws"), path if websocket else None)


async def connected(address: ServerAddress, files: TlsFiles | None = None, within_s: float = WITHIN_S) -> bool:
    """Whether a client opens a connection, and ends it in order. Raises NoConnectionError."""
    opened: asyncio.Queue[object] = asyncio.Queue()
    tls = None if files is None else client_context(files)
    client = Client(ClientSettings(CONNECT, (address,), tls, False, within_s), opened.put_nowait, print)
    running, first = asyncio.create_task(client.run()), asyncio.create_task(opened.get())
    await asyncio.wait({running, first}, return_when=asyncio.FIRST_COMPLETED)
    first.cancel()
    await client.leave()
    await running
    return isinstance(first.result(), Opened)


async def trouble_with(
    address: ServerAddress, files: TlsFiles | None = None, within_s: float = WITHIN_S
) -> tuple[Trouble, str]:
    with pytest.raises(NoConnectionError) as caught:
        await connected(address, files, within_s)
    before, colon, text = str(caught.value).partition(f"{address}: ")
    assert (before, colon) == ("", f"{address}: ")
    return caught.value.trouble, text


@pytest.mark.parametrize("kind", ["tcp", "tls", "mutual", "ws", "wss"])
async def test_a_listener_of_each_kind_is_reached(listeners: Listeners, kind: str) -> None:
    reach = listeners.reach(kind, 5)
    files = None if reach.ca is None else TlsFiles(reach.ca, reach.certificate, reach.key)
    assert await connected(address_of(listeners, kind), files)


async def test_a_host_with_several_addresses_is_reached_at_the_one_that_listens(listeners: Listeners) -> None:
    assert await connected(ServerAddress("localhost", listeners.cluster["tcp"]))


async def test_an_unknown_host_is_named() -> None:
    for host in ("nobody.invalid", "x" * 300):
        trouble, text = await trouble_with(ServerAddress(host, 1883))
        assert trouble is Trouble.UNKNOWN_HOST
        assert text.startswith("unknown host (")


def test_a_name_server_that_does_not_answer_keeps_no_process_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    answer, asked = threading.Event(), list[object]()

    def wait(*words: object, **names: object) -> list[object]:
        asked.append(words)
        answer.wait(WITHIN_S)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", wait)
    client = Client(
        ClientSettings(CONNECT, (ServerAddress("slow.example", 1883),), connect_timeout_s=0.05), print, print
    )
    try:
        with pytest.raises(NoConnectionError, match=r"no answer within 0\.05 s"):
            asyncio.run(client.run())
        assert asked
        assert [thread.daemon for thread in threading.enumerate() if thread.name == "resolver"] == [True]
    finally:
        answer.set()


async def test_a_port_without_a_listener_is_named(closed_port: int) -> None:
    assert await trouble_with(ServerAddress(HOST, closed_port)) == (Trouble.NOBODY_LISTENS, "connection refused")


async def test_an_untrusted_certificate_is_told(listeners: Listeners, tmp_path: Path) -> None:
    trouble, text = await trouble_with(address_of(listeners, "tls"), TlsFiles(Files(tmp_path).ca))
    assert trouble is Trouble.UNTRUSTED
    assert text.startswith("the certificate is not trusted (")


async def test_a_certificate_of_another_host_is_told(listeners: Listeners) -> None:
    address = parse_server(f"mqtts://localhost:{listeners.cluster['tls']}").address
    trouble, text = await trouble_with(address, TlsFiles(listeners.ca))
    assert trouble is Trouble.OTHER_NAME
    assert text.startswith("the certificate belongs to another host (")


async def test_a_missing_client_certificate_is_told(listeners: Listeners) -> None:
    trouble, text = await trouble_with(address_of(listeners, "mutual"), TlsFiles(listeners.ca))
    assert (trouble, text) == (
        Trouble.CERTIFICATE_REFUSED,
        "the server refused the client's certificate, or wants one",
    )


async def test_tls_at_a_port_without_tls_is_told(listeners: Listeners) -> None:
    address = ServerAddress(HOST, listeners.cluster["tcp"], tls=True)
    trouble, _ = await trouble_with(address, TlsFiles(listeners.ca))
    assert trouble in (Trouble.NO_TLS, Trouble.LOST)


async def test_a_port_with_tls_is_told_without_tls(listeners: Listeners) -> None:
    trouble, _ = await trouble_with(ServerAddress(HOST, listeners.cluster["tls"]))
    assert trouble in (Trouble.NO_MQTT, Trouble.LOST)


async def test_websocket_at_a_port_of_mqtt_is_told(listeners: Listeners) -> None:
    trouble, _ = await trouble_with(ServerAddress(HOST, listeners.cluster["tcp"], path="/"))
    assert trouble is Trouble.LOST


async def test_mqtt_at_a_port_of_websocket_is_told(listeners: Listeners) -> None:
    """It waits for the rest of what it takes for a request."""
    assert (await trouble_with(ServerAddress(HOST, listeners.cluster["ws"]), within_s=0.2))[0] is Trouble.SILENT


@pytest.mark.parametrize(
    ("answer", "path", "trouble", "says"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", None, Trouble.NO_MQTT, "no MQTT server: its answer begins with b'SSH-2.0-OpenSSH"),
        (b"\x15\x03\x01\x00\x02\x02\x46", None, Trouble.NO_MQTT, "no MQTT server: it speaks TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", None, Trouble.NO_MQTT, "no MQTT server: its answer begins with b'HTTP"),
        (b"\xd0\x00", None, Trouble.NO_MQTT, "no MQTT server: its answer begins with"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "/mqtt", Trouble.NO_WEBSOCKET, "no WebSocket: it answered 404 Not Found"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "/", Trouble.NO_WEBSOCKET, "no WebSocket: its answer is not HTTP"),
        (b"\x20\x02\x00\x01", None, Trouble.REFUSED, "refused: unsupported protocol version"),
        (b"", None, Trouble.NO_MQTT, "the server closed the connection without an answer to CONNECT"),
    ],
)
async def test_a_port_that_speaks_something_else_is_told(
    answer: bytes, path: str | None, trouble: Trouble, says: str
) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1 << 16)
        writer.write(answer)

    async with answering(speak) as port:
        found, text = await trouble_with(ServerAddress(HOST, port, path=path))
    assert found is trouble
    assert text.startswith(says)
