"""What a peer knows of one tree that it is in: its parent, the way to the root, and its children."""

from __future__ import annotations

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.context import Orders
from ringmq.peer.messaging.partitions import key_of_place


class Child:
    """One entry of the children table: a lease."""

    __slots__ = ("acked", "peer", "told_at", "until")

    def __init__(self, peer: Peer, until: float, acked: bool = False) -> None:
        self.peer = peer
        self.until = until
        self.acked = acked
        """Whether it was told that it is one, so that it is to be told again."""
        self.told_at = 0.0


class Tree:
    """A peer is in a tree as long as it has children there or filters of its own."""

    __slots__ = (
        "attached", "attempts", "children", "failed", "heard_at", "key", "orders", "own", "parent", "path", "place",
        "root", "seeking",
    )  # fmt: skip

    def __init__(self, place: str, most_orders: int) -> None:
        self.place = place
        self.key = key_of_place(place)
        self.root = False
        self.own = False
        """Whether filters of this peer live here: otherwise it only forwards."""
        self.parent: Peer | None = None
        self.path: tuple[Id, ...] = ()
        """From the root to the parent. One that lost its parent keeps it, to know who is below."""
        self.attached = False
        """Whether there is a parent, or this is the root and in charge."""
        self.heard_at = 0.0
        self.children: dict[Id, Child] = {}
        self.seeking = False
        self.attempts = 0
        self.failed = 0
        """JOINs that nobody answered."""
        self.orders = Orders(most_orders)

    @property
    def forwards_only(self) -> bool:
        return not self.own

    @property
    def depth(self) -> int:
        return len(self.path)

    @property
    def needed(self) -> bool:
        return self.own or bool(self.children)

    def peers(self) -> tuple[Peer, ...]:
        return tuple([child.peer for child in self.children.values()])
