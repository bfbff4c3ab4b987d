"""A web server with one page, `/metrics`, for Prometheus: one request per connection, and a bound on everything.

Owns the responses, the connections and their deadline. Does not know the contents of the page, which a function makes
for each request, nor the syntax of requests, which `http_request` parses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import urlsplit

from ringmq.logger.errors import LoggerError
from ringmq.logger.prometheus import CONTENT_TYPE
from ringmq.mqtt_front.server.http_request import (
    HEAD_END,
    HeadReader,
    HeadTooLongError,
    HttpRequestError,
    is_token,
    parse_request,
)
from ringmq.mqtt_front.server.listeners import bind_error_text

PATH: Final = "/metrics"
MAX_REQUEST_BYTES: Final = 8192
"""Prometheus sends some 300; a browser with its cookies more."""
MAX_CONNECTIONS: Final = 16
"""Scrapers are few. A further connection is closed at once."""
DEADLINE_S: Final = 10.0
"""Maximum duration of a connection: a slower scraper gives up by itself."""

_METHODS: Final = ("GET", "HEAD")
_VERSIONS: Final = ("HTTP/1.1", "HTTP/1.0")

Page = Callable[[], str]


def answer(head: str, page: Page) -> bytes:
    """The response to the head of a request, given without its empty line."""
    try:
        request = parse_request(head)
        if request.version not in _VERSIONS or not is_token(request.method):
            raise HttpRequestError("not an HTTP/1.1 request")
        headers = request.headers()
    except HttpRequestError as error:
        return _refusal(HTTPStatus.BAD_REQUEST, str(error))
    # RFC 9112 §3.2: an HTTP/1.1 request without Host, or with several, must be answered with 400.
    if request.version == "HTTP/1.1" and len(headers.get("host", ())) != 1:
        return _refusal(HTTPStatus.BAD_REQUEST, "expected exactly one Host header")
    try:
        path = urlsplit(request.target).path
    except ValueError:
        return _refusal(HTTPStatus.BAD_REQUEST, "malformed request target")
    if path != PATH:
        return _refusal(HTTPStatus.NOT_FOUND, f"not found, the only page is {PATH}")
    if request.method not in _METHODS:
        text = f"{PATH} can only be read"
        return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, text, f"Allow: {', '.join(_METHODS)}")
    return _response(HTTPStatus.OK, CONTENT_TYPE, page().encode(), with_body=request.method == "GET")


def _refusal(status: HTTPStatus, text: str, header: str = "") -> bytes:
    return _response(status, "text/plain; charset=utf-8", f"{text}\n".encode(), header)


def _response(status: HTTPStatus, kind: str, body: bytes, header: str = "", with_body: bool = True) -> bytes:
    lines = [
        f"HTTP/1.1 {status.value} {status.phrase}",
        f"Date: {formatdate(usegmt=True)}",
        "Connection: close",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        *([header] if header else []),
    ]
    return "\r\n".join(lines).encode() + HEAD_END + (body if with_body else b"")


class MetricsServer:
    """Call `listen`, then `close`. An exception of `page` ends the connection and goes to the event loop's handler."""

    def __init__(self, page: Page, max_connections: int = MAX_CONNECTIONS, deadline_s: float = DEADLINE_S) -> None:
        self.page = page
        self.deadline_s = deadline_s
        self.max_connections = max_connections
        self.connections: set[_Scraper] = set()
        self.refused = 0
        """Number of connections beyond the bound."""
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Returns the bound address, whose port is never 0. Raises LoggerError with one clear line."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Scraper(self), host, port)
        except (OSError, OverflowError, UnicodeError) as error:
            raise LoggerError(f"cannot serve metrics on {host}:{port}: {bind_error_text(error)}") from None
        found_host, found_port = self._server.sockets[0].getsockname()[:2]
        return str(found_host), int(found_port)

    def admit(self, scraper: _Scraper) -> bool:
        """Register a connection; False at the bound."""
        if len(self.connections) >= self.max_connections:
            self.refused += 1
            return False
        self.connections.add(scraper)
        return True

    def forget(self, scraper: _Scraper) -> None:
        self.connections.discard(scraper)

    async def close(self) -> None:
        """End all connections and free the port."""
        if self._server is not None:
            self._server.close()
            for scraper in list(self.connections):
                scraper.end()
            await self._server.wait_closed()


class _Scraper(asyncio.Protocol):
    """One connection."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._reader = HeadReader(MAX_REQUEST_BYTES)
        self._answered = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # Transports of uvloop are not derived from it.
        if not self._server.admit(self):
            self._transport.abort()
            return
        self._deadline = asyncio.get_running_loop().call_later(self._server.deadline_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        try:
            read = self._reader.feed(data)
        except HeadTooLongError as error:
            self._answer(_refusal(HTTPStatus.BAD_REQUEST, str(error)))
            return
        if read is not None:
            self._answer(answer(read[0], self._server.page))

    def _answer(self, response: bytes) -> None:
        assert self._transport is not None
        self._answered = True
        # The scraper closes first, or the deadline does: a socket that is closed with unread bytes sends a reset, which
        # can destroy the answer (RFC 9112 §9.6).
        self._transport.write(response)
        self._transport.write_eof()

    def connection_lost(self, _: Exception | None) -> None:
        self._server.forget(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()
