"""Parser of HOST:PORT into the host and port that sockets need. `overlay.config.show` is the inverse."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address, ip_address
from typing import Final

from ringmq.overlay.config import Address

_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")
_PORT: Final = re.compile(r"[0-9]{1,5}")


def is_host(value: object) -> bool:
    """Whether the value has the form of a host name or an address. It is not resolved."""
    if not isinstance(value, str):
        return False
    if ":" not in value:
        return _HOST.fullmatch(value) is not None
    try:
        return value.isascii() and IPv6Address(value) is not None
    except AddressValueError:
        return False


def parse_address(value: object, *, any_port: bool = False) -> Address:
    """Read HOST:PORT, an IPv6 host in brackets; raises ValueError. Port 0 only with `any_port`."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        # Without brackets the last group of an IPv6 address would be read as the port.
        raise ValueError(value)
    if not is_host(host) or not _PORT.fullmatch(port):
        raise ValueError(value)
    if not (0 if any_port else 1) <= int(port) <= 65535:
        raise ValueError(value)
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only clients of this machine can reach this host."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
