"""Ports of this machine that many peers can listen on.

Knows nothing of peers; whoever is told a port must still be ready to find it taken.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

import click

FIRST_FREE_PORT: Final = 10240
"""Below it well-known services listen."""
TRIES: Final = 1000


def is_free(port: int) -> bool:
    """Whether a peer could listen here, by TCP and UDP. Somebody may take the port before it does."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind is socket.SOCK_STREAM:
                # As servers do it: connections that were closed a moment ago do not count.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def choose_ports(first: int, count: int, option: str = "--overlay-port", apart_from: range = range(0)) -> range:
    """The ports from `first` on, or for 0 free ones in a row, none of them among `apart_from`.

    Raises ClickException, which names the option, if one is taken.
    """
    if first:
        ports = range(first, first + count)
        if ports[-1] > 65535:
            raise click.UsageError(f"{option}: {count} ports from {first} on go past 65535")
        if _overlap(ports, apart_from):
            others = f"{apart_from[0]}-{apart_from[-1]}"
            raise click.UsageError(f"{option}: {first}-{ports[-1]} and {others} overlap: each peer needs its own ports")
        taken = [port for port in ports if not is_free(port)]
        if taken:
            more = f" and {len(taken) - 1} more" if taken[1:] else ""
            raise click.ClickException(f"port {taken[0]}{more} of {ports[0]}-{ports[-1]} in use: try {option} 0")
        return ports
    # Below those that the system gives to outgoing connections: the first peers' links would take the last ones' ports.
    end = _first_ephemeral_port() - count
    for _ in range(TRIES):
        start = random.randrange(FIRST_FREE_PORT, end)
        ports = range(start, start + count)
        if not _overlap(ports, apart_from) and all(map(is_free, ports)):
            return ports
    raise click.ClickException(f"found no {count} free ports in a row")


def _overlap(one: range, other: range) -> bool:
    """Of two ranges that have no gaps."""
    return bool(other) and one[0] <= other[-1] and other[0] <= one[-1]


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return 32768
