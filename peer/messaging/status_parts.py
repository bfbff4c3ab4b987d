"""Parts of a status that all engines over lists show: settings, waiting messages, peers and names.

Everything is JSON-able and bounded in size.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

from ringmq.dispatching.algorithms import Choice
from ringmq.dispatching.plan import UNBOUNDED
from ringmq.overlay.config import show
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.send_window import SendWindow, SendWindows

MAX_SHOWN: Final = 100
"""Entries shown for each of partitions, topics, coordinators, filters and peers; their total is always shown. They take
less than half of the size of a status, as its links may need the other half."""
MAX_NAME_CHARS: Final = 100
"""Characters shown of a topic or filter, whose 65,535 bytes would fill a status."""


def shown_settings(config: PubSubConfig) -> dict[str, Any]:
    return {
        **shown_choice(config.dispatch),
        "rules": len(config.rules),
        "shadows": config.shadows,
        "lease_s": config.lease_s,
        "entry_s": config.entry_s,
    }


def shown_queues(waiting_bytes: int, send_windows: SendWindows) -> dict[str, Any]:
    return {
        "waiting_bytes": waiting_bytes,
        "unacknowledged": send_windows.waiting,
        "peers_total": len(send_windows),
        "peers": [_queue(send_window) for send_window in islice(send_windows, MAX_SHOWN)],
    }


def _queue(send_window: SendWindow) -> dict[str, Any]:
    return {
        **shown_peer(send_window.peer),
        "on_their_way": len(send_window.in_flight),
        "behind": len(send_window.waiting),
        "tries": send_window.tries,
    }


def shown_choice(choice: Choice) -> dict[str, Any]:
    return {"dispatch": choice.name, "fanout": None if choice.fanout == UNBOUNDED else choice.fanout}


def shown_peer(peer: Peer) -> dict[str, str]:
    return {"id": peer.id.hex(), "address": show((peer.host, peer.port))}


def id_of(peer: Peer | None) -> str | None:
    return None if peer is None else peer.id.hex()


def short(name: str) -> str:
    return name if len(name) <= MAX_NAME_CHARS else name[:MAX_NAME_CHARS] + "…"
