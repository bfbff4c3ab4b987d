"""Listeners: the address and transport on which clients connect, and the server socket that accepts them.

Must not know what the clients send.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import structlog

from ringmq.mqtt_front.counters import FrontCounters
from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.server.tls_handshakes import Handshakes
from ringmq.mqtt_front.server.websocket import WebSocket

log = structlog.get_logger("front")

LINGER_S: Final = 2.0
"""Time in which a connection that is being closed may send its last bytes."""
BACKLOG: Final = 1024
"""Connections that may wait to be accepted: after a restart all clients of a site connect at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listen:
    """The settings of one listener."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None
    anonymous: bool = True
    """Whether clients without a password are admitted."""
    websocket: bool = False
    """Whether MQTT is carried in WebSocket frames (with `tls`, inside TLS)."""


async def accept_clients(
    listen: Listen,
    client: Callable[[], asyncio.Protocol],
    on_breach: Callable[[str], None],
    handshakes: Handshakes,
) -> asyncio.Server:
    """Make a `client` for each connection from now on; `on_breach` is called with each violation of WebSocket's rules.

    Raises FrontError with one clear line.
    """

    def make() -> asyncio.Protocol:
        return WebSocket(client(), on_breach) if listen.websocket else client()

    tls = listen.tls
    accept = make if tls is None else partial(handshakes.accept, tls, make)

    try:
        return await asyncio.get_running_loop().create_server(
            accept,
            listen.host,
            listen.port,
            backlog=BACKLOG,
        )
    except (OSError, OverflowError, UnicodeError) as error:
        raise FrontError(f"cannot listen for MQTT on {listen.host}:{listen.port}: {bind_error_text(error)}") from None


def count_breach(counters: FrontCounters, why: str) -> None:
    """Count and log a violation of WebSocket's rules: `on_breach` of both fronts, without the first argument."""
    counters.protocol_errors += 1
    # Debug only: any stranger can cause it, and must not be able to fill the disk with log lines.
    log.debug("a client violated the WebSocket protocol", why=why)


def bind_error_text(error: OSError | OverflowError | UnicodeError) -> str:
    """Why an address cannot be bound, without the address, which the caller's error names and some texts repeat."""
    if isinstance(error, UnicodeError):
        return "not a valid host name"
    if isinstance(error, socket.gaierror):  # its numbers are not errno values
        return error.strerror or "no such host"
    number = getattr(error, "errno", None)
    return os.strerror(number) if number and number > 0 else str(error)


def address_of(server: asyncio.Server) -> tuple[str, int]:
    """The bound address, whose port is never 0."""
    host, port = server.sockets[0].getsockname()[:2]
    return str(host), int(port)
