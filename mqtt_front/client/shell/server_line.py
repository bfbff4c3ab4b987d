"""One connection of a client to a server: a transport, its ClientConnection, and the timer of its keep-alive."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from typing import Final, cast

from ringmq.mqtt_front.client.connection import ClientConnection, ClientPhase
from ringmq.mqtt_front.client.events import ClientEvent, Ended, Opened, Refused
from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.client.shell.dialing import explained
from ringmq.mqtt_front.codec.packets import Properties
from ringmq.mqtt_front.codec.reasons import Reason, words_of
from ringmq.mqtt_front.errors import NoConnectionError, ServerBreachError, Trouble

LEAVE_S: Final = 2.0
"""Time in which the server must end the connection after a DISCONNECT."""
_SHOWN: Final = 24
"""Maximum bytes of a wrong answer in an error."""
_TLS_ALERT: Final = b"\x15\x03"
_OLD_REFUSAL: Final = b"\x20\x02\x00\x01"
"""What a server of 3.1.1 answers to a CONNECT of 5.0 [MQTT-3.1.2-2]: no CONNACK of 5.0."""
_CONNACK: Final = 0x20
"""The first byte of a CONNACK, which alone may come first [MQTT-3.2.0-1]."""


class ServerLine(asyncio.Protocol):
    """Give it to a transport. Call `flush_soon` after each call of `connection`."""

    def __init__(
        self,
        connection: ClientConnection,
        address: ServerAddress,
        on_event: Callable[[ClientEvent], None],
        on_room: Callable[[], None],
    ) -> None:
        """`on_room` is called when `can_write` is true again."""
        loop = asyncio.get_running_loop()
        self.connection = connection
        self.address = address
        self.opened: asyncio.Future[None] = loop.create_future()
        """Done when the server has accepted the CONNECT; raises NoConnectionError."""
        self.gone: asyncio.Future[NoConnectionError] = loop.create_future()
        """Why the connection ended."""
        self.can_write = True
        self.unwritten_bytes = 0
        """Of publications since the transport was last given something: see `flush_soon`."""
        self._on_event = on_event
        self._on_room = on_room
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._first_bytes = b""
        self._flushing = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        return self.connection.phase is ClientPhase.OPEN and not self.gone.done()

    # The transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if not self._first_bytes:
            self._first_bytes = data[:_SHOWN]
            # At once: what comes after a greeting of another protocol may look like a packet that is not complete.
            if data[0] != _CONNACK:
                self._fail(self._no_mqtt())
                return
        breach: ServerBreachError | None = None
        try:
            self.connection.feed(data)
        except ServerBreachError as error:
            breach = error
        for event in self.connection.events_received():
            self._take(event)
        self._flush()
        if breach is not None:
            self._fail(self._breach(breach))

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            self._fail(explained(exc, self.address))
        elif self.opened.done():
            self._fail(NoConnectionError(Trouble.LOST, f"{self.address}: the connection was lost"))
        else:
            text = f"{self.address}: the server closed the connection without an answer to CONNECT"
            self._fail(NoConnectionError(Trouble.NO_MQTT, text))

    def pause_writing(self) -> None:
        self.can_write = False

    def resume_writing(self) -> None:
        self.can_write = True
        self._on_room()

    def read_nothing(self, paused: bool) -> None:
        """Stop reading, or go on."""
        if self._transport is None or self._transport.is_closing():
            return
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def flush_soon(self, size_bytes: int = 0) -> None:
        """Write what the connection has to send, once for all calls of this iteration; a publication has a size."""
        self.unwritten_bytes += size_bytes
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        self.unwritten_bytes = 0
        data = self.connection.data_to_send(self._loop.time())
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)
        if self._timer is None and not self.gone.done() and self.connection.deadline is not None:
            self._timer = self._loop.call_at(self.connection.deadline, self._check)

    def _check(self) -> None:
        self._timer = None
        if self.gone.done():
            return
        try:
            self.connection.check(self._loop.time())
        except ServerBreachError as error:
            self._flush()
            self._fail(NoConnectionError(Trouble.LOST, f"{self.address}: the connection was lost: {error}"))
            return
        self._flush()

    # The end

    async def leave(self) -> None:
        """Say good-bye, and return when the server has ended the connection, or after LEAVE_S."""
        if self.is_open:
            self.connection.disconnect()
            self._flush()
            # The server ends the connection when it has read everything. A close of ours could cut that off: unread
            # bytes of the server make it a reset.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await asyncio.shield(self.gone)
        self._fail(NoConnectionError(Trouble.LOST, f"{self.address}: left"))

    def _fail(self, error: NoConnectionError) -> None:
        """End the connection for this reason, unless it has ended before."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._transport is not None:
            if error.trouble in (Trouble.ENDED, Trouble.REFUSED):
                self._transport.close()
            else:
                self._transport.abort()
        if not self.opened.done():
            self.opened.set_exception(error)
            self.opened.exception()  # who waits for it may have given up: that is no error
        if not self.gone.done():
            self.gone.set_result(error)

    def _take(self, event: ClientEvent) -> None:
        if isinstance(event, Refused):
            text = f"{self.address}: refused: {told(event.reason, event.properties)}"
            self._fail(NoConnectionError(Trouble.REFUSED, text, event.reason))
            return
        if isinstance(event, Ended):
            text = f"{self.address}: the server ended the connection: {told(event.reason, event.properties)}"
            self._fail(NoConnectionError(Trouble.ENDED, text, event.reason))
            return
        if isinstance(event, Opened) and not self.opened.done():
            self.opened.set_result(None)
        self._on_event(event)

    def _breach(self, breach: ServerBreachError) -> NoConnectionError:
        if self.opened.done():
            return NoConnectionError(Trouble.NO_MQTT, f"{self.address}: the server broke the protocol: {breach}")
        if self._first_bytes.startswith(_OLD_REFUSAL):
            reason = Reason.UNSUPPORTED_PROTOCOL_VERSION
            return NoConnectionError(Trouble.REFUSED, f"{self.address}: refused: {words_of(reason)}", reason)
        return self._no_mqtt()

    def _no_mqtt(self) -> NoConnectionError:
        begin = f"its answer begins with {self._first_bytes!r}"
        said = "it speaks TLS" if self._first_bytes.startswith(_TLS_ALERT) else begin
        return NoConnectionError(Trouble.NO_MQTT, f"{self.address}: no MQTT server: {said}")


def told(reason: Reason, properties: Properties) -> str:
    """A reason and the text that the server may have given with it, on one line."""
    text = properties.reason_string
    if not text:
        return words_of(reason)
    return f"{words_of(reason)} ({''.join([char if char.isprintable() else ' ' for char in text])})"
