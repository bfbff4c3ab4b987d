"""The WebSocket opening handshake (RFC 6455 §4.2): checks the client's HTTP request and makes the server's answer.

Knows no frames and no socket. Any path is accepted, and no extension. `Origin` is ignored, since the CONNECT that
follows proves the client's rights, and no cookie does: a page from anywhere, in a browser that reaches this listener,
has the rights of an anonymous client.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from http import HTTPStatus
from typing import Final

from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.server.http_request import (
    HEAD_END,
    HeadReader,
    HeadTooLongError,
    HttpRequest,
    HttpRequestError,
    parse_request,
)

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
"""The name of the specification [MQTT-6.0.0-4], and the name that clients of MQTT 3.1 used before it."""
MAX_REQUEST_BYTES: Final = 16_384
"""Browsers send their cookies along, each up to 4 kB; other clients need some 300 bytes."""
MAX_HEADERS: Final = 100
"""Several times what any browser sends."""

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY_BYTES: Final = 16
_UPGRADE_HEADERS: Final = "Upgrade: websocket\r\nSec-WebSocket-Version: 13"
"""A 426 names the protocol (RFC 9110 §15.5.22), and the version that the server speaks (RFC 6455 §4.2.2)."""

Headers = dict[str, str]


class UpgradeError(FrontError):
    """The request is refused: send `response`, then close."""

    def __init__(self, status: HTTPStatus, text: str, header: str = "") -> None:
        super().__init__(text)
        body = f"{text}\n".encode()
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", "Connection: close", "Content-Type: text/plain"]
        lines += [f"Content-Length: {len(body)}", *([header] if header else [])]
        self.response = "\r\n".join(lines).encode() + HEAD_END + body


class Upgrade:
    """One per connection: feed it bytes until it returns an answer; do not feed it after that or after an error."""

    __slots__ = ("_reader",)

    def __init__(self) -> None:
        self._reader = HeadReader(MAX_REQUEST_BYTES)

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """The answer to send, and the bytes after the request, which are frames; None while the request is incomplete.

        Raises UpgradeError.
        """
        try:
            read = self._reader.feed(data)
        except HeadTooLongError as error:
            raise UpgradeError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, str(error)) from None
        if read is None:
            return None
        head, rest = read
        return answer(head), rest


def answer(head: str) -> bytes:
    """The answer to the head of a request, given without its empty line. Raises UpgradeError."""
    try:
        return _answer(parse_request(head))
    except HttpRequestError as error:
        raise _bad(str(error)) from None


def _answer(request: HttpRequest) -> bytes:
    if not request.target:
        raise _bad("not an HTTP request")
    if request.method != "GET":
        raise UpgradeError(HTTPStatus.METHOD_NOT_ALLOWED, "a WebSocket handshake must use GET", "Allow: GET")
    if request.version != "HTTP/1.1":
        raise UpgradeError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "a WebSocket handshake must use HTTP/1.1")
    headers = _headers(request)
    # RFC 6455 §4.2.1: both are lists without case, and browsers do send `Connection: keep-alive, Upgrade`.
    if "websocket" not in _list(headers, "upgrade") or "upgrade" not in _list(headers, "connection"):
        text = "this address serves MQTT clients over WebSocket only"
        raise UpgradeError(HTTPStatus.UPGRADE_REQUIRED, text, _UPGRADE_HEADERS)
    if headers.get("sec-websocket-version") != "13":
        text = "unsupported WebSocket version, need 13"
        raise UpgradeError(HTTPStatus.UPGRADE_REQUIRED, text, _UPGRADE_HEADERS)
    if not headers.get("host"):
        raise _bad("missing Host header")
    # Its bytes would be read as frames: nothing else marks where a body ends and the first frame begins.
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise _bad("a WebSocket handshake must not have a body")
    return _accept(_key(headers), _subprotocol(headers))


def _headers(request: HttpRequest) -> Headers:
    """Values by names in lower case; values of a repeated header are joined by commas (RFC 9110 §5.3)."""
    if len(request.header_lines) > MAX_HEADERS:
        raise UpgradeError(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"the request has more than {MAX_HEADERS} headers"
        )
    headers = {name: ", ".join(values) for name, values in request.headers().items()}
    if any(char in value for value in headers.values() for char in "\r\n\0"):  # RFC 9110 §5.5
        raise _bad("malformed header")
    return headers


def _list(headers: Headers, name: str, lower: bool = True) -> list[str]:
    value = headers.get(name, "")
    return [item.strip(" \t") for item in (value.lower() if lower else value).split(",")]


def _key(headers: Headers) -> str:
    key = headers.get("sec-websocket-key", "")
    try:
        raw = base64.b64decode(key, validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEY_BYTES:
        raise _bad(f"expected exactly one Sec-WebSocket-Key, {_KEY_BYTES} bytes in base64")
    return key


def _subprotocol(headers: Headers) -> str:
    offered = _list(headers, "sec-websocket-protocol", lower=False)
    for known in SUBPROTOCOLS:
        if known in offered:
            return known
    raise _bad("the client must offer the subprotocol mqtt")  # [MQTT-6.0.0-3]


def proof_of(key: str) -> str:
    """The value of Sec-WebSocket-Accept that answers a Sec-WebSocket-Key."""
    # RFC 6455 §4.2.2 prescribes SHA-1. It only proves that the server speaks WebSocket, and protects nothing.
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    return base64.b64encode(digest).decode()


def _accept(key: str, subprotocol: str) -> bytes:
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {proof_of(key)}",
        f"Sec-WebSocket-Protocol: {subprotocol}",
    ]
    return "\r\n".join(lines).encode() + HEAD_END


def _bad(text: str) -> UpgradeError:
    return UpgradeError(HTTPStatus.BAD_REQUEST, text)
