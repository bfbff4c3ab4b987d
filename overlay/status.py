"""The status of a peer: a snapshot for `ringmq status`, bounded in size."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

from ringmq.overlay.config import OverlayConfig, show
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.ring import Ring
from ringmq.overlay.links.link import Link

MAX_LINKS_SHOWN: Final = 1024
"""Some 250 bytes each, 500 with long names, so they take half of MAX_STATUS_BYTES. The layers above share the rest."""
_TCP_INFO_RTT: Final = struct.Struct("=68xI")
"""Linux `struct tcp_info`: tcpi_rtt, in microseconds."""


def describe(
    ring: Ring, config: OverlayConfig, links: Iterable[Link], counters: dict[str, int], uptime_s: float
) -> dict[str, Any]:
    """JSON-able. Leaf set members nearest first; `counters` belong to the shell, `ring_counters` to the core."""
    core = ring.statistics()
    me = ring.me
    every = list(links)
    return {
        "id": me.id.hex(),
        "address": show((me.host, me.port)),
        "ring": config.ring,
        "boot": me.boot,
        "active": core.active,
        "uptime_s": round(uptime_s, 3),
        "pid": os.getpid(),
        "neighbours": {
            "clockwise": _peer(core.clockwise[0]) if core.clockwise else None,
            "counterclockwise": _peer(core.counterclockwise[0]) if core.counterclockwise else None,
        },
        "leaves": {
            "clockwise": [_peer(peer) for peer in core.clockwise],
            "counterclockwise": [_peer(peer) for peer in core.counterclockwise],
        },
        "table_size": core.table_size,
        "suspects": core.suspects,
        "dead": core.dead,
        "links_total": len(every),
        "links": describe_links(every),
        "counters": counters,
        "ring_counters": core.counters,
    }


def describe_links(links: Iterable[Link]) -> list[dict[str, Any]]:
    """JSON-able. A link without a handshake yet has no `id`."""
    return [_link(link) for link in islice(links, MAX_LINKS_SHOWN)]


def _peer(peer: Peer) -> dict[str, str]:
    return {"id": peer.id.hex(), "address": show((peer.host, peer.port))}


def _link(link: Link) -> dict[str, Any]:
    # Brings `queued_bytes` up to date, which is as old as the last flush otherwise.
    link.room()
    return {
        **(_peer(link.peer) if link.peer is not None else {}),
        "dialled": link.dialled is not None,
        "rtt_ms": round_trip_ms(link),
        "frames_in": link.frames_in,
        "frames_out": link.frames_out,
        "bytes_in": link.bytes_in,
        "bytes_out": link.bytes_out,
        "queued_bytes": link.queued_bytes,
    }


def round_trip_ms(link: Link) -> float | None:
    """Round trip that the kernel measured on this connection, plus the emulated latency; None if it has none."""
    if link.transport is None or not hasattr(socket, "TCP_INFO"):
        return None
    try:
        raw = link.transport.get_extra_info("socket").getsockopt(
            socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_RTT.size
        )
        microseconds: int = _TCP_INFO_RTT.unpack(raw)[0]
    except (OSError, AttributeError, struct.error):
        return None
    # Frames wait for the emulated latency outside the kernel, once in each direction.
    return round(microseconds / 1000 + 2000 * link.delay_s, 3)
