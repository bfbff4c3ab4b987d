"""One tree that this peer is in: its parent, the path from the root, and its children.

Owns how a tree changes; `trees.py` decides when, and sends the messages.
"""

from __future__ import annotations

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.context import Orders
from ringmq.peer.engines.scribe.places import key_of_place

MOST_DOUBLINGS = 6
"""Doublings of the time between two JOINs."""


class Child:
    """One entry of the children table: a lease."""

    __slots__ = ("acked", "beaten_at", "peer", "until")

    def __init__(self, peer: Peer, until: float, acked: bool = False) -> None:
        self.peer = peer
        self.until = until
        self.acked = acked
        """Whether it was notified that it is a child, so that it gets heartbeats."""
        self.beaten_at = 0.0
        """The time of the last heartbeat, or of a message that stood for it."""

    def heartbeat(self, now: float) -> None:
        """It is being sent a heartbeat, the first of which notifies it that it is a child."""
        self.acked, self.beaten_at = True, now

    def message(self, now: float) -> None:
        """It is being sent a message, which stands for a heartbeat."""
        # `acked` stays: the child accepts its parent by the path, which only a heartbeat carries.
        self.beaten_at = now

    def due(self, now: float, every_s: float) -> bool:
        """Whether a heartbeat is due."""
        return self.acked and self.beaten_at <= now - every_s


class Tree:
    """A peer is in a tree while it has children there or filters of its own."""

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
        """The peers from the root to the parent. It stays when the parent is lost, to recognise peers above."""
        self.attached = False
        """Whether there is a parent, or this peer is the root and in charge."""
        self.heard_at = 0.0
        self.children: dict[Id, Child] = {}
        self.seeking = False
        """Whether JOINs are being sent."""
        self.attempts = 0
        self.failed = 0
        """JOINs without an answer."""
        self.orders = Orders(most_orders)

    @property
    def depth(self) -> int:
        return len(self.path)

    @property
    def needed(self) -> bool:
        return self.own or bool(self.children)

    def peers(self) -> tuple[Peer, ...]:
        return tuple([child.peer for child in self.children.values()])

    def has_parent(self, peer: Peer) -> bool:
        return self.parent is not None and self.parent.id == peer.id

    def enter(self) -> bool:
        """Filters of this peer live here: whether messages reach it already."""
        self.own = True
        return self.attached

    def exit(self) -> bool:
        """No filter of this peer lives here any more: whether it is still needed for others."""
        self.own = False
        return self.needed

    def seek(self) -> bool:
        """Whether JOINs must be sent from now on, which they were not before."""
        if self.root or self.seeking:
            return False
        self.seeking, self.failed = True, 0
        return True

    def join(self) -> int:
        """A JOIN is being sent: its number."""
        self.attempts += 1
        return self.attempts

    def join_failed(self, attempt: int) -> bool:
        """Whether the JOIN of this number stayed without an answer, and was the last."""
        # The timer of an earlier search may still run: it would begin a second chain of JOINs.
        if not self.seeking or self.attempts != attempt:
            return False
        self.failed += 1
        return True

    def wait_s(self, first_s: float, most_s: float) -> float:
        """Seconds until the next JOIN."""
        # JOINs are repeated without end, and no float has room for 2^1024.
        return min(most_s, first_s * (1 << min(self.failed, MOST_DOUBLINGS)))

    def orphan(self) -> None:
        """The parent is lost; the children stay."""
        self.parent, self.attached = None, False

    def attach(self, parent: Peer | None, path: tuple[Id, ...], now: float) -> None:
        """It has this parent and path now. None: this peer is the root."""
        self.parent, self.path = parent, path
        self.attached, self.seeking = True, False
        self.heard_at = now

    def heard(self, sender: Peer, now: float) -> bool:
        """A message came, which stands for a heartbeat if its sender is the parent: whether it is."""
        if not self.has_parent(sender):
            return False
        self.heard_at = now
        return True

    def beaten(self, path: tuple[Id, ...], now: float) -> bool:
        """A heartbeat of the parent: whether the path from the root has changed."""
        self.heard_at = now
        changed, self.path = self.path != path, path
        return changed

    def crown(self) -> bool:
        """This peer is the root: whether it was not before."""
        self.parent, self.path = None, ()
        if self.root:
            return False
        self.root, self.seeking = True, False
        return True

    def uncrown(self) -> None:
        """Another peer is the root."""
        self.root = self.attached = False

    def adopt(self, peer: Peer, until: float, acked: bool = False) -> bool:
        """Enter a child, or renew its lease: whether it is a new child. A child that restarted is a new one."""
        child = self.children.get(peer.id)
        if child is not None and child.peer.boot >= peer.boot:
            child.until = until
            return False
        self.children[peer.id] = Child(peer, until, acked)
        return True

    def renew(self, peer_id: Id, until: float) -> bool:
        """Renew the lease of a child: whether it is one."""
        child = self.children.get(peer_id)
        if child is None:
            return False
        child.until = until
        return True

    def drop(self, peer_id: Id) -> None:
        del self.children[peer_id]
