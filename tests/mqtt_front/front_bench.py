"""A front on real sockets, with a clock that the test sets, and clients that do not do what they should."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from ringmq.mqtt_front.access.access import Access
from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Packet,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.connection import Connection
from ringmq.mqtt_front.connection.handlers import Handlers
from ringmq.mqtt_front.connection.reader import Reader
from ringmq.mqtt_front.connection.writer import Writer
from ringmq.mqtt_front.server.client_socket import ClientSocket
from ringmq.mqtt_front.server.listeners import Listen
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.server.websocket import WebSocket
from ringmq.mqtt_front.sessions.queue import MessageQueue
from ringmq.mqtt_front.sessions.session import Session
from ringmq.peer.iteration import Iteration

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import SlowPorts

V5 = Version.V5
DEADLINE_S = 10.0
PARTS = (Connection, Reader, Handlers, Writer)
P = TypeVar("P")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.001)


@contextmanager
def by_counts_alone() -> Iterator[Callable[[], list[object]]]:
    """Nothing is freed in here by looking for garbage, as in a peer, which does so very seldom. Gives what tells which
    objects of `mqtt_front` there are that were not there before.
    """
    gc.collect()
    gc.disable()
    before = {id(one) for one in _ours()}
    try:
        yield lambda: [one for one in _ours() if id(one) not in before]
    finally:
        gc.enable()


def _ours() -> list[object]:
    return [
        one for one in gc.get_objects() if isinstance(one, (*PARTS, Session, ClientSocket, WebSocket, MessageQueue))
    ]


class Client:
    """A client on a socket with as little room as possible."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: Version) -> None:
        self.reader, self.writer, self.version = reader, writer, version
        self._packets = PacketReader()
        self._came: list[Packet] = []

    def feed(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, *packets: Packet) -> None:
        self.feed(b"".join([encode(self.version, packet) for packet in packets]))

    async def read(self) -> bool:
        """Some more; False at the end."""
        async with asyncio.timeout(DEADLINE_S):
            try:
                data = await self.reader.read(65536)
            except ConnectionError:
                return False
        for first, body in self._packets.feed(data):
            packet = decode(self.version, first, body)
            if isinstance(packet, Publish):
                packet = Publish(packet.topic, bytes(packet.payload), packet.qos, packet_id=packet.packet_id)
            self._came.append(packet)
        return bool(data)

    async def next(self, kind: type[P]) -> P:
        while not self._came:
            assert await self.read(), f"closed before {kind.__name__}"
        packet = self._came.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    async def closed(self) -> bool:
        """Whether the server closes without another word."""
        while await self.read():
            assert not self._came, self._came
        return not self._came

    async def connect(self, client_id: str, **fields: object) -> Client:
        properties = Properties(**fields.pop("properties", {}))  # type: ignore[arg-type]
        self.send(Connect(self.version, client_id, True, properties=properties, **{"keep_alive_s": 0, **fields}))  # type: ignore[arg-type]
        assert (await self.next(Connack)).reason is Reason.SUCCESS
        return self

    async def subscribe(self, topic_filter: str, qos: int = 0) -> None:
        self.send(Subscribe(1, (Subscription(topic_filter, qos),)))
        await self.next(Suback)


class Bench:
    """A front with a clock of its own, and its clients."""

    def __init__(self) -> None:
        self.now = 0.0
        self.clients: list[Client] = []
        self.front: MqttServer
        self.address: tuple[str, int]

    async def start(
        self,
        *,
        access: Access | None = None,
        cluster: SlowPorts | None = None,
        on_fault: Callable[[], object] | None = None,
        **config: object,
    ) -> MqttServer:
        self.front = MqttServer(
            Iteration(lambda: self.now),
            FrontConfig(sys_interval_s=0, **config),  # type: ignore[arg-type]
            access,
            cluster,
            on_fault,
        )
        self.address = await self.front.listen(Listen(host="127.0.0.1", port=0))
        return self.front

    async def dial(self, version: Version = V5) -> Client:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, self.address)
        reader, writer = await asyncio.open_connection(sock=sock, limit=1024)
        self.clients.append(Client(reader, writer, version))
        return self.clients[-1]

    async def connect(self, client_id: str, version: Version = V5, **fields: object) -> Client:
        return await (await self.dial(version)).connect(client_id, **fields)

    def transport(self, client_id: str) -> asyncio.Transport:
        """The server's side of a client, with as little room as possible."""
        line = self.front.broker.sessions[client_id].writer
        transport = next(client.transport for writer, client in self.front.clients.items() if writer is line)
        assert transport is not None
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return transport

    def sweep(self, now: float) -> None:
        self.now = now
        self.front._sweep()
