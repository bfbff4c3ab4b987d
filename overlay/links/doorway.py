"""The doorway: inbound connections of a ring with identity, from their first byte until their TLS is established.

Owns these connections and their bound; a `Link` gets each that is done. A connection without TLS is told why it is
refused. So is one whose certificate is wrong, by an alert of TLS, and the log names its address.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from functools import partial
from typing import Final, cast

from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.links.frames import Kind, frame
from ringmq.overlay.links.handshake import NO_PROOF, Reason, encode_goodbye
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.link import Link
from ringmq.overlay.queries import cause

HANDSHAKE_RECORD: Final = 22
"""First byte of each connection with TLS (RFC 8446 §5.1). A frame begins with the upper byte of its length, 0."""


class Doorways:
    """All connections in the doorway: at most `max_strangers`, each for at most `handshake_s`."""

    def __init__(
        self, config: OverlayConfig, context: ssl.SSLContext, incidents: Incidents, enter: Callable[[], Link]
    ) -> None:
        self.context = context
        self.handshake_s = config.handshake_s
        self.shutdown_s = config.linger_s
        self._most = config.max_strangers
        self._incidents = incidents
        self._enter = enter
        self._waiting: dict[_Doorway, None] = {}
        """The oldest first."""
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self) -> asyncio.Protocol:
        """The protocol of a new socket."""
        return _Doorway(self)

    def add(self, doorway: _Doorway) -> None:
        self._waiting[doorway] = None
        if len(self._waiting) > self._most:
            # The oldest: whoever has something to say says it at once.
            self._incidents.count("strangers_refused")
            next(iter(self._waiting)).give_up()

    def remove(self, doorway: _Doorway) -> None:
        self._waiting.pop(doorway, None)

    def begin(self, doorway: _Doorway) -> None:
        task = asyncio.get_running_loop().create_task(self._secure(doorway), name="doorway")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def refused(self, host: str, why: str) -> None:
        self._incidents.warn("handshakes_refused", host, why)

    def passed(self, tls: asyncio.Transport, early: _EarlyBytes) -> None:
        """TLS is established: whatever came meanwhile is for the link."""
        link = self._enter()
        tls.set_protocol(link)
        link.connection_made(tls)
        for data in early.data:
            link.data_received(data)
        for error in early.ends:
            link.connection_lost(error)

    async def _secure(self, doorway: _Doorway) -> None:
        try:
            await doorway.secure()
        except Exception:  # noqa: BLE001 - a task's root: logged and counted
            self._incidents.failed("doorway_errors")
            doorway.give_up()

    async def close(self) -> None:
        for doorway in list(self._waiting):
            doorway.give_up()
        if self._tasks:
            await asyncio.wait(list(self._tasks))


class _EarlyBytes(asyncio.Protocol):
    """Keeps what comes over TLS before its link is there."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self.ends: list[Exception | None] = []

    def data_received(self, data: bytes) -> None:
        self.data.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.ends.append(exc)


class _Doorway(asyncio.Protocol):
    """One connection. It gets the first bytes itself, and leaves the others to the TLS of the event loop."""

    def __init__(self, owner: Doorways) -> None:
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._tls: asyncio.BufferedProtocol | None = None
        self._first: list[bytes] = []
        """Bytes that came before TLS could take them."""
        self._begun = self._given_up = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        self._timer = self._loop.call_later(self._owner.handshake_s, self.give_up)
        self._owner.add(self)

    def data_received(self, data: bytes) -> None:
        if self._tls is not None:
            self._feed(data)
            return
        self._first.append(data)
        if self._begun:
            return
        self._begun = True
        if data[0] == HANDSHAKE_RECORD:
            self._owner.begin(self)
        else:
            self._refuse_plain()

    def eof_received(self) -> bool | None:
        return None if self._tls is None else self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        if self._tls is not None:
            self._tls.connection_lost(exc)

    def give_up(self) -> None:
        """There are too many connections, or the time is over."""
        self._given_up = True
        self._leave()
        if self._transport is not None:
            self._transport.abort()

    async def secure(self) -> None:
        """Establish TLS, and hand the connection over."""
        transport, early = self._transport, _EarlyBytes()
        assert transport is not None
        if transport.is_closing():
            return
        # `start_tls` makes its TLS the protocol of the transport, and waits. This comes next, before anything is read.
        self._loop.call_soon(self._step_between)
        try:
            tls = await self._loop.start_tls(
                transport,
                early,
                self._owner.context,
                server_side=True,
                ssl_handshake_timeout=self._owner.handshake_s,
                ssl_shutdown_timeout=self._owner.shutdown_s,
            )
        except OSError as error:
            if not self._given_up:
                self._owner.refused(self._host, cause(error))
                # Time for the alert of TLS to arrive: a socket that is closed with unread bytes is reset.
                self._loop.call_later(self._owner.shutdown_s, transport.abort)
            return
        finally:
            self._leave()
        if tls is None or self._tls is None or transport.is_closing():
            return
        transport.set_protocol(self._tls)
        self._owner.passed(tls, early)

    def _step_between(self) -> None:
        assert self._transport is not None
        tls = cast(asyncio.BufferedProtocol, self._transport.get_protocol())
        self._transport.set_protocol(self)
        # The TLS is told of its connection first.
        self._loop.call_soon(partial(self._start, tls))

    def _start(self, tls: asyncio.BufferedProtocol) -> None:
        self._tls = tls
        first, self._first = self._first, []
        for data in first:
            self._feed(data)

    def _feed(self, data: bytes) -> None:
        assert self._tls is not None
        left = memoryview(data)
        while left:
            buffer = memoryview(self._tls.get_buffer(len(left)))
            size = min(len(left), len(buffer))
            buffer[:size] = left[:size]
            self._tls.buffer_updated(size)
            left = left[size:]

    def _refuse_plain(self) -> None:
        """Whoever speaks without TLS is of a ring without identity, or asks for the status without a certificate."""
        assert self._transport is not None
        self._transport.write(frame(Kind.GOODBYE, encode_goodbye(Reason.UNPROVEN, NO_PROOF)))
        self._transport.close()
        self._owner.refused(self._host, f"{Reason.UNPROVEN}: no TLS")

    @property
    def _host(self) -> str:
        name = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(name[0]) if name else "unknown"

    def _leave(self) -> None:
        self._owner.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
