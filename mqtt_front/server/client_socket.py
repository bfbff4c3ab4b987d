"""The socket of one client: feeds its bytes to the connection, and sends the connection's outbox.

Owns when the socket is read, written and closed. Must not know packets.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, cast

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.connection.connection import Connection
from ringmq.mqtt_front.connection.phase import Phase

if TYPE_CHECKING:
    from ringmq.mqtt_front.server.server import MqttServer


NO_FILE: Final = -1


class ClientSocket(asyncio.Protocol):
    """Reports each event to its front by `send_soon`; the front calls `flush_at_once` and `flush`."""

    __slots__ = ("_file", "_front", "_reading", "_sent_in", "connection", "transport")

    def __init__(self, front: MqttServer, anonymous: bool, bare: bool = False) -> None:
        """`bare`: the socket carries the bytes of MQTT themselves, without TLS or WebSocket around them."""
        self._front = front
        self._file = 0 if bare else NO_FILE
        """The descriptor of the socket, if it may be written to past the transport; else NO_FILE."""
        self._sent_in = -1
        """The last iteration in which something was sent at once."""
        self._reading = True
        self.connection = Connection(front.broker, front, anonymous)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        front = self._front
        front.iteration.begin()
        if not front.admit(self):
            self.transport.abort()
            return
        if self._file != NO_FILE:
            sock = self.transport.get_extra_info("socket")
            self._file = NO_FILE if sock is None else sock.fileno()
        self.transport.set_write_buffer_limits(high=front.config.max_buffer_bytes)
        self.connection.opened()

    def data_received(self, data: bytes) -> None:
        front = self._front
        front.iteration.begin()
        connection = self.connection
        connection.feed(data)
        if connection.pausing and self._reading:
            # Not at the end of the iteration: the loop may read one socket many times before anything else.
            self._update_reading()
        front.send_soon(connection.writer)

    def pause_writing(self) -> None:
        self.connection.block()

    def resume_writing(self) -> None:
        front, connection = self._front, self.connection
        front.iteration.begin()
        connection.unblock()
        connection.go_on()
        front.send_soon()

    def connection_lost(self, exc: Exception | None) -> None:
        front = self._front
        front.iteration.begin()
        self.connection.lost()
        self._forget_if_over()
        front.send_soon()

    def _forget_if_over(self) -> None:
        """Drop all references once the bytes that came before the end have been processed."""
        # The descriptor's number belongs to the next socket that is opened.
        self._file = NO_FILE
        if self.connection.gone and self.connection.phase is Phase.CLOSED:
            self._front.forget(self.connection.writer)
            self.transport = None

    def _update_reading(self) -> None:
        connection, transport = self.connection, self.transport
        if transport is not None and connection.pausing is self._reading:
            self._reading = not connection.pausing
            (transport.resume_reading if self._reading else transport.pause_reading)()

    def flush_at_once(self) -> bool:
        """Send the outbox now; False if it must wait for `flush`.

        Only once per iteration, or the packets that follow would not share a write.
        """
        connection, transport = self.connection, self.transport
        writer, broker = connection.writer, self._front.broker
        if transport is None or self._file == NO_FILE or self._sent_in == broker.iteration:
            return False
        # A reader that is behind has starved its writer, so of `pausing` only `full` is left to check.
        if writer.closing or connection.gone or writer.starved or connection.handlers.full is self._reading:
            return False
        # Bytes in the transport's buffer must leave first.
        if transport.is_closing() or transport.get_write_buffer_size():
            return False
        self._sent_in = broker.iteration
        data = writer.gathered()
        try:
            sent = os.write(self._file, data)
        except OSError:  # The socket is full or closed; the transport handles either.
            return False
        writer.clear()
        broker.counters.bytes_sent += len(data)
        if sent < len(data):
            transport.write(data[sent:])
        return True

    def flush(self) -> bool:
        """Send the outbox at the end of an iteration. False: the client does not read, and `resume` will cut it off."""
        connection, transport = self.connection, self.transport
        writer = connection.writer
        data = writer.gathered()
        writer.clear()
        if transport is None or connection.gone or transport.is_closing():
            self._forget_if_over()
            return True
        if data:
            self._front.broker.counters.bytes_sent += len(data)
            transport.write(data)
        if writer.closing:
            self._front.end(transport)
        elif connection.pausing is self._reading:
            self._update_reading()
        elif self._is_stuck(transport):
            return False
        return True

    def resume(self) -> None:
        """After a flush: cut the client off if it does not read, or process more of its bytes."""
        connection, transport = self.connection, self.transport
        if transport is not None and not transport.is_closing() and self._is_stuck(transport):
            connection.fail(Reason.QUOTA_EXCEEDED, "the client does not read its socket")
            transport.abort()
        if connection.writer.starved:
            connection.go_on()

    def admitted(self) -> None:
        """Its SUBSCRIBE waits no more."""
        self.connection.go_on()
        # The SUBACK may take a while, and the client is not silent meanwhile.
        self._update_reading()

    def _is_stuck(self, transport: asyncio.Transport) -> bool:
        # Messages stop at `max_buffer_bytes`, as the transport then blocks the connection. Only answers, which cannot
        # be dropped, exceed it: a client at twice the bound keeps asking without reading.
        return transport.get_write_buffer_size() > 2 * self._front.config.max_buffer_bytes
