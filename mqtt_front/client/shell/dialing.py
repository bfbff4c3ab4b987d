"""Dialling: a connection to the address of a server, through TLS and WebSocket if it says so, or the reason why not."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from functools import partial
from typing import Any

from ringmq.mqtt_front.client.server_address import ServerAddress
from ringmq.mqtt_front.errors import NoConnectionError, Trouble, UpgradeRefusedError

_Place = tuple[Any, ...]
"""An entry of `getaddrinfo`."""
_OTHER_NAMES = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


async def dial(address: ServerAddress, tls: ssl.SSLContext | None, client: asyncio.Protocol) -> None:
    """Connect; `client.connection_made` was called when this returns. Raises NoConnectionError.

    `tls` is needed by addresses with TLS. Knows no time limit.
    """
    try:
        await _dial(address, tls if address.tls else None, client)
    except (OSError, UpgradeRefusedError, UnicodeError) as error:
        raise explained(error, address) from None


async def _dial(address: ServerAddress, tls: ssl.SSLContext | None, client: asyncio.Protocol) -> None:
    opened = await _socket_to(address)
    create = partial(
        asyncio.get_running_loop().create_connection,
        sock=opened,
        ssl=tls,
        server_hostname=address.host if tls else None,
    )
    if address.path is None:
        await create(lambda: client)
        return
    # A command without WebSocket starts sooner without it.
    from ringmq.mqtt_front.client.shell.websocket_line import WebSocketLine  # noqa: PLC0415

    line = WebSocketLine(client, address)
    transport, _ = await create(lambda: line)
    try:
        await line.opened
    except BaseException:
        transport.abort()
        raise


async def _socket_to(address: ServerAddress) -> socket.socket:
    """A socket that is connected to the first of the host's addresses that can be reached."""
    loop = asyncio.get_running_loop()
    places = await _resolved(address)
    for number, (family, kind, protocol, _, place) in enumerate(places, 1):
        opened = socket.socket(family, kind, protocol)
        try:
            opened.setblocking(False)
            await loop.sock_connect(opened, place)
        except OSError:
            opened.close()
            if number == len(places):
                raise
        except BaseException:
            opened.close()
            raise
        else:
            return opened
    raise OSError("the host has no address")


async def _resolved(address: ServerAddress) -> list[_Place]:
    """The addresses of the host, in the order in which the system wants them tried."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[_Place]] = loop.create_future()

    def tell(places: list[_Place], error: OSError | UnicodeError | None) -> None:
        if found.done():
            return
        if error is None:
            found.set_result(places)
        else:
            found.set_exception(error)

    def resolve() -> None:
        places, fault = list[_Place](), None
        try:
            places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            fault = error
        with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
            loop.call_soon_threadsafe(tell, places, fault)

    # A daemon, unlike the threads of the loop: a name server that does not answer must not keep the process alive.
    threading.Thread(target=resolve, name="resolver", daemon=True).start()
    return await found


def explained(error: Exception, address: ServerAddress) -> NoConnectionError:
    """Why there is no connection, in one line."""
    trouble, text = _explained(error)
    return NoConnectionError(trouble, f"{address}: {text}")


def _explained(error: Exception) -> tuple[Trouble, str]:
    if isinstance(error, UnicodeError):
        return Trouble.UNKNOWN_HOST, "unknown host (no valid name)"
    if isinstance(error, socket.gaierror):  # its text tells a wrong name from a name server that does not answer
        return Trouble.UNKNOWN_HOST, f"unknown host ({(error.strerror or 'no reason given').lower()})"
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _OTHER_NAMES:
            return Trouble.OTHER_NAME, f"the certificate belongs to another host ({error.verify_message})"
        return Trouble.UNTRUSTED, f"the certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
            return Trouble.CERTIFICATE_REFUSED, "the server refused the client's certificate, or wants one"
        return Trouble.NO_TLS, f"the TLS handshake failed ({reason.replace('_', ' ').lower() or 'no reason given'})"
    if isinstance(error, UpgradeRefusedError):
        return Trouble.NO_WEBSOCKET, f"no WebSocket: {error}"
    if isinstance(error, ConnectionRefusedError):
        return Trouble.NOBODY_LISTENS, "connection refused"
    if isinstance(error, TimeoutError):
        return Trouble.SILENT, "no answer"
    if isinstance(error, (ConnectionResetError, ConnectionAbortedError, BrokenPipeError)):
        return Trouble.LOST, "the connection was closed before it was open"
    strerror = error.strerror if isinstance(error, OSError) else None
    return Trouble.UNREACHABLE, (strerror or str(error) or type(error).__name__).lower()
