"""Calls and responses of HTTP as values: what is read of a request, and the bytes of an answer.

Knows no socket and no page. Every response ends its connection, except a stream of events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from ringmq.mqtt_front.server.http_request import HEAD_END, HttpRequestError, is_token, parse_request

READING: Final = ("GET", "HEAD")
"""Methods that change nothing."""
VERSIONS: Final = ("HTTP/1.1", "HTTP/1.0")
MAX_FIELDS: Final = 20
"""Fields of a query: twice what any page here has."""
MAX_SHOWN_CHARS: Final = 100

_LENGTH: Final = re.compile(r"\d{1,9}")


class Response(NamedTuple):
    """An answer with a body of known length."""

    status: HTTPStatus
    kind: str
    """Its Content-Type."""
    body: bytes
    headers: tuple[str, ...] = ()

    def encode(self, with_body: bool = True) -> bytes:
        # A peer that serves no HTTP need not hold the parsers of mail: 300 kB.
        from email.utils import formatdate  # noqa: PLC0415

        lines = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}",
            f"Date: {formatdate(usegmt=True)}",
            "Connection: close",
            f"Content-Type: {self.kind}",
            f"Content-Length: {len(self.body)}",
            *self.headers,
        )
        return "\r\n".join(lines).encode() + HEAD_END + (self.body if with_body else b"")


class RefusedError(Exception):
    """The call is refused; `response` is the answer."""

    def __init__(self, status: HTTPStatus, text: str, *headers: str) -> None:
        super().__init__(text)
        self.response = Response(status, "text/plain; charset=utf-8", f"{text}\n".encode(), headers)


class HttpCall(NamedTuple):
    """The head of a request that is one of HTTP/1.1."""

    method: str
    path: str
    query: str
    headers: Mapping[str, list[str]]
    """Values by names in lower case."""

    def header(self, name: str) -> str:
        """The value of a header; empty if it is missing, or there are several."""
        values = self.headers.get(name, [])
        return values[0] if len(values) == 1 else ""

    def fields(self) -> dict[str, str]:
        """The fields of the query. Raises RefusedError for a malformed one."""
        try:
            pairs = parse_qsl(self.query, keep_blank_values=True, strict_parsing=bool(self.query), errors="strict",
                              max_num_fields=MAX_FIELDS)  # fmt: skip
        except ValueError as error:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"malformed query: {shown(str(error))}") from None
        fields = dict(pairs)
        if len(fields) < len(pairs):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed query: a field stands twice")
        return fields

    def body_bytes(self, most: int) -> int:
        """The length of its body. Raises RefusedError for more than `most`, or a length that is not said."""
        if "transfer-encoding" in self.headers:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "a body needs a Content-Length")
        lengths = self.headers.get("content-length", [])
        if not lengths:
            return 0
        if len(lengths) > 1 or not _LENGTH.fullmatch(lengths[0]):
            raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed Content-Length")
        size = int(lengths[0])
        if size > most:
            text = f"the body must have at most {most} bytes, got {size}"
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        return size


def read_call(head: str) -> HttpCall:
    """Read the head of a request, given without its empty line. Raises RefusedError."""
    try:
        request = parse_request(head)
        if request.version not in VERSIONS or not is_token(request.method):
            raise HttpRequestError("not an HTTP/1.1 request")
        headers = request.headers()
        target = urlsplit(request.target)
    except HttpRequestError as error:
        raise RefusedError(HTTPStatus.BAD_REQUEST, str(error)) from None
    except ValueError:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed request target") from None
    # RFC 9112 §3.2: an HTTP/1.1 request without Host, or with several, must be answered with 400.
    if request.version == "HTTP/1.1" and len(headers.get("host", ())) != 1:
        raise RefusedError(HTTPStatus.BAD_REQUEST, "expected exactly one Host header")
    return HttpCall(request.method, target.path, target.query, headers)


def check_method(call: HttpCall, *allowed: str) -> None:
    """Raises RefusedError for another method."""
    if call.method not in allowed:
        names = ", ".join(allowed)
        text = f"{shown(call.path)} takes {names} only"
        raise RefusedError(HTTPStatus.METHOD_NOT_ALLOWED, text, f"Allow: {names}")


def shown(text: str) -> str:
    """A text of the caller, fit for a response and a log line."""
    return "".join([sign if sign.isprintable() else "?" for sign in text[:MAX_SHOWN_CHARS]])
