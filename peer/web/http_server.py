"""A web server with one page, `/metrics`, for Prometheus: one request a connection, and a bound on everything.

Knows the part of HTTP/1.1 (RFC 9112) that this needs, and not the content of the page: a function makes it for each
request.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import urlsplit

from ringmq.logger.errors import LoggerError
from ringmq.logger.prometheus import CONTENT_TYPE

PATH: Final = "/metrics"
MAX_REQUEST_BYTES: Final = 8192
"""Prometheus sends some 300 bytes; a browser with its cookies sends more."""
MAX_CONNECTIONS: Final = 16
"""Scrapers are few. A connection beyond this number is closed at once."""
DEADLINE_S: Final = 10.0
"""The longest time that a connection stays open. Slower scrapers give up by themselves."""

_METHODS: Final = ("GET", "HEAD")
_VERSIONS: Final = ("HTTP/1.1", "HTTP/1.0")
_END: Final = b"\r\n\r\n"
_TOKEN_CHARS: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")

Page = Callable[[], str]


def answer(request: bytes, page: Page) -> bytes:
    """The response to a request, which is passed without the empty line at its end."""
    # Latin-1 decodes any bytes: the value of a header may contain bytes that are no UTF-8 (RFC 9110 §5.5).
    first, *headers = request.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    if version not in _VERSIONS or not method or not _TOKEN_CHARS.issuperset(method):
        return _refusal(HTTPStatus.BAD_REQUEST, "not an HTTP/1.1 request")
    names = [line.partition(":")[0].lower() for line in headers if ":" in line]
    # Only token characters are a name: so a folded line and a space before the colon are refused (RFC 9112 §5.1, §5.2).
    if len(names) < len(headers) or not all(name and _TOKEN_CHARS.issuperset(name) for name in names):
        return _refusal(HTTPStatus.BAD_REQUEST, "invalid header")
    if version == "HTTP/1.1" and names.count("host") != 1:  # RFC 9112 §3.2
        return _refusal(HTTPStatus.BAD_REQUEST, "expected exactly one Host header")
    try:
        path = urlsplit(target).path
    except ValueError:
        return _refusal(HTTPStatus.BAD_REQUEST, "invalid request target")
    if path != PATH:
        return _refusal(HTTPStatus.NOT_FOUND, f"the only page is {PATH}")
    if method not in _METHODS:
        # RFC 9110 §15.5.6: a 405 response must have an Allow header.
        allow = f"Allow: {', '.join(_METHODS)}"
        return _refusal(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD are allowed", allow)
    return _response(HTTPStatus.OK, CONTENT_TYPE, page().encode(), with_body=method == "GET")


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
    return "\r\n".join(lines).encode() + _END + (body if with_body else b"")


class MetricsServer:
    """`listen`, then `close`. `page` makes the text; its exceptions go to the event loop's exception handler."""

    def __init__(self, page: Page, max_connections: int = MAX_CONNECTIONS, deadline_s: float = DEADLINE_S) -> None:
        self.page = page
        self.deadline_s = deadline_s
        self.max_connections = max_connections
        self.connections: set[_Scraper] = set()
        self.refused = 0
        """Connections beyond the bound."""
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Returns the actual address: the port is never 0. Raises LoggerError with one clear line."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(lambda: _Scraper(self), host, port)
        except (OSError, OverflowError, UnicodeError) as error:
            raise LoggerError(f"cannot serve metrics on {host}:{port}: {_reason(error)}") from None
        found_host, found_port = self._server.sockets[0].getsockname()[:2]
        return str(found_host), int(found_port)

    async def close(self) -> None:
        """Close all connections and stop listening."""
        if self._server is not None:
            self._server.close()
            for scraper in list(self.connections):
                scraper.abort()
            await self._server.wait_closed()


class _Scraper(asyncio.Protocol):
    """One connection of a scraper."""

    def __init__(self, server: MetricsServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._answered = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not derived from it
        if len(self._server.connections) >= self._server.max_connections:
            self._server.refused += 1
            self._transport.abort()
            return
        self._server.connections.add(self)
        self._deadline = asyncio.get_running_loop().call_later(self._server.deadline_s, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        # The end may be split between two reads, so the last bytes of the earlier ones are searched again.
        searched = max(0, len(self._buffer) - len(_END) + 1)
        self._buffer += data
        end = self._buffer.find(_END, searched)
        if (len(self._buffer) if end < 0 else end) > MAX_REQUEST_BYTES:
            self._answer(_refusal(HTTPStatus.BAD_REQUEST, f"more than {MAX_REQUEST_BYTES} bytes"))
        elif end >= 0:
            self._answer(answer(bytes(self._buffer[:end]), self._server.page))

    def _answer(self, response: bytes) -> None:
        """Send the response, and leave closing to the scraper or the deadline."""
        assert self._transport is not None
        self._answered = True
        self._buffer.clear()
        # No close here: if more bytes of the scraper came in, TCP would reset the connection and the response be lost.
        self._transport.write(response)
        self._transport.write_eof()

    def connection_lost(self, _: Exception | None) -> None:
        self._server.connections.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _reason(error: OSError | OverflowError | UnicodeError) -> str:
    """The reason without the address, which some error texts repeat."""
    if isinstance(error, UnicodeError):
        return "invalid host name"
    if isinstance(error, socket.gaierror):  # `os.strerror` does not know the numbers of getaddrinfo
        return error.strerror or "no such host"
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error)
