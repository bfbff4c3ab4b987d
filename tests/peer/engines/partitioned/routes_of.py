"""Routes as a coordinator would send them, for tests of holders."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.item_codec import packed
from ringmq.peer.engines.partitioned.messages import Begun, Grouped, RouteChange, Routes
from ringmq.peer.engines.partitioned.names import fingerprint_of, partition_of_filter, shape_of
from ringmq.peer.messaging.shared_filters import inner_of, is_shared

Change = tuple[str, Peer, int]
"""A filter, a home, and flags of RouteChange."""
CAME = 0
GONE = int(RouteChange.GONE)
EXPIRED = int(RouteChange.GONE | RouteChange.EXPIRED)


def peer_of(number: int, boot: int = 1) -> Peer:
    return Peer(Id(number << 120), "127.0.0.1", 4000 + number, boot)


def routes_of(changes: Iterable[Change], begun: Sequence[Begun] = (), ended: Sequence[tuple[int, int]] = ()) -> Routes:
    """A message with these changes, in their order."""
    rows = list(changes)
    peers = list(dict.fromkeys(peer for _, peer, _ in rows))
    shapes = [shape_of(inner_of(topic_filter)) for topic_filter, _, _ in rows]
    patterns = list(dict.fromkeys(shapes))
    groups = [Grouped(row, topic_filter) for row, (topic_filter, _, _) in enumerate(rows) if is_shared(topic_filter)]
    return Routes(
        tuple(ended),
        tuple(begun),
        tuple(peers),
        tuple(patterns),
        packed(array("H", [partition_of_filter(topic_filter) for topic_filter, _, _ in rows])),
        packed(array("Q", [fingerprint_of(inner_of(topic_filter)) for topic_filter, _, _ in rows])),
        packed(array("H", [patterns.index(shape) for shape in shapes])),
        packed(array("I", [peers.index(peer) for _, peer, _ in rows])),
        packed(array("B", [flags for _, _, flags in rows])),
        tuple(groups),
    )
