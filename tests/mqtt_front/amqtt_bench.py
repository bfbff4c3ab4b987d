"""What the tests of amqtt share: a front with amqtt in it, ports that remember what they are told, and clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from ringmq.mqtt_front.access.access import Access
from ringmq.mqtt_front.access.passwords import Cost, new_entry
from ringmq.mqtt_front.amqtt.server import AmqttServer
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.listeners import Listen
from tests.mqtt_front.access.accesses import access_from

V311 = Version.V311
DEADLINE_S = 10.0
P = TypeVar("P")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.001)


def line_of(user_name: str, password: str) -> str:
    """Of a password file, cheap to verify."""
    return new_entry(user_name, password.encode(), b"s" * 16, Cost(11, 8, 1)).line


def access_of(acl: str | None = None, **passwords: str) -> Access:
    """Users, by their passwords, and an ACL."""
    lines = [line_of(name, password) for name, password in passwords.items()]
    return access_from("\n".join(lines) if lines else None, acl)


class Ears:
    """A layer above that remembers, and lets a filter be in force at once unless `patient`."""

    keeps_retained = False

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.receivers: list[int] = []
        self.dones: list[Done | None] = []
        self.filters: list[str] = []
        """`+filter` and `-filter`, in the order in which they were told."""
        self.patient = False
        self.waiting: list[Callable[[], None]] = []

    def published(self, message: Message, receivers_here: int, done: Done | None) -> None:
        self.messages.append(message)
        self.receivers.append(receivers_here)
        self.dones.append(done)
        if done is not None:
            done(Reason.SUCCESS)

    def filter_added(self, topic_filter: str, done: Callable[[], None], lasting: bool = False) -> None:
        self.filters.append("+" + topic_filter)
        if self.patient:
            self.waiting.append(done)
        else:
            done()

    def filter_removed(self, topic_filter: str) -> None:
        self.filters.append("-" + topic_filter)

    @property
    def payloads(self) -> list[bytes]:
        return [message.payload for message in self.messages]


class Client:
    """A client of 3.1.1 that does what it is told, byte by byte if need be."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self._packets = PacketReader()
        self._came: list[Packet] = []

    def send(self, *packets: Packet, version: Version = V311) -> None:
        self.writer.write(b"".join([encode(version, packet) for packet in packets]))

    async def _read(self) -> bool:
        async with asyncio.timeout(DEADLINE_S):
            try:
                data = await self.reader.read(65536)
            except ConnectionError:
                return False
        for first, body in self._packets.feed(data):
            packet = decode(V311, first, body)
            if isinstance(packet, Publish):
                packet = Publish(
                    packet.topic, bytes(packet.payload), packet.qos, packet.retain, False, packet.packet_id
                )
            self._came.append(packet)
        return bool(data)

    async def next(self, kind: type[P]) -> P:
        while not self._came:
            assert await self._read(), f"closed before {kind.__name__}"
        packet = self._came.pop(0)
        assert isinstance(packet, kind), packet
        return packet

    async def closed(self) -> bool:
        """Whether the server closes without another word."""
        while await self._read():
            assert not self._came, self._came
        return not self._came

    def send_connect(self, client_id: str = "c", clean: bool = True, keep_alive_s: int = 0, **fields: Any) -> None:
        self.send(Connect(V311, client_id, clean, keep_alive_s, **fields))

    async def connect(self, client_id: str = "c", clean: bool = True, **fields: Any) -> Connack:
        self.send_connect(client_id, clean, **fields)
        return await self.next(Connack)

    async def subscribe(self, *filters: str, qos: int = 0) -> tuple[int, ...]:
        self.send(Subscribe(1, tuple([Subscription(one, qos) for one in filters])))
        return tuple([int(reason) for reason in (await self.next(Suback)).reasons])

    async def unsubscribe(self, *filters: str) -> None:
        self.send(Unsubscribe(2, filters))
        await self.next(Unsuback)

    async def publish(self, topic: str, payload: bytes = b"x", qos: int = 0, retain: bool = False) -> None:
        """With QoS 1 when it is acknowledged."""
        self.send(Publish(topic, payload, qos, retain, packet_id=7 if qos else 0))
        if qos == 1:
            await self.next(Puback)

    async def message(self) -> tuple[str, bytes, int, bool]:
        """The next one, acknowledged."""
        got = await self.next(Publish)
        if got.qos == 1:
            self.send(Puback(got.packet_id))
        return got.topic, bytes(got.payload), got.qos, got.retain

    async def quiet(self) -> bool:
        """Whether nothing has come, and nothing comes before the answer to a ping that is sent now."""
        self.send(Pingreq())
        return isinstance(await self.next(Pingresp), Pingresp)

    def drop(self) -> None:
        """Without a DISCONNECT."""
        self.writer.transport.abort()


class Bench:
    """A front and its clients; `close` ends them all."""

    def __init__(self) -> None:
        self.ears = Ears()
        self.front: AmqttServer
        self.address: tuple[str, int]
        self._clients: list[Client] = []

    async def start(
        self, access: Access | None = None, settings: str | None = None, anonymous: bool = True, **config: Any
    ) -> AmqttServer:
        self.front = AmqttServer(FrontConfig(**config), access, self.ears, settings)
        self.address = await self.front.listen(Listen(host="127.0.0.1", port=0, anonymous=anonymous))
        return self.front

    async def dial(self) -> Client:
        self._clients.append(Client(*await asyncio.open_connection(*self.address)))
        return self._clients[-1]

    async def connect(self, client_id: str = "c", clean: bool = True, **fields: Any) -> Client:
        client = await self.dial()
        assert (await client.connect(client_id, clean, **fields)).reason is Reason.SUCCESS
        return client

    async def told(self, count: int) -> list[bytes]:
        """The payloads of what was published, once it is so many: amqtt acknowledges before."""
        await until(lambda: len(self.ears.messages) >= count)
        return self.ears.payloads

    async def close(self) -> None:
        for client in self._clients:
            client.drop()
        if hasattr(self, "front"):
            await self.front.stop()
