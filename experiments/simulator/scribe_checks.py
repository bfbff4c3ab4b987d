"""Invariants of Scribe, which promises less than the roles of RingMQ.

The invariants at every step are the same, without shared filters and messages retained below wildcards, which Scribe
does not serve. When it is quiet, the subscribers of each place form one tree below the true owner of its key, and no
other peer remembers the place. Losses while trees change are counted if the scenario allows them (`lenient`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.clients import Subscription
from ringmq.experiments.simulator.pubsub_checks import PubSubChecks
from ringmq.overlay.core.ids import Id, nearness
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.engines.scribe.places import is_wild, key_of_place, place_of
from ringmq.peer.engines.scribe.tree import Tree

PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.5


class ScribeChecks(PubSubChecks):
    """Knows all messages and subscriptions, and compares deliveries and trees with them."""

    def _held_by_all(self, subscription: Subscription) -> None:
        """Check nothing: only the next peer of a tree knows a subscription."""

    def _gets_retained(self, subscription: Subscription) -> bool:
        return not is_wild(place_of(subscription.filter))

    def settled(self) -> None:
        """Check that each place with filters has one whole tree, and other places have none.

        With lossy links, a child may lose its parent at any time. So there must be a moment when all trees are whole.
        """
        self._world.run(self._world.now + PATIENCE_S, lambda: not self._faults(), LOOK_S)
        faults = self._faults()
        if faults:
            raise InvariantBrokenError(f"{len(faults)} trees are not whole: {faults[0]}")

    def _faults(self) -> list[str]:
        live = {node.peer.id: node for node in self._world.peers()}
        trees: dict[str, dict[Id, Tree]] = defaultdict(dict)
        subscribers: dict[str, set[Id]] = defaultdict(set)
        for peer_id, node in live.items():
            assert isinstance(node.core, ScribeEngine), "these checks are for Scribe alone"
            for tree in node.core.trees:
                trees[tree.place][peer_id] = tree
            for name in node.clients.filters:
                subscribers[place_of(name)].add(peer_id)
        faults = []
        for place in sorted({*trees, *subscribers}):
            key = key_of_place(place)
            root = min(live, key=lambda peer_id, key=key: nearness(key, peer_id))  # type: ignore[misc]
            fault = _fault(trees[place], subscribers[place], root)
            if fault is not None:
                faults.append(f"{place}: {fault}")
        return faults


def _fault(members: dict[Id, Tree], subscribers: set[Id], root: Id) -> str | None:
    """A fault of the tree below the root; None if it is whole."""
    if not subscribers:
        return f"{len(members)} members and no subscriber" if members else None
    if not subscribers <= set(members):
        return f"{len(subscribers - set(members))} subscribers are not in it"
    if root not in members:
        return "its root is not in it"
    for peer_id, tree in members.items():
        if tree.root is not (peer_id == root):
            return f"{peer_id.short()} {'is' if tree.root else 'is not'} its root"
        if not tree.attached:
            return f"{peer_id.short()} has no way to the root"
        if tree.parent is None:
            continue
        above = members.get(tree.parent.id)
        if above is None or peer_id not in above.children:
            return f"{peer_id.short()} is no child of its parent"
        if tree.path != (*above.path, tree.parent.id):
            return f"{peer_id.short()} has a wrong path to the root"
    return None
