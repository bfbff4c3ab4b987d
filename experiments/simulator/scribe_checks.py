"""What must never happen with Scribe: less than with the roles of RingMQ, as it promises less.

At every step the same, but for shared filters and for what is retained below wildcards, which it does not serve. When
all is quiet the subscribers of each place are one tree below the true owner of its key, and nobody else remembers
anything. What is lost while trees change counts as a loss, if a scenario says that they may (`lenient`).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from ringmq.experiments.simulator.checks import InvariantBrokenError
from ringmq.experiments.simulator.clients import Subscription
from ringmq.experiments.simulator.pubsub_checks import PubSubChecks
from ringmq.overlay.core.ids import Id, nearness
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.engines.scribe.tree import Tree
from ringmq.peer.messaging.partitions import is_wild, key_of_place, place_of

PATIENCE_S: Final = 30.0
LOOK_S: Final = 0.5


class ScribeChecks(PubSubChecks):
    """The truth about messages and subscriptions, and comparisons with trees."""

    def _held_by_all(self, subscription: Subscription) -> None:
        """Only the next peer of a tree knows of a subscription."""

    def _gets_retained(self, subscription: Subscription) -> bool:
        return not is_wild(place_of(subscription.filter))

    def settled(self) -> None:
        """Each place with filters has one tree, which is whole; no other has any.

        Where messages still get lost, a child may lose its parent at any moment: there must be one at which none has.
        """
        self._world.run(self._world.now + PATIENCE_S, lambda: not self._faults(), LOOK_S)
        faults = self._faults()
        if faults:
            raise InvariantBrokenError(f"{len(faults)} trees are not whole: {faults[0]}")

    def _faults(self) -> list[str]:
        live = {node.peer.id: node for node in self._world.peers()}
        trees: dict[str, dict[Id, Tree]] = defaultdict(dict)
        subscribers: dict[str, set[Id]] = defaultdict(set)
        for point, node in live.items():
            assert isinstance(node.core, ScribeEngine), "the others have no trees"
            for tree in node.core.trees:
                trees[tree.place][point] = tree
            for name in node.clients.filters:
                subscribers[place_of(name)].add(point)
        faults = []
        for place in sorted({*trees, *subscribers}):
            key = key_of_place(place)
            root = min(live, key=lambda point, key=key: nearness(key, point))  # type: ignore[misc]
            fault = _fault(trees[place], subscribers[place], root)
            if fault is not None:
                faults.append(f"{place}: {fault}")
        return faults


def _fault(members: dict[Id, Tree], subscribers: set[Id], root: Id) -> str | None:
    """What keeps these from being one tree below the root; None if they are."""
    if not subscribers:
        return f"{len(members)} members and no subscriber" if members else None
    if not subscribers <= set(members):
        return f"{len(subscribers - set(members))} subscribers are not in it"
    if root not in members:
        return "its root is not in it"
    for point, tree in members.items():
        if tree.root is not (point == root):
            return f"{point.short()} {'is' if tree.root else 'is not'} its root"
        if not tree.attached:
            return f"{point.short()} has no way to the root"
        if tree.parent is None:
            continue
        above = members.get(tree.parent.id)
        if above is None or point not in above.children:
            return f"{point.short()} is no child of its parent"
        if tree.path != (*above.path, tree.parent.id):
            return f"{point.short()} is wrong about who is above it"
    return None
