"""One client's socket: what comes in goes to its connection, and what has gathered goes out when told."""

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
    """Of one front, which it tells of what happened, and which calls `flush`."""

    __slots__ = ("_file", "_front", "_reading", "_turn", "connection", "transport")

    def __init__(self, front: MqttServer, anonymous: bool, bare: bool = False) -> None:
        """`bare`: its socket takes bytes as they are, without TLS or WebSocket around them."""
        self._front = front
        self._file = 0 if bare else NO_FILE
        """The socket, where it can be written to past the transport."""
        self._turn = -1
        """In which something was sent at once."""
        self._reading = True
        self.connection = Connection(front.broker, front, anonymous)
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        front = self._front
        front.iteration.begin()
        if len(front.clients) >= front.config.max_connections:
            front.broker.counters.refused += 1
            self.transport.abort()
            return
        if self._file != NO_FILE:
            sock = self.transport.get_extra_info("socket")
            self._file = NO_FILE if sock is None else sock.fileno()
        self.transport.set_write_buffer_limits(high=front.config.max_buffer_bytes)
        self.connection.opened()
        front.clients[self.connection.writer] = self

    def data_received(self, data: bytes) -> None:
        front = self._front
        front.iteration.begin()
        connection = self.connection
        connection.feed(data)
        if connection.pausing and self._reading:
            # At once: a loop may read one socket many times before it comes to anything else.
            self._see_whether_to_read()
        front.turn(connection.writer)

    def pause_writing(self) -> None:
        self.connection.block()

    def resume_writing(self) -> None:
        front, connection = self._front, self.connection
        front.iteration.begin()
        connection.unblock()
        connection.go_on()
        front.turn()

    def connection_lost(self, exc: Exception | None) -> None:
        front = self._front
        front.iteration.begin()
        self.connection.lost()
        self._see_whether_over()
        front.turn()

    def _see_whether_over(self) -> None:
        """Once all that came has been worked off, nothing holds on to anything here."""
        self._file = NO_FILE
        if self.connection.gone and self.connection.phase is Phase.CLOSED:
            self._front.forget(self.connection.writer)
            self.transport = None

    def _see_whether_to_read(self) -> None:
        connection, transport = self.connection, self.transport
        if transport is not None and connection.pausing is self._reading:
            self._reading = not connection.pausing
            (transport.resume_reading if self._reading else transport.pause_reading)()

    def flush_at_once(self) -> bool:
        """Send what has gathered, if nothing is against it: once a turn, or what follows would not share a write."""
        connection, transport = self.connection, self.transport
        writer, broker = connection.writer, self._front.broker
        if transport is None or self._file == NO_FILE or self._turn == broker.turn:
            return False
        if writer.closing or connection.gone or writer.starved or connection.pausing is self._reading:
            return False
        if transport.is_closing() or transport.get_write_buffer_size():
            return False
        self._turn = broker.turn
        data = writer.gathered()
        try:
            sent = os.write(self._file, data)
        except OSError:  # full, or gone: the transport finds out which
            return False
        writer.clear()
        broker.counters.bytes_sent += len(data)
        if sent < len(data):
            transport.write(data[sent:])
        return True

    def flush(self) -> bool:
        """Send what has gathered; to be called at the end of an iteration. False: the client does not take it, and
        `go_on` will cut it off.
        """
        connection, transport = self.connection, self.transport
        data = connection.writer.gathered()
        connection.writer.clear()
        if transport is None or connection.gone or transport.is_closing():
            self._see_whether_over()
            return True
        if data:
            self._front.broker.counters.bytes_sent += len(data)
            transport.write(data)
        if connection.writer.closing:
            self._front.end(transport)
        elif connection.pausing is self._reading:
            self._see_whether_to_read()
        elif self._is_stuck(transport):
            return False
        return True

    def go_on(self) -> None:
        """After a flush that was not all: cut the client off if it does not read, or work off more of what it sent."""
        connection, transport = self.connection, self.transport
        if transport is not None and not transport.is_closing() and self._is_stuck(transport):
            connection.fail(Reason.QUOTA_EXCEEDED, "does not read what it is sent")
            transport.abort()
        if connection.writer.starved:
            connection.go_on()

    def _is_stuck(self, transport: asyncio.Transport) -> bool:
        return transport.get_write_buffer_size() > 2 * self._front.config.max_buffer_bytes
