"""A listener: where clients connect and how, and the server socket that accepts them."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.server.websocket import WebSocket

LINGER_S: Final = 2.0
"""How long a connection that is closed may take to send its last bytes."""
SHORTEST_HANDSHAKE_S: Final = 0.1
"""No event loop takes 0, which `connect_timeout_s` may be."""
BACKLOG: Final = 1024
"""Clients that may knock at one moment, as all of a site do after a restart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """One listener."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    anonymous: bool = True
    """Whether clients without a password are let in."""
    websocket: bool = False
    """Whether clients speak WebSocket, with MQTT inside; with `tls`, inside of that."""


async def accept_clients(
    listen: Listen,
    client: Callable[[], asyncio.Protocol],
    faulty: Callable[[str], None],
    handshake_timeout_s: float,
) -> asyncio.Server:
    """Make a `client` for each connection from now on; `faulty` is told of who breaks the rules of WebSocket.

    Raises FrontError with one clear line.
    """

    def accept() -> asyncio.Protocol:
        return WebSocket(client(), faulty) if listen.websocket else client()

    try:
        return await asyncio.get_running_loop().create_server(
            accept,
            listen.host,
            listen.port,
            ssl=listen.tls,
            backlog=BACKLOG,
            ssl_handshake_timeout=max(handshake_timeout_s, SHORTEST_HANDSHAKE_S) if listen.tls else None,
            ssl_shutdown_timeout=LINGER_S if listen.tls else None,
        )
    except (OSError, OverflowError, UnicodeError) as error:
        raise FrontError(f"cannot listen for MQTT on {listen.host}:{listen.port}: {bind_error_text(error)}") from None


def bind_error_text(error: OSError | OverflowError | UnicodeError) -> str:
    """Why an address cannot be bound, without the address, which the caller's error names and some texts repeat."""
    if isinstance(error, UnicodeError):
        return "this cannot be the name of a host"
    if isinstance(error, socket.gaierror):  # its numbers are not errno values
        return error.strerror or "no such host"
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error)


def address_of(server: asyncio.Server) -> tuple[str, int]:
    """Where it really listens: the port is never 0."""
    host, port = server.sockets[0].getsockname()[:2]
    return str(host), int(port)
