"""TLS handshakes of clients: a failed handshake ends in an alert that its client can read, and a refused certificate in
a log line.

Owns connections from their first byte until their handshake is done. The event loop itself drops the alert of a failed
handshake: it closes the socket before it has sent what TLS has to say. So, until its handshake is done, the bytes of a
connection go through a `_Wire` to the TLS of the event loop; from then on, directly. Knows no MQTT.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

import structlog

from ringmq.mqtt_front.counters import FrontCounters
from ringmq.mqtt_front.server.tls import ON_FAILURE

log = structlog.get_logger("front")

SHUTDOWN_S: Final = 2.0
"""Time in which a client may answer the end of a TLS connection."""
SHORTEST_S: Final = 0.1
"""No event loop accepts 0 for a handshake, which `connect_timeout_s` may be."""
REPEAT_S: Final = 60.0
"""A client that tries again and again is logged once in this time, or it could fill the disk."""
MOST_LOGGED: Final = 1000
"""Clients and faults that are remembered for that. Beyond it, none is logged until the oldest are forgotten."""
NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


class Handshakes:
    """The handshakes of one front. `stop` ends those that are not done."""

    def __init__(self, timeout_s: float, has_room: Callable[[int], bool], counters: FrontCounters) -> None:
        """`has_room` is asked with the number of handshakes whether there may be one more."""
        self._timeout_s = max(timeout_s, SHORTEST_S)
        self._has_room = has_room
        self._counters = counters
        self._tasks: set[asyncio.Task[None]] = set()
        self._logged: dict[tuple[str, str], float] = {}

    def accept(self, context: ssl.SSLContext, client: Callable[[], asyncio.Protocol]) -> asyncio.Protocol:
        """The protocol of a new socket. The client is made, and gets the connection, when the handshake is done."""
        return _Wire(self, context, client)

    def begin(self, wire: _Wire) -> bool:
        """Start a handshake; False if there are too many connections."""
        if not self._has_room(len(self._tasks)):
            self._counters.refused += 1
            return False
        task = asyncio.get_running_loop().create_task(wire.shake_hands(self._timeout_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return True

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def failed(self, host: str, port: int, error: ssl.SSLError) -> None:
        """Count and log a handshake that has failed."""
        if isinstance(error, ssl.SSLCertVerificationError):
            why = error.verify_message
        elif error.reason == NO_CERTIFICATE:
            why = "the client has sent none"
        else:
            # Debug only: any stranger can cause it.
            log.debug("a TLS handshake failed", client=f"{host}:{port}", why=error.reason)
            return
        self._counters.refused += 1
        if self._is_new(host, why):
            log.warning("a client certificate was refused", client=f"{host}:{port}", why=why)

    def _is_new(self, host: str, why: str) -> bool:
        now, logged = asyncio.get_running_loop().time(), self._logged
        while logged and next(iter(logged.values())) <= now - REPEAT_S:
            del logged[next(iter(logged))]
        if (host, why) in logged or len(logged) >= MOST_LOGGED:
            return False
        logged[host, why] = now
        return True


class _Early(asyncio.Protocol):
    """Keeps what comes over a TLS connection before its client is made."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.ends: list[Exception | None] = []
        """The end of the connection, if it has come."""

    def data_received(self, data: bytes) -> None:
        self.data.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)


class _Wire(asyncio.Protocol):
    """Between a socket and the TLS of the event loop, until the handshake is done."""

    def __init__(self, handshakes: Handshakes, context: ssl.SSLContext, client: Callable[[], asyncio.Protocol]) -> None:
        self._handshakes = handshakes
        self._context = context
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._tls: asyncio.BufferedProtocol | None = None
        """The TLS of the event loop, once it has begun the handshake."""
        self._early: list[bytes] = []
        """Bytes that came before."""
        self._has_failed = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if not self._handshakes.begin(self):
            self._transport.abort()

    async def shake_hands(self, timeout_s: float) -> None:
        loop, transport = asyncio.get_running_loop(), self._transport
        assert transport is not None
        if transport.is_closing():
            return
        early = _Early()
        # `start_tls` gives its TLS to the transport at once, and waits. This comes next, before anything is read.
        loop.call_soon(self._step_between)
        try:
            tls = await loop.start_tls(
                transport,
                early,
                self._context,
                server_side=True,
                ssl_handshake_timeout=timeout_s,
                ssl_shutdown_timeout=SHUTDOWN_S,
            )
        except OSError:
            # Of TLS, of the socket, or the time is over. `failed` has logged what is worth it.
            transport.abort()
            return
        if self._tls is None or tls is None:
            return
        transport.set_protocol(self._tls)
        client = self._client()
        tls.set_protocol(client)
        client.connection_made(tls)
        for data in early.data:
            client.data_received(data)
        for error in early.ends:
            client.connection_lost(error)

    def _step_between(self) -> None:
        assert self._transport is not None
        tls = cast("asyncio.BufferedProtocol", self._transport.get_protocol())
        self._transport.set_protocol(self)
        # The TLS is told of its connection first.
        asyncio.get_running_loop().call_soon(self._start, tls)

    def _start(self, tls: asyncio.BufferedProtocol) -> None:
        self._tls = tls
        early, self._early = self._early, []
        for data in early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        tls = self._tls
        if tls is None:
            self._early.append(data)
            return
        left = memoryview(data)
        mark = ON_FAILURE.set(self.failed)
        try:
            while left and not self._has_failed:  # What comes after a failure is not wanted.
                buffer = memoryview(tls.get_buffer(len(left)))
                size = min(len(left), len(buffer))
                buffer[:size] = left[:size]
                tls.buffer_updated(size)
                left = left[size:]
        finally:
            ON_FAILURE.reset(mark)
        if self._has_failed and self._transport is not None and not self._transport.is_closing():
            # TLS has written its alert. The socket is closed when the client has closed its side, or when the time for
            # the handshake is over: a socket that is closed with unread bytes is reset, which can destroy the alert.
            self._transport.write_eof()

    def failed(self, error: ssl.SSLError) -> None:
        """The handshake has failed while `data_received` was processing bytes."""
        assert self._transport is not None
        self._has_failed = True
        host, port = (self._transport.get_extra_info("peername") or ("?", 0))[:2]
        self._handshakes.failed(str(host), int(port), error)

    def eof_received(self) -> bool | None:
        return None if self._tls is None else self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._tls is not None:
            self._tls.connection_lost(exc)

    def pause_writing(self) -> None:
        if self._tls is not None:
            self._tls.pause_writing()

    def resume_writing(self) -> None:
        if self._tls is not None:
            self._tls.resume_writing()
