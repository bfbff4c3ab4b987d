"""Servers that a test plays: packet by packet for a client of MQTT, or by bytes that are something else."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from ringmq.mqtt_front.client.events import ClientEvent
from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.client.shell.client import Client, ClientSettings
from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Connack, Connect, Disconnect, Packet, Version
from ringmq.mqtt_front.codec.reasons import Reason

HOST = "127.0.0.1"
WITHIN_S = 10.0


class PlayedServer:
    """A server on a free port. Each connection of a client is a `Visit` in `visits`."""

    def __init__(self) -> None:
        self.visits: asyncio.Queue[Visit] = asyncio.Queue()
        self.port = 0
        self._server: asyncio.Server | None = None
        self._open: list[Visit] = []

    @property
    def address(self) -> ServerAddress:
        return ServerAddress(HOST, self.port)

    async def start(self, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._visit, HOST, port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        for visit in self._open:
            visit.drop()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def next(self) -> Visit:
        async with asyncio.timeout(WITHIN_S):
            return await self.visits.get()

    async def admitted(self, *, session_present: bool = False) -> Visit:
        """The next visit, after its CONNECT was accepted."""
        visit = await self.next()
        visit.connect = await visit.packet()
        visit.send(Connack(session_present, Reason.SUCCESS))
        return visit

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(reader, writer)
        self._open.append(visit)
        await self.visits.put(visit)
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


class Visit:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.connect: Packet | None = None
        self._packets = PacketReader()
        self._read: list[Packet] = []

    async def packet(self) -> Packet:
        async with asyncio.timeout(WITHIN_S):
            while not self._read:
                data = await self.reader.read(1 << 16)
                assert data, "the client has closed the connection"
                self._read += [decode(Version.V5, first, body) for first, body in self._packets.feed(data)]
        return self._read.pop(0)

    async def left(self) -> bool:
        """Whether the client says good-bye, which is answered as a server does."""
        packet = await self.packet()
        self.drop()
        return packet == Disconnect()

    def send(self, *packets: Packet) -> None:
        self.writer.write(b"".join(encode(Version.V5, packet) for packet in packets))

    def drop(self) -> None:
        self.writer.transport.abort()


class Running:
    """A client of a test, its events and its notices."""

    def __init__(self, *addresses: ServerAddress, connect: Connect | None = None, reconnects: bool = True) -> None:
        self.events: asyncio.Queue[ClientEvent] = asyncio.Queue()
        self.notices: list[str] = []
        self._noticed = asyncio.Event()
        connect = connect or Connect(Version.V5, "c", True, 60)
        settings = ClientSettings(connect, addresses, None, reconnects, WITHIN_S)
        self.client = Client(settings, self.events.put_nowait, self._notice)
        self.task = asyncio.create_task(self.client.run())

    async def event(self) -> ClientEvent:
        async with asyncio.timeout(WITHIN_S):
            return await self.events.get()

    async def notice(self, text: str) -> None:
        """Return when there was a notice with this text."""
        async with asyncio.timeout(WITHIN_S):
            while not any(text in notice for notice in self.notices):
                self._noticed.clear()
                await self._noticed.wait()

    def _notice(self, text: str) -> None:
        self.notices.append(text)
        self._noticed.set()

    async def failure(self) -> BaseException | None:
        await asyncio.wait({self.task}, timeout=WITHIN_S)
        return self.task.exception()

    async def stop(self) -> None:
        self.task.cancel()
        await self.client.leave()
        await asyncio.gather(self.task, return_exceptions=True)


@contextlib.asynccontextmanager
async def answering(
    answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """A server that does this with each connection, and then closes it; gives its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await answer(reader, writer)
            writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
