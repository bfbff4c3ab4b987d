"""HOST:PORT as people write it, read into what sockets want. The other way round is `overlay.config.show`."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final

from ringmq.overlay.config import Address

_HOST: Final = re.compile(r"[A-Za-z0-9._-]{1,255}")
_PORT: Final = re.compile(r"[0-9]{1,5}")


def is_host(value: object) -> bool:
    """Whether this can be the name or the address of a host; it is not looked up."""
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
        raise ValueError(value)
    if not is_host(host) or not _PORT.fullmatch(port):
        raise ValueError(value)
    if not (0 if any_port else 1) <= int(port) <= 65535:
        raise ValueError(value)
    return host, int(port)
