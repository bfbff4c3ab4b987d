"""The head of an HTTP/1 request (RFC 9112): collects its bytes and parses the request line and the headers.

Owns the syntax and the bound on its size. Knows no socket, no response and no method: the WebSocket listener and the
metrics page of a peer decide which requests they accept, and how they answer a fault.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ringmq.mqtt_front.errors import FrontError

HEAD_END: Final = b"\r\n\r\n"
_TOKEN_CHARS: Final = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")


class HttpRequestError(FrontError):
    """The bytes are not an HTTP request."""


class HeadTooLongError(HttpRequestError):
    """The head of the request exceeds its bound, with or without its end."""


class HttpRequest(NamedTuple):
    method: str
    """Unchecked: it may not be a token."""
    target: str
    """Unchecked: it may be empty."""
    version: str
    """`HTTP/` and a text without spaces."""
    header_lines: list[str]

    def headers(self) -> dict[str, list[str]]:
        """Values by header names in lower case, as sent but stripped. Raises HttpRequestError for a malformed line.

        A method of its own, so that the caller can refuse the request line first.
        """
        return parse_headers(self.header_lines)


class HeadReader:
    """One per request: feed it bytes until it returns the head; do not feed it again after that or after an error."""

    __slots__ = ("_buffer", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> tuple[str, bytes] | None:
        """The head without its empty line, and the bytes after it; None while the head is incomplete.

        Raises HeadTooLongError.
        """
        buffer = self._buffer
        # Only the new bytes are searched, or a client that sends single bytes would cost the square of the bound.
        searched = max(0, len(buffer) - len(HEAD_END) + 1)
        buffer += data
        end = buffer.find(HEAD_END, searched)
        if (len(buffer) if end < 0 else end) > self._max_bytes:
            raise HeadTooLongError(f"the request head exceeds {self._max_bytes} bytes")
        if end < 0:
            return None
        # Any byte is valid in a header value (RFC 9110 §5.5, obs-text); latin-1 decodes each of them.
        head, rest = buffer[:end].decode("latin-1"), bytes(buffer[end + len(HEAD_END) :])
        buffer.clear()  # A reader lives as long as its connection, so it does not keep up to 16 kB for each client.
        return head, rest


def parse_request(head: str) -> HttpRequest:
    """Parse a head without its empty line. Raises HttpRequestError unless it begins with a request line."""
    first, *header_lines = head.split("\r\n")
    method, _, rest = first.partition(" ")
    target, _, version = rest.partition(" ")
    if not version.startswith("HTTP/") or " " in version:
        raise HttpRequestError("not an HTTP request")
    return HttpRequest(method, target, version, header_lines)


def parse_headers(lines: list[str]) -> dict[str, list[str]]:
    """Values by header names in lower case, as sent but stripped. Raises HttpRequestError for a malformed line."""
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        # RFC 9112 §5.1, §5.2: no space before the colon, and no folded lines. Tolerating either lets two parsers of one
        # message disagree about its headers.
        if not colon or not is_token(name):
            raise HttpRequestError("malformed header")
        headers.setdefault(name.lower(), []).append(value.strip(" \t"))
    return headers


def is_token(text: str) -> bool:
    """Whether `text` may be a method or the name of a header (RFC 9110 §5.6.2)."""
    return bool(text) and _TOKEN_CHARS.issuperset(text.lower())
