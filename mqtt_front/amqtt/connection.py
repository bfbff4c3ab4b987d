"""A client's connection, between its socket and amqtt: a protocol to the socket, a reader and a writer to amqtt.

amqtt continues after a malformed packet, accepts packets of any size, and bounds neither its reading nor its writing.
So this passes on only whole and valid packets that a client may send, no faster than amqtt processes them, and closes
clients that do not read. Imports nothing of amqtt.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any, Final, cast

from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.fields import write_varint
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Connect, Disconnect, Kind, Publish, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.opening import refusal
from ringmq.mqtt_front.counters import FrontCounters
from ringmq.mqtt_front.errors import PacketError, ProtocolBreachError, UnsupportedVersionError
from ringmq.mqtt_front.server.listeners import LINGER_S

READS_AT_ONCE: Final = 32
"""Reads without a pause, some five packets: amqtt reads while bytes are available, and would starve other clients."""

FROM_CLIENTS: Final = frozenset(
    {
        *(Kind.PUBLISH, Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP),
        *(Kind.SUBSCRIBE, Kind.UNSUBSCRIBE, Kind.PINGREQ, Kind.DISCONNECT),
    }
)
"""The packets that a client may send after its CONNECT."""


class AmqttConnection(asyncio.Protocol):
    """Await `connect` first; then call `refuse`, or pass the connection to amqtt."""

    def __init__(self, config: FrontConfig, counters: FrontCounters, opened: Callable[[AmqttConnection], None]) -> None:
        self._config = config
        self._counters = counters
        self._opened = opened
        self._loop = asyncio.get_running_loop()
        self._packets = PacketReader(config.max_packet_bytes)
        self._inbox = asyncio.StreamReader()
        self._room = asyncio.Event()
        self._room.set()
        self._reads = 0
        self._transport: asyncio.Transport | None = None
        self.connect: asyncio.Future[Connect | None] = self._loop.create_future()
        """The CONNECT; None if the client has gone or was refused without a valid CONNECT."""
        self.task: asyncio.Task[None] | None = None
        """The task that serves this connection, from its beginning to its end."""
        self.opened_at = self._loop.time()
        self._heard_at = self.opened_at
        self._keep_alive_s = 0
        self.said_goodbye = False
        """Whether a DISCONNECT has come, which removes the will [MQTT-3.1.2-10]."""
        self.closing = False

    def serve(self, serving: Coroutine[Any, Any, None]) -> None:
        """Serve the client by a task of its own. It outlasts the connection: await `task` after `hang_up`."""
        self.task = self._loop.create_task(serving)

    def admitted(self, keep_alive_s: int) -> None:
        """The client has been accepted, and its keep-alive holds from now on."""
        self._keep_alive_s = keep_alive_s

    def is_silent(self, now: float) -> bool:
        """Whether nothing has come for 1.5 times the keep-alive (3.1.1 [MQTT-3.1.2-24]); 0 turns the check off."""
        if self.paused:
            # Its bytes are not read now, so its silence proves nothing, and the time begins again.
            self._heard_at = now
        return self._keep_alive_s > 0 and now - self._heard_at > 1.5 * self._keep_alive_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        # A StreamReader with a transport pauses it while too many bytes wait for amqtt.
        self._inbox.set_transport(self._transport)
        self._opened(self)

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._counters.bytes_received += len(data)
        if self.closing or self.said_goodbye:
            return
        try:
            for first, body in self._packets.feed(data):
                self._process(first, body)
                if self.closing or self.said_goodbye:
                    return
        except UnsupportedVersionError:
            self.refuse(Version.V311, Reason.UNSUPPORTED_PROTOCOL_VERSION)
        except PacketError:
            self._counters.protocol_errors += 1
            self.hang_up()

    def _process(self, first: int, body: memoryview) -> None:
        # amqtt speaks 3.1.1 only; a CONNECT is decoded by its own version.
        packet = decode(Version.V311, first, body)
        self._counters.messages_received += 1
        if not self.connect.done():
            if not isinstance(packet, Connect):
                raise ProtocolBreachError("the first packet must be a CONNECT")
            if packet.version is Version.V311:
                self.connect.set_result(packet)
            else:
                self.refuse(packet.version, Reason.UNSUPPORTED_PROTOCOL_VERSION)
            return
        if first >> 4 not in FROM_CLIENTS:
            raise ProtocolBreachError(f"a client must not send packet type {first >> 4} now")
        if isinstance(packet, Publish):
            self._counters.received(packet.topic, len(packet.payload))
        self.said_goodbye = isinstance(packet, Disconnect)
        self._inbox.feed_data(bytes((first,)) + write_varint(len(body)) + body)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self.closing:
            self.closing = True
            self._inbox.feed_eof()
            self._room.set()
        if not self.connect.done():
            self.connect.set_result(None)

    def refuse(self, version: Version, reason: Reason) -> None:
        """Refuse the client with a CONNACK, if its version has a return code for the reason, and close."""
        answer = refusal(version, reason)
        self._counters.refused += not self.closing
        if answer is not None:
            self.write(encode(version, answer))
        self.hang_up()

    def abort(self) -> None:
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def hang_up(self) -> None:
        """Close once the bytes are sent; amqtt reads the end after the bytes that have come until now."""
        transport = self._transport
        self._end()
        if transport is not None and not transport.is_closing():
            if transport.get_write_buffer_size():
                self._loop.call_later(LINGER_S, transport.abort)
            transport.close()

    def pace(self, waiting: int) -> None:
        """Pause or resume reading by the number of this client's messages that amqtt has not processed."""
        if waiting >= self._config.receive_maximum and not self.closing:
            self._room.clear()
        # Resumed at half, so that a fast publisher does not switch with every message.
        elif waiting <= self._config.receive_maximum // 2:
            self._room.set()

    @property
    def paused(self) -> bool:
        """Whether reading is paused, so that silence proves nothing."""
        return not self._room.is_set()

    async def read(self, n: int = -1) -> bytes:
        self._reads += 1
        if self._reads % READS_AT_ONCE == 0:
            await asyncio.sleep(0)
        await self._room.wait()
        return await (self._inbox.read() if n < 0 else self._inbox.readexactly(n))

    def feed_eof(self) -> None:
        self._end()

    def write(self, data: bytes) -> None:
        transport = self._transport
        if self.closing or transport is None:
            return
        # This must not wait, so a client that does not read is cut off.
        if transport.get_write_buffer_size() > 2 * self._config.max_buffer_bytes:
            self._counters.publish_dropped += 1
            self.abort()
            return
        self._counters.packet_sent(len(data))
        transport.write(data)

    async def drain(self) -> None:
        """Does nothing, since `write` enforces the bound."""

    def get_peer_info(self) -> tuple[str, int] | None:
        address = None if self._transport is None else self._transport.get_extra_info("peername")
        return (str(address[0]), int(address[1])) if isinstance(address, tuple) else None

    def get_ssl_info(self) -> ssl.SSLObject | None:
        found = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return cast("ssl.SSLObject | None", found)

    async def close(self) -> None:
        self.hang_up()
