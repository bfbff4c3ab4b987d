"""Ports of this machine that many peers can listen on.

Knows nothing about peers. A port that was free may be taken before the caller listens on it.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

import click

FIRST_FREE_PORT: Final = 10240
"""Well-known services listen on lower ports."""
TRIES: Final = 1000
"""Random starts that are tried before the search for free ports is given up."""


def is_free(port: int) -> bool:
    """Whether a peer could listen here now, on TCP and UDP."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            if kind is socket.SOCK_STREAM:
                # Servers set this too: a closed connection in TIME_WAIT does not keep them from listening.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True


def choose_ports(first: int, count: int, option: str = "--overlay-port", apart_from: range = range(0)) -> range:
    """`count` ports from `first` on, or consecutive free ports if it is 0; none of them is in `apart_from`.

    Raises ClickException, which names the option, if a port is taken.
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
    # Only ports below the ephemeral range: otherwise an outgoing link of the first peers could take a port that was
    # chosen for a later peer.
    end = _first_ephemeral_port() - count
    for _ in range(TRIES):
        start = random.randrange(FIRST_FREE_PORT, end)
        ports = range(start, start + count)
        if not _overlap(ports, apart_from) and all(map(is_free, ports)):
            return ports
    raise click.ClickException(f"found no {count} free ports in a row")


def _overlap(ports: range, others: range) -> bool:
    """Whether two ranges without gaps share a port."""
    return bool(others) and ports[0] <= others[-1] and others[0] <= ports[-1]


def _first_ephemeral_port() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return 32768
