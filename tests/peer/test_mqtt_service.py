"""The MQTT clients of a peer: its listeners, who is let in where, and what is said about files that cannot be used."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.mqtt_front.cluster import Standalone
from ringmq.mqtt_front.config import FrontConfig
from ringmq.overlay.config import Address
from ringmq.peer.errors import PeerError
from ringmq.peer.iteration import Iteration
from ringmq.peer.mqtt_service import ClientsError, MqttService
from ringmq.peer.settings.addresses import is_loopback
from ringmq.peer.settings.model import TLS_LISTENERS, WEBSOCKET_LISTENERS, PeerConfig
from tests.mqtt_front.server.test_tls import Files

HOST = "127.0.0.1"
ANY: Address = (HOST, 0)
WITHIN_S = 10
EVERY = ("mqtt", "mqtt_tls", "mqtt_ws", "mqtt_wss")
PEER = ("peer", "--overlay", f"{HOST}:0", "--timing", "local", "--no-discovery", "--log-json")

CONNECT = b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01"
"""MQTT 3.1.1, a clean session. The client's id follows, one letter."""
CONNACK = b"\x20\x02\0"
"""The code follows."""
ACCEPTED, NOT_AUTHORIZED = 0, 5
PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class Client:
    """One that knows just enough of each listener to say a few bytes of MQTT."""

    def __init__(self, websocket: bool, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._websocket = websocket
        self._reader, self._writer = reader, writer

    async def upgrade(self) -> None:
        self._writer.write(UPGRADE)
        assert (await self._reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")

    async def ask(self, packet: bytes, answer_bytes: int) -> bytes:
        """In a frame of its own, masked with zeros, where frames are needed."""
        head = b"\x82" + bytes([0x80 | len(packet)]) + bytes(4) if self._websocket else b""
        self._writer.write(head + packet)
        if self._websocket:
            assert await self._reader.readexactly(2) == b"\x82" + bytes([answer_bytes])
        return await self._reader.readexactly(answer_bytes)

    async def connect(self, client_id: bytes = b"c") -> int:
        """The code of the CONNACK."""
        answer = await self.ask(CONNECT + client_id, 4)
        assert answer[:3] == CONNACK
        return answer[3]

    @property
    def serial(self) -> object:
        """Of the server's certificate."""
        return self._writer.get_extra_info("peercert")["serialNumber"]


@contextlib.asynccontextmanager
async def reached(listener: str, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    context = tls if listener in TLS_LISTENERS else None
    async with asyncio.timeout(WITHIN_S):
        reader, writer = await asyncio.open_connection(HOST, port, ssl=context)
        try:
            client = Client(listener in WEBSOCKET_LISTENERS, reader, writer)
            if listener in WEBSOCKET_LISTENERS:
                await client.upgrade()
            yield client
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):  # that of the test, again
                await writer.wait_closed()


async def answer_of(listener: str, port: int, tls: ssl.SSLContext | None = None) -> int:
    async with reached(listener, port, tls) as client:
        return await client.connect()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    made = Files(tmp_path)
    made.issue("server", HOST)
    return made


# One process


Start = Callable[..., Any]


def options(files: Files) -> list[str]:
    listeners = [part for name in EVERY for part in (f"--{name.replace('_', '-')}", f"{HOST}:0")]
    return [*listeners, "--tls-cert", str(files.certificate), "--tls-key", str(files.key)]


def events(process: Any, name: str) -> list[dict[str, Any]]:
    """What the process has logged by this name."""
    lines = [json.loads(line) for line in process.err.split("\n")[:-1]]  # the last may be half written
    return [line for line in lines if line["event"] == name]


def ports_of(process: Any, eventually: Callable[..., Any], count: int) -> dict[str, int]:
    eventually(lambda: len(events(process, "serving MQTT")) == count, 20, f"{count} listeners: {process.err}")
    served = {line["listener"]: line["address"] for line in events(process, "serving MQTT")}
    return {name: int(address.removeprefix(f"{HOST}:")) for name, address in served.items()}


@pytest.mark.parametrize(("anonymous", "code"), [((), ACCEPTED), (("--no-anonymous",), NOT_AUTHORIZED)])
async def test_every_kind_of_listener_serves_clients(
    start: Start, eventually: Callable[..., Any], files: Files, anonymous: tuple[str, ...], code: int
) -> None:
    process = start(*PEER, *options(files), *anonymous)
    ports = ports_of(process, eventually, len(EVERY))
    assert tuple(ports) == EVERY
    for listener, port in ports.items():
        assert await answer_of(listener, port, files.client_context()) == code, listener
    warned = [line["listener"] for line in events(process, "no client can connect: no passwords, no anonymous clients")]
    assert warned == (list(EVERY) if anonymous else [])
    assert process.end() == 0
    assert "Traceback" not in process.err


async def test_clients_without_certificate_are_refused_with_tls_ca(
    start: Start, eventually: Callable[..., Any], files: Files
) -> None:
    process = start(*PEER, *options(files), "--tls-ca", str(files.ca))
    ports = ports_of(process, eventually, len(EVERY))
    for listener, port in ports.items():
        assert await answer_of(listener, port, files.client_context(with_certificate=True)) == ACCEPTED, listener
    for listener in TLS_LISTENERS:
        with pytest.raises(ssl.SSLError, match="ALERT_CERTIFICATE_REQUIRED"):
            await answer_of(listener, ports[listener], files.client_context())
    # The second client is of the same host.
    (line,) = eventually(lambda: events(process, "a client certificate was refused"))
    assert line["why"] == "the client has sent none"
    assert line["client"].startswith(f"{HOST}:")


async def test_sighup_renews_the_certificate(start: Start, eventually: Callable[..., Any], files: Files) -> None:
    process = start(*PEER, *options(files))
    port = ports_of(process, eventually, len(EVERY))["mqtt_tls"]

    async def serial() -> object:
        async with reached("mqtt_tls", port, files.client_context()) as client:
            assert await client.connect() == ACCEPTED
            return client.serial

    async with reached("mqtt_tls", port, files.client_context()) as early:
        assert await early.connect(b"e") == ACCEPTED
        files.issue("server", HOST)
        process.send(signal.SIGHUP)
        eventually(lambda: events(process, "certificates reloaded"))
        renewed = await serial()
        assert renewed != early.serial
        files.certificate.write_text("nonsense")
        process.send(signal.SIGHUP)
        failed = eventually(lambda: events(process, "keeping the old certificates"))
        assert failed[0]["why"] == f"{files.certificate}: no certificate in PEM format found"
        assert await serial() == renewed
        assert await early.ask(PINGREQ, 2) == PINGRESP, "who is there stays"


@pytest.mark.parametrize(
    ("arguments", "status", "line"),
    [
        (("--mqtt-tls", f"{HOST}:0"), 2, "tls_cert: missing, but mqtt_tls is a listener with TLS: name the file"),
        (
            ("--mqtt-wss", f"{HOST}:0", "--tls-cert", "none.pem", "--tls-key", "none.key"),
            1,
            "cannot read none.pem: No such file or directory",
        ),
    ],
)
def test_peer_that_cannot_serve_reports_the_reason(
    ringmq: Start, arguments: tuple[str, ...], status: int, line: str
) -> None:
    process = ringmq(*PEER, "--log-level", "error", *arguments)
    assert (process.popen.returncode, process.err) == (status, f"ringmq: {line}\n")


def test_address_in_use_ends_the_start(ringmq: Start, start: Start, eventually: Callable[..., Any]) -> None:
    port = ports_of(start(*PEER, "--mqtt-ws", f"{HOST}:0"), eventually, 1)["mqtt_ws"]
    process = ringmq(*PEER, "--log-level", "error", "--mqtt", f"{HOST}:0", "--mqtt-ws", f"{HOST}:{port}")
    assert process.popen.returncode == 1
    assert process.err.startswith(f"ringmq: cannot listen for MQTT on {HOST}:{port}: ")
    assert process.err.count("\n") == 1


# In this process


async def served(clients: MqttService) -> dict[str, Address]:
    clients.prepare()
    return await clients.listen()


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.1", False), ("edge", False)],
)
def test_loopback_hosts_are_recognised(host: str, local: bool) -> None:
    assert is_loopback(host) is local


@pytest.mark.parametrize(
    ("anonymous", "codes"),
    [
        (None, [ACCEPTED, NOT_AUTHORIZED]),
        (True, [ACCEPTED, ACCEPTED]),
        (False, [NOT_AUTHORIZED, NOT_AUTHORIZED]),
    ],
)
async def test_anonymous_clients_are_admitted_by_setting_or_loopback(anonymous: bool | None, codes: list[int]) -> None:
    clients = MqttService(PeerConfig(mqtt=ANY, mqtt_ws=("0.0.0.0", 0), anonymous=anonymous), Standalone(), Iteration())
    addresses = await served(clients)
    assert [await answer_of(listener, port) for listener, (_, port) in addresses.items()] == codes
    await clients.stop()
    await clients.stop()


async def test_unreadable_file_fails_with_one_line(tmp_path: Path) -> None:
    clients = MqttService(PeerConfig(mqtt=ANY, passwords=tmp_path / "none"), Standalone(), Iteration())
    with pytest.raises(PeerError, match=r"^cannot read .*none: No such file or directory$"):
        clients.prepare()


@pytest.mark.parametrize("setting", ["passwords", "acl"])
async def test_endless_file_is_read_up_to_its_limit(setting: str) -> None:
    clients = MqttService(PeerConfig(mqtt=ANY, **{setting: Path("/dev/zero")}), Standalone(), Iteration())  # type: ignore[arg-type]
    with pytest.raises(PeerError, match=r"^/dev/zero: longer than \d+ characters$"):
        clients.prepare()


async def test_stop_closes_listeners_after_another_failed_to_open() -> None:
    first = MqttService(PeerConfig(mqtt=ANY), Standalone(), Iteration())
    taken = (await served(first))["mqtt"]
    second = MqttService(PeerConfig(mqtt=ANY, mqtt_ws=taken), Standalone(), Iteration())
    with pytest.raises(ClientsError, match=rf"^cannot listen for MQTT on {HOST}:{taken[1]}: .*in use"):
        await served(second)
    await second.stop()
    await first.stop()


@pytest.mark.parametrize("front", ["own", "amqtt"])
async def test_front_gets_the_limits_of_the_settings(front: str) -> None:
    if front == "amqtt":
        pytest.importorskip("amqtt", reason="the extra amqtt is not installed")
    clients = MqttService(
        PeerConfig(mqtt=ANY, front=front, limits=FrontConfig(max_connections=1)), Standalone(), Iteration()
    )
    port = (await served(clients))["mqtt"][1]
    async with reached("mqtt", port) as first:
        assert await first.connect() == ACCEPTED
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await answer_of("mqtt", port)
    await clients.stop()


@pytest.mark.parametrize("front", ["own", "amqtt"])
async def test_status_counts_clients_and_listeners(front: str) -> None:
    if front == "amqtt":
        pytest.importorskip("amqtt", reason="the extra amqtt is not installed")
    clients = MqttService(PeerConfig(mqtt=ANY, mqtt_ws=ANY, front=front), Standalone(), Iteration())
    clients.prepare()
    assert clients.status()["listeners"] == {}, "nobody is served yet"
    addresses = await clients.listen()
    async with reached("mqtt", addresses["mqtt"][1]) as client:
        assert await client.connect() == ACCEPTED
        status = clients.status()
    assert json.loads(json.dumps(status)) == status
    assert status["listeners"] == {name: f"{HOST}:{port}" for name, (_, port) in addresses.items()}
    assert (status["front"]["kind"], status["front"]["clients"]) == (front, 1)
    assert status["front"]["counters"]["connections"] == 1
    if front == "own":
        assert status["front"]["sessions"] == 1
    await clients.stop()


async def test_unreadable_store_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "clients.sqlite").write_bytes(b"nonsense" * 1000)
    clients = MqttService(PeerConfig(mqtt=ANY, data=tmp_path), Standalone(), Iteration())
    clients.prepare()
    with pytest.raises(ClientsError, match=r"^[^\n]*clients\.sqlite[^\n]*$"):
        clients.restore()
    await clients.stop()


async def test_reload_of_a_wrong_file_changes_nothing(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite a\n")
    clients = MqttService(PeerConfig(mqtt=ANY, acl=acl), Standalone(), Iteration())
    clients.reload()
    port = (await served(clients))["mqtt"][1]
    acl.write_text("nonsense\n")
    clients.reload()
    acl.unlink()
    clients.reload()
    assert await answer_of("mqtt", port) == ACCEPTED
    await clients.stop()


# amqtt in the front's place


async def test_amqtt_front_serves_each_listener_by_the_same_rules(tmp_path: Path) -> None:
    pytest.importorskip("amqtt", reason="the extra amqtt is not installed")
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite a\n")
    clients = MqttService(
        PeerConfig(mqtt=ANY, mqtt_ws=("0.0.0.0", 0), acl=acl, front="amqtt", data=tmp_path), Standalone(), Iteration()
    )
    addresses = await served(clients)
    assert await answer_of("mqtt", addresses["mqtt"][1]) == ACCEPTED
    assert await answer_of("mqtt_ws", addresses["mqtt_ws"][1]) == NOT_AUTHORIZED
    clients.reload()
    assert clients.fault is None
    await clients.stop()
    assert not (tmp_path / "clients.sqlite").exists()


async def test_wrong_amqtt_settings_fail_with_one_line(tmp_path: Path) -> None:
    pytest.importorskip("amqtt", reason="the extra amqtt is not installed")
    settings = tmp_path / "amqtt.yaml"
    settings.write_text("plugins: 7\n")
    with pytest.raises(ClientsError, match=r"amqtt\.yaml") as caught:
        MqttService(PeerConfig(mqtt=ANY, front="amqtt", amqtt_settings=settings), Standalone(), Iteration()).prepare()
    assert "\n" not in str(caught.value)


async def test_first_settings_of_the_document_need_only_amqtt(tmp_path: Path) -> None:
    pytest.importorskip("amqtt", reason="the extra amqtt is not installed")
    text = (Path(__file__).parents[2] / "docs" / "amqtt.md").read_text()
    settings = tmp_path / "amqtt.yaml"
    settings.write_text(text.partition("```yaml\n")[2].partition("```")[0])
    clients = MqttService(PeerConfig(mqtt=ANY, front="amqtt", amqtt_settings=settings), Standalone(), Iteration())
    port = (await served(clients))["mqtt"][1]
    assert await answer_of("mqtt", port) == ACCEPTED
    await clients.stop()


def test_process_with_the_amqtt_front_serves_clients(start: Start, eventually: Callable[..., Any]) -> None:
    pytest.importorskip("amqtt", reason="the extra amqtt is not installed")
    process = start(*PEER, "--mqtt", f"{HOST}:0", "--front", "amqtt")
    port = ports_of(process, eventually, 1)["mqtt"]
    assert asyncio.run(answer_of("mqtt", port)) == ACCEPTED
    assert process.end() == 0
    assert "Traceback" not in process.err
