"""A client that stays connected: one connection after the other, to the first of its servers that can be reached.

Owns the order of the addresses and the pauses between attempts. Its user gets events, and publishes and subscribes.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from ringmq.mqtt_front.client.connection import ClientConnection
from ringmq.mqtt_front.client.events import Arrived, ClientEvent, Completed, Opened
from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.client.session_state import Publication, SessionState
from ringmq.mqtt_front.client.shell.dialing import dial
from ringmq.mqtt_front.client.shell.server_line import ServerLine
from ringmq.mqtt_front.codec.packets import NO_PROPERTIES, Connect, Properties, Subscription
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import NoConnectionError, Trouble

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
"""The pause before an attempt doubles up to this: many clients of a server that is down must not crowd it when it is
back."""
STEADY_S: Final = 10.0
"""A connection that lasted this long makes the next pause the first again. Two clients that take each other's id, or a
server that accepts and ends connections at once, make it grow."""
MAX_PENDING: Final = 1_000
MAX_PENDING_BYTES: Final = 16 << 20
"""Publications without an acknowledgement, and their payloads, up to which `ready` returns: enough for any round trip,
and the memory of a small command."""
WRITE_BYTES: Final = 1 << 16
PUBLISH_BYTES: Final = 64
"""Publications are written together up to WRITE_BYTES; each counts for its payload and PUBLISH_BYTES."""

PASSING: Final = frozenset(
    {
        Reason.SUCCESS,
        Reason.UNSPECIFIED_ERROR,
        Reason.IMPLEMENTATION_SPECIFIC_ERROR,
        Reason.SERVER_UNAVAILABLE,
        Reason.SERVER_BUSY,
        Reason.SERVER_SHUTTING_DOWN,
        Reason.KEEP_ALIVE_TIMEOUT,
        Reason.MESSAGE_RATE_TOO_HIGH,
        Reason.QUOTA_EXCEEDED,
        Reason.ADMINISTRATIVE_ACTION,
        Reason.USE_ANOTHER_SERVER,
        Reason.SERVER_MOVED,
        Reason.CONNECTION_RATE_EXCEEDED,
        Reason.MAXIMUM_CONNECT_TIME,
    }
)
"""Reasons after which another attempt, or another server, may do. Any other would come again."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    connect: Connect
    """The first CONNECT. Later ones are the same, but resume the session if it outlives a connection."""
    addresses: tuple[ServerAddress, ...]
    """At least one, in the order of the attempts."""
    tls: ssl.SSLContext | None = None
    """Needed if an address has TLS."""
    reconnects: bool = True
    """Whether a lost connection is followed by another one. The first must come about in any case."""
    connect_timeout_s: float = 10.0
    """From the first packet of TCP to the CONNACK, for each address."""


class Client:
    """`run` it; call `publish` and `subscribe` while it `is_open`. Arrived messages want `acknowledge`."""

    def __init__(
        self,
        settings: ClientSettings,
        on_event: Callable[[ClientEvent], None],
        on_notice: Callable[[str], None],
    ) -> None:
        """`on_event` must not raise. `on_notice` is told about lost connections and other attempts, a line each."""
        self.state = SessionState()
        self.connections = 0
        """Connections so far."""
        self._settings = settings
        self._on_event = on_event
        self._on_notice = on_notice
        self._line: ServerLine | None = None
        self._at = 0
        self._leaving = False
        self._changed = asyncio.Event()
        self._pending_bytes = 0
        own = settings.connect
        self._lasts = not own.clean_start or bool(own.properties.session_expiry_s)

    @property
    def is_open(self) -> bool:
        return self._line is not None and self._line.is_open

    async def run(self) -> None:
        """Connect and stay connected; returns after `leave`. Raises NoConnectionError when it gives up."""
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                line = await self._connect()
            except NoConnectionError as error:
                fault = error
                if not self.connections:
                    raise
            else:
                since = asyncio.get_running_loop().time()
                fault = await asyncio.shield(line.gone)
                self._changed.set()
                if asyncio.get_running_loop().time() - since >= STEADY_S:
                    pause_s = FIRST_PAUSE_S
            if self._leaving:
                return
            if not self._settings.reconnects or is_final(fault):
                raise fault
            # Between half of the pause and all of it, so that clients that were lost together do not come together.
            wait_s = pause_s * (256 + os.urandom(1)[0]) / 512
            self._on_notice(f"{fault}; connecting again in {wait_s:.1f} s")
            await asyncio.sleep(wait_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def leave(self) -> None:
        """Say good-bye and end the connection. Cancel `run` after it: it may wait for its next attempt."""
        self._leaving = True
        if self._line is not None:
            await self._line.leave()

    # Calls

    async def ready(self) -> None:
        """Return when it is open and can take a publication, as far as buffers and acknowledgements go."""
        while True:
            line = self._line
            room = self.state.pending < MAX_PENDING and self._pending_bytes < MAX_PENDING_BYTES
            if not room or line is None or not line.is_open or not line.can_write:
                await self._change()
            elif line.unwritten_bytes >= WRITE_BYTES:
                await asyncio.sleep(0)  # it is written at the end of the iteration, and only then has a size
            else:
                return

    async def settled(self) -> None:
        """Return when it is open and no publication is without its acknowledgement."""
        while not self.is_open or self.state.pending:
            await self._change()

    def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties = NO_PROPERTIES
    ) -> Publication | None:
        """As `ClientConnection.publish`. Raises CallError and EncodeError."""
        line = self._opened_line()
        publication = line.connection.publish(topic, payload, qos, retain, properties)
        self._pending_bytes += 0 if publication is None else len(payload)
        line.flush_soon(PUBLISH_BYTES + len(payload))
        return publication

    def subscribe(self, *subscriptions: Subscription) -> None:
        """As `ClientConnection.subscribe`. Raises CallError and EncodeError."""
        line = self._opened_line()
        line.connection.subscribe(*subscriptions)
        line.flush_soon()

    def unsubscribe(self, *filters: str) -> None:
        """As `ClientConnection.unsubscribe`. Raises CallError and EncodeError."""
        line = self._opened_line()
        line.connection.unsubscribe(*filters)
        line.flush_soon()

    def ping(self) -> None:
        """Ponged follows, unless the connection is lost before."""
        line = self._opened_line()
        line.connection.ping(asyncio.get_running_loop().time())
        line.flush_soon()

    def acknowledge(self, message: Arrived, connections: int) -> None:
        """Acknowledge a message that arrived when there had been so many `connections`, unless that one is gone."""
        if self.is_open and connections == self.connections:
            line = self._opened_line()
            line.connection.acknowledge(message)
            line.flush_soon()

    def read_nothing(self, paused: bool) -> None:
        """Stop reading, or go on; it lasts as long as the connection."""
        if self._line is not None:
            self._line.read_nothing(paused)

    def _opened_line(self) -> ServerLine:
        assert self._line is not None, "call it while it is open"
        return self._line

    # Connections

    async def _connect(self) -> ServerLine:
        addresses = self._settings.addresses
        for step in range(len(addresses)):
            number = (self._at + step) % len(addresses)
            try:
                line = await self._attempt(addresses[number])
            except NoConnectionError as error:
                if step == len(addresses) - 1 or is_final(error):
                    raise
                self._on_notice(f"{error}; trying {addresses[(number + 1) % len(addresses)]}")
            else:
                self._at = number
                return line
        raise AssertionError("no address")

    async def _attempt(self, address: ServerAddress) -> ServerLine:
        connect = self._settings.connect
        if self.connections and self._lasts:
            connect = replace(connect, clean_start=False)
        connection = ClientConnection(connect, self.state, automatic=False)
        self._line = line = ServerLine(connection, address, self._take, self._changed.set)
        limit_s = self._settings.connect_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                await dial(address, self._settings.tls, line)
                await asyncio.shield(line.opened)
        except TimeoutError:
            await line.leave()
            raise NoConnectionError(Trouble.SILENT, f"{address}: no answer within {limit_s:g} s") from None
        except asyncio.CancelledError:
            await line.leave()
            raise
        return line

    def _take(self, event: ClientEvent) -> None:
        if isinstance(event, Opened):
            self.connections += 1
            self._pending_bytes -= sum(len(publication.payload) for publication in event.discarded)
            self._changed.set()
            if self.connections > 1 and self._line is not None:
                session = "the session was kept" if event.session_present else "in a new session"
                self._on_notice(f"{self._line.address}: connected again, {session}")
        elif isinstance(event, Completed):
            self._pending_bytes -= len(event.publication.payload)
            self._changed.set()
        self._on_event(event)

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def is_final(error: NoConnectionError) -> bool:
    """Whether the server's answer would be the same at the next attempt."""
    return error.reason is not None and error.reason not in PASSING
