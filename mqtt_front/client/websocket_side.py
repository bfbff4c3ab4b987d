"""The client's side of WebSocket's opening handshake (RFC 6455 §4.1): the request, and the check of its answer.

Knows no socket and no chance: the key of a request is an argument.
"""

from __future__ import annotations

import base64
from typing import Final

from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.errors import UpgradeRefusedError
from ringmq.mqtt_front.server.http_request import (
    HEAD_END,
    HeadReader,
    HeadTooLongError,
    HttpRequestError,
    parse_headers,
)
from ringmq.mqtt_front.server.websocket_upgrade import proof_of

SUBPROTOCOL: Final = "mqtt"
"""[MQTT-6.0.0-3]"""
KEY_BYTES: Final = 16
MAX_ANSWER_BYTES: Final = 16_384
"""Servers answer with some 200 bytes; proxies add headers of their own."""
_SWITCHING: Final = "101"
_SHOWN: Final = 60
"""Maximum characters of a status line in an error."""


class Opening:
    """One per connection: send `request`, then feed it bytes until it returns the bytes after the answer."""

    def __init__(self, address: ServerAddress, key: bytes) -> None:
        """`key`: KEY_BYTES bytes that nobody can predict."""
        self._key = base64.b64encode(key).decode()
        self._reader = HeadReader(MAX_ANSWER_BYTES)
        lines = [
            f"GET {address.path or '/'} HTTP/1.1",
            f"Host: {address.authority}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {self._key}",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}",
        ]
        self.request = "\r\n".join(lines).encode("utf-8", "replace") + HEAD_END

    def feed(self, data: bytes) -> bytes | None:
        """The bytes after the answer, which are frames; None while it is incomplete. Raises UpgradeRefusedError."""
        try:
            read = self._reader.feed(data)
            if read is None:
                return None
            head, rest = read
            first, *lines = head.split("\r\n")
            self._check(first, parse_headers(lines))
        except HeadTooLongError:
            raise UpgradeRefusedError(f"its answer has no end within {MAX_ANSWER_BYTES:,} bytes") from None
        except HttpRequestError:
            raise UpgradeRefusedError("its answer is not HTTP") from None
        return rest

    def _check(self, first: str, headers: dict[str, list[str]]) -> None:
        version, _, status = first.partition(" ")
        if not version.startswith("HTTP/"):
            raise UpgradeRefusedError("its answer is not HTTP")
        if status.partition(" ")[0] != _SWITCHING:
            shown = "".join([char for char in status[:_SHOWN] if char.isprintable()])
            raise UpgradeRefusedError(f"it answered {shown}")
        if ", ".join(headers.get("upgrade", [])).lower() != "websocket":
            raise UpgradeRefusedError("its answer does not change to WebSocket")
        if headers.get("sec-websocket-accept") != [proof_of(self._key)]:
            raise UpgradeRefusedError("its answer does not belong to this request")
        # A server that names no subprotocol speaks another one, or none (RFC 6455 §4.1). [MQTT-6.0.0-4]
        if headers.get("sec-websocket-protocol") != [SUBPROTOCOL]:
            raise UpgradeRefusedError("it does not speak MQTT there")
        if headers.get("sec-websocket-extensions"):
            raise UpgradeRefusedError("it wants an extension that was not offered")
