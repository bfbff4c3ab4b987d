"""Addresses of servers as users write them: HOST, HOST:PORT, or a URL of MQTT or WebSocket, with or without TLS.

Owns the syntax. Resolves no name.
"""

from __future__ import annotations

from typing import Final, NamedTuple

MQTT_PORT: Final = 1883
TLS_PORT: Final = 8883


class _Scheme(NamedTuple):
    tls: bool
    websocket: bool
    port: int


SCHEMES: Final = {
    "mqtt": _Scheme(False, False, MQTT_PORT),
    "mqtts": _Scheme(True, False, TLS_PORT),
    "ws": _Scheme(False, True, 80),
    "wss": _Scheme(True, True, 443),
}


class ServerAddress(NamedTuple):
    host: str
    port: int
    tls: bool = False
    path: str | None = None
    """The target of a WebSocket's request, with its query; None for MQTT straight over TCP or TLS."""

    @property
    def authority(self) -> str:
        """HOST:PORT, an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        if self.path is not None:
            return f"{'wss' if self.tls else 'ws'}://{self.authority}{self.path}"
        return self.authority


class ServerUrl(NamedTuple):
    """What a URL says besides the address. None: it says nothing."""

    address: ServerAddress
    user_name: str | None = None
    password: str | None = None
    topic: str | None = None


def parse_server(text: str, port: int | None = None, *, tls: bool = False) -> ServerUrl:
    """Read HOST, HOST:PORT or a URL; `port` and `tls` hold where the text says nothing. Raises ValueError."""
    if "://" in text:
        return _parse_url(text)
    host, own_port = _host_and_port(text)
    default = TLS_PORT if tls else MQTT_PORT
    return ServerUrl(ServerAddress(host, own_port or port or default, tls))


def _parse_url(text: str) -> ServerUrl:
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415  # most users write HOST: they need not wait for it

    parts = urlsplit(text)
    scheme = SCHEMES.get(parts.scheme)
    if scheme is None:
        raise ValueError(f"a URL must begin with one of {', '.join(f'{name}://' for name in SCHEMES)}, got {text!r}")
    user_part, _, place = parts.netloc.rpartition("@")
    host, port = _host_and_port(place)
    user, colon, password = user_part.partition(":")
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    if not target.isascii() or not target.isprintable() or " " in target:
        raise ValueError(f"the path of a URL must be printable ASCII without spaces (%20), got {text!r}")
    topic = unquote(parts.path[1:], errors="strict") if parts.path[1:] and not scheme.websocket else None
    address = ServerAddress(host, port or scheme.port, scheme.tls, (target or "/") if scheme.websocket else None)
    return ServerUrl(address, unquote(user) or None, unquote(password) if colon else None, topic)


def _host_and_port(text: str) -> tuple[str, int | None]:
    host, colon, port = text.rpartition(":")
    if text.startswith("["):  # an IPv6 address: its colons are no begin of a port
        host, bracket, rest = text[1:].partition("]")
        colon, port = rest[:1], rest[1:]
        if not bracket or (rest and colon != ":") or not _is_ipv6(host):
            raise ValueError(f"an IPv6 address must be in brackets, as in [::1]:{MQTT_PORT}, got {text!r}")
    elif not colon:
        host = text
    elif ":" in host:
        if _is_ipv6(text):
            return text, None
        raise ValueError(f"an address must be HOST or HOST:PORT, got {text!r}")
    if not host or any(char.isspace() or not char.isprintable() or char in "/@?#" for char in host):
        raise ValueError(f"an address must be HOST or HOST:PORT, got {text!r}")
    if not colon:
        return host, None
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise ValueError(f"a port must be 1 to 65535, got {port!r} in {text!r}")
    return host, int(port)


def _is_ipv6(text: str) -> bool:
    from ipaddress import AddressValueError, IPv6Address  # noqa: PLC0415  # as above

    try:
        IPv6Address(text)
    except AddressValueError:
        return False
    return True
