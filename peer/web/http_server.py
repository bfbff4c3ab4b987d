"""An HTTP server: one request per connection, streams of events, and a bound on everything.

Owns the sockets, their number and their deadlines. Does not know what is served: a site answers each call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final, Protocol, cast

from ringmq.logger.errors import LoggerError
from ringmq.mqtt_front.server.http_request import HEAD_END, HeadReader, HeadTooLongError
from ringmq.mqtt_front.server.listeners import bind_error_text
from ringmq.peer.web.exchanges import HttpCall, RefusedError, Response, read_call

MAX_REQUEST_BYTES: Final = 8192
"""Of a head. Prometheus sends some 300; a browser with its cookies more."""
MAX_CONNECTIONS: Final = 16
"""Scrapers are few. A further connection is closed at once."""
DEADLINE_S: Final = 10.0
"""Maximum duration of a connection that is no stream: a slower client gives up by itself."""
MAX_STREAM_BYTES: Final = 2 << 20
"""Events that may wait for a slow reader. Beyond, its stream ends; a page opens another one."""


MAX_WAITING_BYTES: Final = 64 << 20
"""Responses that may wait for slow readers, all together: four of the largest. Further ones are refused."""


class Exchange(Protocol):
    """One call and the connection that it came on. Either `respond` or `stream`, once, now or later."""

    host: str
    """The address of the other side, for the log."""

    def respond(self, response: Response) -> None: ...
    def stream(self, headers: tuple[str, ...], ended: Callable[[], None]) -> Callable[[bytes], bool]:
        """Begin a stream; `ended` is called when its reader has gone. Returns the call that sends: it is False when the
        reader is too slow, and the stream has ended."""


class Site(Protocol):
    """What is served. Both calls may raise RefusedError."""

    def body_bytes(self, call: HttpCall) -> int:
        """The length of the body that belongs to a call, before anything of it is read."""

    def answer(self, call: HttpCall, body: bytes, exchange: Exchange) -> None: ...

    def refused(self, host: str, why: str) -> None:
        """A request was refused; for the log."""


class HttpServer:
    """Call `listen`, then `close`. An exception of the site ends the connection and goes to the event loop's
    handler."""

    def __init__(self, site: Site, max_connections: int = MAX_CONNECTIONS, deadline_s: float = DEADLINE_S) -> None:
        self.site = site
        self.deadline_s = deadline_s
        self.max_connections = max_connections
        self.connections: set[_Connection] = set()
        self.refused = 0
        """Number of connections beyond the bound."""
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int, what: str = "HTTP") -> tuple[str, int]:
        """Returns the bound address, whose port is never 0. Raises LoggerError with one clear line."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Connection(self), host, port)
        except (OSError, OverflowError, UnicodeError) as error:
            raise LoggerError(f"cannot serve {what} on {host}:{port}: {bind_error_text(error)}") from None
        found_host, found_port = self._server.sockets[0].getsockname()[:2]
        return str(found_host), int(found_port)

    def admit(self, connection: _Connection) -> bool:
        """Register a connection; False at the bound."""
        if len(self.connections) >= self.max_connections:
            self.refused += 1
            self.site.refused(connection.host, "too many connections")
            return False
        self.connections.add(connection)
        return True

    def waiting_bytes(self) -> int:
        """Bytes that the other sides have not read yet."""
        return sum(connection.waiting_bytes for connection in self.connections)

    def forget(self, connection: _Connection) -> None:
        self.connections.discard(connection)

    async def close(self) -> None:
        """End all connections and free the port."""
        if self._server is not None:
            self._server.close()
            for connection in list(self.connections):
                connection.end()
            await self._server.wait_closed()


class _Connection(asyncio.Protocol):
    """One connection, and its one exchange."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._reader: HeadReader | None = HeadReader(MAX_REQUEST_BYTES)
        """None: the head has come."""
        self._call: HttpCall | None = None
        self._body = bytearray()
        self._missing = 0
        """Bytes of the body that have not come."""
        self._with_body = True
        self._answered = False
        self._ended: Callable[[], None] | None = None
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self.host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # Transports of uvloop are not derived from it.
        name = transport.get_extra_info("peername")
        self.host = str(name[0]) if name else ""
        if not self._server.admit(self):
            self._transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(self._server.deadline_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        try:
            if self._reader is not None:
                read = self._reader.feed(data)
                if read is None:
                    return
                self._reader, data = None, read[1]
                self._call = read_call(read[0])
                self._missing = self._server.site.body_bytes(self._call)
            self._take_body(data)
        except HeadTooLongError as error:
            self._refuse(RefusedError(HTTPStatus.BAD_REQUEST, str(error)))
        except RefusedError as error:
            self._refuse(error)

    def _take_body(self, data: bytes) -> None:
        if self._call is None:
            return
        # Bytes behind the body are of no meaning: the connection ends with this answer.
        part = data[: self._missing]
        self._body += part
        self._missing -= len(part)
        if not self._missing:
            call, self._call = self._call, None
            body, self._body = bytes(self._body), bytearray()
            self._with_body = call.method != "HEAD"
            self._server.site.answer(call, body, self)

    def _refuse(self, error: RefusedError) -> None:
        self._server.site.refused(self.host, str(error))
        self.respond(error.response)

    def respond(self, response: Response) -> None:
        if self._answered or self._transport is None:
            return
        if self._server.waiting_bytes() + len(response.body) > MAX_WAITING_BYTES:
            why = "too many answers wait for slow readers"
            self._server.site.refused(self.host, why)
            response = RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, why).response
        self._answered = True
        # The client closes first, or the deadline does: a socket that is closed with unread bytes sends a reset, which
        # can destroy the answer (RFC 9112 §9.6).
        self._transport.write(response.encode(self._with_body))
        self._transport.write_eof()

    def stream(self, headers: tuple[str, ...], ended: Callable[[], None]) -> Callable[[bytes], bool]:
        assert not self._answered
        self._answered = True
        if self._deadline is not None:
            self._deadline.cancel()
        lines = ("HTTP/1.1 200 OK", "Connection: close", "Content-Type: text/event-stream", "Cache-Control: no-store")
        self._ended = ended
        self._write("\r\n".join((*lines, *headers)).encode() + HEAD_END)
        return self._write

    def _write(self, data: bytes) -> bool:
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        if transport.get_write_buffer_size() + len(data) > MAX_STREAM_BYTES:
            self._server.site.refused(self.host, "it does not read its events")
            transport.abort()
            return False
        transport.write(data)
        return True

    def connection_lost(self, _: Exception | None) -> None:
        self._server.forget(self)
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()

    @property
    def waiting_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()
