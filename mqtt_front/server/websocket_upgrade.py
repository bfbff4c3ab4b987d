"""The opening of a WebSocket connection (RFC 6455 §4.2): the client's HTTP request, and the server's answer.

Knows no frames and no socket. Any path will do. Extensions are not taken up. `Origin` is not looked at, as the CONNECT
that follows says who may do what, and no cookie does: so a page from anywhere, in a browser that reaches this listener,
may do what an anonymous client may.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from http import HTTPStatus
from typing import Final

from ringmq.mqtt_front.errors import FrontError

SUBPROTOCOLS: Final = ("mqtt", "mqttv3.1")
"""The one that the specification names [MQTT-6.0.0-4], and what clients of MQTT 3.1 said before it did."""
MAX_REQUEST_BYTES: Final = 16_384
"""Browsers send their cookies along, each up to 4 kB; other clients need some 300 bytes."""
MAX_HEADERS: Final = 100
"""Several times what any browser sends."""

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_END: Final = b"\r\n\r\n"
_TOKEN_CHARS: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
_KEY_BYTES: Final = 16

Headers = dict[str, str]


class UpgradeError(FrontError):
    """The request is refused: send `response`, and close."""

    def __init__(self, status: HTTPStatus, text: str, header: str = "") -> None:
        super().__init__(text)
        body = f"{text}\n".encode()
        lines = [f"HTTP/1.1 {status.value} {status.phrase}", "Connection: close", "Content-Type: text/plain"]
        lines += [f"Content-Length: {len(body)}", *([header] if header else [])]
        self.response = "\r\n".join(lines).encode() + _END + body


class Upgrade:
    """Feed it bytes until it gives an answer; not again after that or an error."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """The answer to send, and the bytes after the request, which are frames; None if the request is not all there.

        Raises UpgradeError.
        """
        buffer = self._buffer
        searched = max(0, len(buffer) - len(_END) + 1)
        buffer += data
        end = buffer.find(_END, searched)
        if max(end, 0) > MAX_REQUEST_BYTES or (end < 0 and len(buffer) > MAX_REQUEST_BYTES):
            raise UpgradeError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_REQUEST_BYTES} bytes")
        if end < 0:
            return None
        return answer(buffer[:end].decode("latin-1")), bytes(buffer[end + len(_END) :])


def answer(request: str) -> bytes:
    """The answer to a request, which is given without the empty line at its end. Raises UpgradeError."""
    first, *lines = request.split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    if not target or not version.startswith("HTTP/") or " " in version:
        raise _bad("this is no HTTP request")
    if method != "GET":
        raise UpgradeError(HTTPStatus.METHOD_NOT_ALLOWED, "a WebSocket begins with GET", "Allow: GET")
    if version != "HTTP/1.1":
        raise UpgradeError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "a WebSocket begins with HTTP/1.1")
    headers = _headers(lines)
    if "websocket" not in _list(headers, "upgrade") or "upgrade" not in _list(headers, "connection"):
        needed = "Upgrade: websocket\r\nSec-WebSocket-Version: 13"
        raise UpgradeError(HTTPStatus.UPGRADE_REQUIRED, "this is for MQTT clients, over WebSocket", needed)
    if headers.get("sec-websocket-version") != "13":
        needed = "Upgrade: websocket\r\nSec-WebSocket-Version: 13"
        raise UpgradeError(HTTPStatus.UPGRADE_REQUIRED, "the WebSocket version is to be 13", needed)
    if not headers.get("host"):
        raise _bad("there is no Host")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise _bad("the request has a body")
    return _accept(_key(headers), _subprotocol(headers))


def _headers(lines: list[str]) -> Headers:
    """By names in lower case; the values of one that is repeated are joined by commas (RFC 9110 §5.3)."""
    if len(lines) > MAX_HEADERS:
        raise UpgradeError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"more than {MAX_HEADERS} headers")
    headers: Headers = {}
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.lower(), value.strip(" \t")
        if not colon or not name or not _TOKEN_CHARS.issuperset(name) or any(char in value for char in "\r\n\0"):
            raise _bad("a header cannot be read")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
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
        raise _bad("Sec-WebSocket-Key is to be one, of 16 bytes in base64")
    return key


def _subprotocol(headers: Headers) -> str:
    offered = _list(headers, "sec-websocket-protocol", lower=False)
    for known in SUBPROTOCOLS:
        if known in offered:
            return known
    raise _bad("the client is to offer the subprotocol mqtt")  # [MQTT-6.0.0-3]


def _accept(key: str, subprotocol: str) -> bytes:
    digest = hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()
    lines = [
        "HTTP/1.1 101 Switching Protocols",
        "Upgrade: websocket",
        "Connection: Upgrade",
        f"Sec-WebSocket-Accept: {base64.b64encode(digest).decode()}",
        f"Sec-WebSocket-Protocol: {subprotocol}",
    ]
    return "\r\n".join(lines).encode() + _END


def _bad(text: str) -> UpgradeError:
    return UpgradeError(HTTPStatus.BAD_REQUEST, text)
