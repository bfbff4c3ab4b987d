"""The MQTT clients of a peer: who is let in where, and what is said about files that cannot be used."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mqtt_front.codec import decode, encode
from mqtt_front.packets import Connack, Connect, Version
from mqtt_front.reasons import Reason
from peer.clients import Clients, ClientsError, is_loopback
from peer.config import PeerConfig


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.1", False), ("edge", False)],
)
def test_which_hosts_only_this_machine_reaches(host: str, local: bool) -> None:
    assert is_loopback(host) is local


async def connack(port: int) -> Connack:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(encode(Version.V5, Connect(Version.V5, "c", True, 60)))
    async with asyncio.timeout(5):
        first, size = await reader.readexactly(2)
        packet = decode(Version.V5, first, await reader.readexactly(size))
    writer.close()
    await writer.wait_closed()
    assert isinstance(packet, Connack)
    return packet


@pytest.mark.parametrize(
    ("anonymous", "reason"),
    [(None, Reason.SUCCESS), (True, Reason.SUCCESS), (False, Reason.NOT_AUTHORIZED)],
)
async def test_whether_clients_without_a_password_are_let_in(anonymous: bool | None, reason: Reason) -> None:
    clients = Clients(PeerConfig(mqtt=("127.0.0.1", 0), anonymous=anonymous))
    _, port = await clients.start()
    assert (await connack(port)).reason is reason
    await clients.stop()
    await clients.stop()


async def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    clients = Clients(PeerConfig(mqtt=("127.0.0.1", 0), passwords=tmp_path / "none"))
    with pytest.raises(ClientsError, match=r"^cannot read .*none: No such file or directory$"):
        await clients.start()


async def test_a_port_in_use_is_one_line() -> None:
    first = Clients(PeerConfig(mqtt=("127.0.0.1", 0)))
    address = await first.start()
    second = Clients(PeerConfig(mqtt=address))
    with pytest.raises(ClientsError, match=rf"^cannot listen for MQTT on 127.0.0.1:{address[1]}: .*in use"):
        await second.start()
    await second.stop()
    await first.stop()


async def test_a_wrong_file_at_a_reload_changes_nothing(tmp_path: Path) -> None:
    acl = tmp_path / "acl"
    acl.write_text("topic readwrite a\n")
    clients = Clients(PeerConfig(mqtt=("127.0.0.1", 0), acl=acl))
    _, port = await clients.start()
    acl.write_text("nonsense\n")
    clients.reload()
    assert (await connack(port)).reason is Reason.SUCCESS
    await clients.stop()
