"""Where a message goes next: Pastry's routing rule (§2.3) as one function of leaf set and routing table."""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

from ringmq.overlay.core.ids import Id, nearness, shared_digits
from ringmq.overlay.core.leaf_set import LeafSet
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.routing import RoutingTable


def next_hop(leaves: LeafSet, table: RoutingTable, key: Id, without: Collection[Id] = ()) -> Peer | None:
    """The peer to send to, some left out because they do not answer; None when this peer is the nearest known.

    Each hop shares a longer prefix with the key, or the same and is nearer, or is the nearest of the leaf set.
    """
    nearest = leaves.closest(key, without)
    if nearest is None or leaves.covers(key):
        return nearest
    ahead = table.towards(key, without)
    if ahead is not None:
        return ahead
    # The rare case: nobody known has the next digit. Any peer will do that is no worse and is nearer (§2.3).
    center = leaves.center
    prefix = shared_digits(center, key)
    best, best_nearness = nearest, nearness(key, nearest.id)
    for peer in chain(leaves, table):
        if peer.id not in without and shared_digits(peer.id, key) >= prefix:
            near = nearness(key, peer.id)
            if near < best_nearness:
                best, best_nearness = peer, near
    return best
