"""An MQTT client on the event loop, light enough for many of them. It calls back with each message that arrives.

Owns one connection from its CONNECT to its end. Callers interpret the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, Self, cast

from ringmq.experiments.load.patterns import connect_packet
from ringmq.experiments.load.raw_clients import ANSWER_S, Address, BenchError
from ringmq.mqtt_front.codec.codec import decode, encode, encode_publish
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Disconnect,
    Kind,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.reasons import SUBACK_3_FAILURE

MAX_PACKET_ID: Final = 65_535

V311: Final = Version.V311
OnMessage = Callable[[Publish], None]


def ignore(message: Publish) -> None:
    """Ignore the message, in clients without subscriptions."""


class Client(asyncio.Protocol):
    """A client with a clean session. Answers are futures, which raise BenchError if the connection ends."""

    def __init__(self, on_message: OnMessage = ignore) -> None:
        self.ended = False
        self._on_message = on_message
        self._reader = PacketReader()
        self._answers: dict[tuple[Kind, int], asyncio.Future[None]] = {}
        self._packet_id = 0
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def connect(cls, address: Address, client_id: str, on_message: OnMessage = ignore) -> Self:
        """Connect a client and await its CONNACK. Raises BenchError."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                _, client = await loop.create_connection(lambda: cls(on_message), *address)
                await client.greet(client_id)
        except OSError as error:  # a timeout is one
            raise BenchError(f"cannot connect to {address[0]}:{address[1]}: {error.strerror or 'no answer'}") from None
        return client

    def greet(self, client_id: str) -> asyncio.Future[None]:
        """Send a CONNECT. The future is done at the CONNACK, and raises BenchError if the server refuses."""
        connected = self._await(Kind.CONNACK, 0)
        self._write(connect_packet(client_id))
        return connected

    async def subscribe_and_wait(self, *filters: str, qos: int = 0) -> None:
        """Subscribe and await the SUBACK. Raises BenchError if it does not come, or a filter is refused."""
        try:
            async with asyncio.timeout(ANSWER_S):
                await self.subscribe(*filters, qos=qos)
        except TimeoutError:
            raise BenchError(f"no SUBACK came within {ANSWER_S:g} s") from None

    def subscribe(self, *filters: str, qos: int = 0) -> asyncio.Future[None]:
        """Send a SUBSCRIBE. The future is done at the SUBACK, and raises BenchError if a filter is refused."""
        subscriptions = tuple(Subscription(name, qos) for name in filters)
        return self._ask(Kind.SUBACK, lambda packet_id: Subscribe(packet_id, subscriptions))

    def unsubscribe(self, *filters: str) -> asyncio.Future[None]:
        """Send an UNSUBSCRIBE. The future is done at the UNSUBACK."""
        return self._ask(Kind.UNSUBACK, lambda packet_id: Unsubscribe(packet_id, filters))

    def publish(self, topic: str, payload: bytes, retain: bool = False) -> None:
        """Publish with QoS 0."""
        self._write(encode_publish(V311, topic.encode(), payload, 0, retain))

    def publish_qos1(self, topic: str, payload: bytes, retain: bool = False) -> asyncio.Future[None]:
        """Publish with QoS 1. The future is done at the PUBACK."""
        return self._ask(Kind.PUBACK, lambda packet_id: Publish(topic, payload, 1, retain, packet_id=packet_id))

    def close(self) -> None:
        """Send a DISCONNECT and close the connection, without waiting for the server."""
        if self._transport is not None and not self._transport.is_closing():
            self._write(encode(V311, Disconnect()))
            self._transport.close()

    # The connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it

    def data_received(self, data: bytes) -> None:
        for first, body in self._reader.feed(data):
            self._process(decode(V311, first, body))

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(BenchError("the server closed the connection"))
                answer.exception()  # marks it as retrieved: asyncio logs exceptions of futures that no task awaits
        self._answers.clear()

    def _process(self, packet: Packet) -> None:
        if isinstance(packet, Publish):
            if packet.qos:
                self._write(encode(V311, Puback(packet.packet_id)))
            self._on_message(packet)
        elif isinstance(packet, Puback):
            self._answered(Kind.PUBACK, packet.packet_id)
        elif isinstance(packet, Suback):
            refused = SUBACK_3_FAILURE in packet.reasons
            self._answered(Kind.SUBACK, packet.packet_id, "a SUBSCRIBE was refused" if refused else "")
        elif isinstance(packet, Unsuback):
            self._answered(Kind.UNSUBACK, packet.packet_id)
        elif isinstance(packet, Connack):
            self._answered(Kind.CONNACK, 0, "a CONNECT was refused" if packet.reason else "")

    def _answered(self, kind: Kind, packet_id: int, fault: str = "") -> None:
        answer = self._answers.pop((kind, packet_id), None)
        if answer is None or answer.done():
            return
        if fault:
            answer.set_exception(BenchError(fault))
        else:
            answer.set_result(None)

    def _ask(self, kind: Kind, packet: Callable[[int], Packet]) -> asyncio.Future[None]:
        self._packet_id = self._packet_id % MAX_PACKET_ID + 1
        answer = self._await(kind, self._packet_id)
        self._write(encode(V311, packet(self._packet_id)))
        return answer

    def _await(self, kind: Kind, packet_id: int) -> asyncio.Future[None]:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if self.ended:
            answer.set_exception(BenchError("the server closed the connection"))
            answer.exception()
        else:
            self._answers[kind, packet_id] = answer
        return answer

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)


@asynccontextmanager
async def connected_client(address: Address, client_id: str, on_message: OnMessage = ignore) -> AsyncIterator[Client]:
    """A client that is connected while the context lasts. Raises BenchError."""
    client = await Client.connect(address, client_id, on_message)
    try:
        yield client
    finally:
        client.close()
