"""The shell of the front: its listeners and sockets, its clock, and the turn of the event loop.

Whatever arrives in one turn is worked off by plain calls; what is to be sent gathers in the outboxes, and goes out once
per connection at the end of the turn, after the journal has committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import ssl
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final, cast

import structlog

from mqtt_front.access import Access, Decision
from mqtt_front.broker import Broker
from mqtt_front.config import FrontConfig
from mqtt_front.connection import Connection, Phase
from mqtt_front.errors import FrontError
from mqtt_front.packets import Connect
from mqtt_front.ports import Ports
from mqtt_front.reasons import Reason
from mqtt_front.sys_topics import SysTopics
from mqtt_front.websocket import WebSocket

log = structlog.get_logger("front")

SWEEP_S: Final = 1.0
"""How often keep-alives and slow CONNECTs are looked after."""
VERIFIERS: Final = 2
"""Threads that verify passwords: more would take the core from the event loop."""
LINGER_S: Final = 2.0
"""How long a connection that is closed may take to send its last bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """One listener."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    anonymous: bool = True
    """Whether clients without a password are let in."""
    websocket: bool = False
    """Whether clients speak WebSocket, with MQTT inside; with `tls`, inside of that."""


class ClientProtocol(asyncio.Protocol):
    """One client's socket."""

    __slots__ = ("_front", "_reading", "connection", "transport")

    def __init__(self, front: Front, anonymous: bool) -> None:
        self._front = front
        self._reading = True
        self.connection = Connection(front.broker, front, anonymous)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        front = self._front
        front.broker.now = front.clock()
        if len(front.clients) >= front.config.max_connections:
            front.broker.counters.refused += 1
            self.transport.abort()
            return
        self.transport.set_write_buffer_limits(high=front.config.max_buffer_bytes)
        self.connection.opened_at = self.connection.heard_at = front.broker.now
        front.clients[self.connection] = self

    def data_received(self, data: bytes) -> None:
        front = self._front
        front.broker.now = front.clock()
        self.connection.feed(data)
        front.turn()

    def pause_writing(self) -> None:
        self.connection.block()

    def resume_writing(self) -> None:
        front, connection = self._front, self.connection
        front.broker.now = front.clock()
        connection.unblock()
        connection.go_on()
        front.turn()

    def connection_lost(self, exc: Exception | None) -> None:
        front = self._front
        front.broker.now = front.clock()
        front.forget(self.connection)
        self.connection.lost()
        front.turn()

    def flush(self) -> None:
        """Send what has gathered; to be called at the end of a turn."""
        connection, transport = self.connection, self.transport
        connection.dirty = False
        out = connection.out
        if transport is None or transport.is_closing():
            out.clear()
            return
        if out:
            data = out[0] if len(out) == 1 else b"".join(out)
            out.clear()
            self._front.broker.counters.bytes_sent += len(data)
            transport.write(data)
        if connection.closing:
            self._front.end(transport)
        elif connection.pausing is self._reading:
            self._reading = not connection.pausing
            (transport.resume_reading if self._reading else transport.pause_reading)()
        elif transport.get_write_buffer_size() > 2 * self._front.config.max_buffer_bytes:
            connection.fail(Reason.QUOTA_EXCEEDED, "does not read what it is sent")
            transport.abort()


class Front:
    """Create inside a running event loop; `listen` for each listener, `stop` at the end."""

    def __init__(
        self, config: FrontConfig | None = None, access: Access | None = None, ports: Ports | None = None
    ) -> None:
        self.config = config or FrontConfig()
        self.access = access or Access()
        self.broker = Broker(self.config, ports)
        self.clients: dict[Connection, ClientProtocol] = {}
        self._loop = asyncio.get_running_loop()
        self.clock: Callable[[], float] = self._loop.time
        self.broker.now = self.clock()
        self._sys_topics = SysTopics(f"ringmq version {version('ringmq')}", self.config.sys_interval_s, self.broker.now)
        self._sys_topics.refresh(self.broker)
        self._servers: list[asyncio.Server] = []
        self._verifiers: ThreadPoolExecutor | None = None
        self._flushing = False
        self._id_prefix = f"auto-{secrets.token_hex(6)}-"
        self._ids = 0
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        self._stopped = False
        self._empty = asyncio.Event()

    async def listen(self, listen: Listen) -> tuple[str, int]:
        """Begin to accept clients; the address says which port it is. Raises FrontError with one clear line."""

        def accept() -> asyncio.Protocol:
            client = ClientProtocol(self, listen.anonymous)
            return WebSocket(client, self._faulty) if listen.websocket else client

        try:
            server = await self._loop.create_server(
                accept,
                listen.host,
                listen.port,
                ssl=listen.tls,
                backlog=1024,
                ssl_handshake_timeout=self.config.connect_timeout_s if listen.tls else None,
                ssl_shutdown_timeout=LINGER_S if listen.tls else None,
            )
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise FrontError(f"cannot listen for MQTT on {listen.host}:{listen.port}: {reason}") from None
        self._servers.append(server)
        host, port = server.sockets[0].getsockname()[:2]
        return str(host), int(port)

    async def stop(self) -> None:
        """Tell the clients, send what there is, close everything. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._sweeper.cancel()
        for server in self._servers:
            server.close()
        self.broker.now = self.clock()
        for connection in list(self.clients):
            connection.fail(Reason.SERVER_SHUTTING_DOWN, "the server stops")
        self._flush()
        if self.clients:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), LINGER_S)
        for client in list(self.clients.values()):
            if client.transport is not None:
                client.transport.abort()
        if self._verifiers is not None:
            self._verifiers.shutdown(wait=False, cancel_futures=True)

    def _faulty(self, why: str) -> None:
        self.broker.counters.protocol_errors += 1
        log.debug("a client broke the rules of WebSocket", why=why)

    def forget(self, connection: Connection) -> None:
        """Its socket is closed."""
        self.clients.pop(connection, None)
        if not self.clients:
            self._empty.set()

    # The turn

    def turn(self) -> None:
        """Something may be waiting in outboxes: send it at the end of this turn of the loop, once."""
        if self.broker.dirty and not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        broker = self.broker
        broker.encoded = None
        while broker.dirty:
            dirty, broker.dirty = broker.dirty, []
            for line in dirty:
                client = self.clients.get(cast("Connection", line))
                if client is not None:
                    client.flush()
                    if client.connection.starved:
                        client.connection.go_on()
                else:
                    line.out.clear()

    def end(self, transport: asyncio.Transport) -> None:
        """Close a socket once its bytes are sent; one that does not take them is cut off."""
        if transport.get_write_buffer_size():
            self._loop.call_later(LINGER_S, transport.abort)
        transport.close()

    def _sweep(self) -> None:
        self._sweeper.cancel()
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        now = self.broker.now = self.clock()
        broker, counters = self.broker, self.broker.counters
        for connection in list(self.clients):
            if connection.phase is Phase.OPEN:
                if connection.pausing:  # It is not listened to, so that it may be silent.
                    connection.heard_at = now
                elif connection.keep_alive_s and now - connection.heard_at > 1.5 * connection.keep_alive_s:
                    counters.keep_alive_timeouts += 1
                    connection.fail(Reason.KEEP_ALIVE_TIMEOUT, "nothing was heard for one and a half keep-alives")
            elif now - connection.opened_at > self.config.connect_timeout_s:
                connection.fail(Reason.MAXIMUM_CONNECT_TIME, "no CONNECT in time")
        if broker.deadline() <= now:
            broker.tick()
        self._sys_topics.refresh(broker)
        self.turn()

    # Who may connect

    def renew_rights(self) -> int:
        """The rules of `access` have changed: apply them to those who are connected; how many had to go."""
        gone = 0
        broker = self.broker
        broker.now = self.clock()
        for connection in list(self.clients):
            if connection.decision is None or connection.session is None:
                continue
            decision = connection.decision = self.access.renew(connection.decision)
            if decision.reason is not Reason.SUCCESS:
                connection.fail(decision.reason, "the rules have changed")
                gone += 1
                continue
            connection.rights = decision.rights
            broker.restrict(connection.session, decision.rights)
        self.turn()
        return gone

    def new_client_id(self) -> str:
        self._ids += 1
        return f"{self._id_prefix}{self._ids}"

    def decide(self, connection: Connection, connect: Connect, client_id: str) -> None:
        arguments = (connect.user_name, connect.password, client_id, connection.anonymous_allowed)
        decision = self.access.at_once(*arguments)
        if decision is not None:
            connection.admitted(decision)
            return
        if self._verifiers is None:
            self._verifiers = ThreadPoolExecutor(VERIFIERS, thread_name_prefix="password")
        future = self._loop.run_in_executor(self._verifiers, self.access.authenticate, *arguments)
        future.add_done_callback(lambda done: self._decided(connection, done))

    def _decided(self, connection: Connection, done: asyncio.Future[Any]) -> None:
        self.broker.now = self.clock()
        if done.cancelled():
            return
        if done.exception() is not None:
            log.error("a password could not be verified", error=str(done.exception()))
            connection.fail(Reason.UNSPECIFIED_ERROR, "the server cannot verify passwords")
        else:
            decision: Decision = done.result()
            connection.admitted(self.access.renew(decision))
        self.turn()
