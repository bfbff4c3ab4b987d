"""The trees that this peer is in: JOINs, parents, children, heartbeats, and repair.

A JOIN is routed towards the owner of the key. Each peer on the route consumes it, accepts its sender as a child and, if
it was not in the tree, sends a JOIN of its own. So the tree consists of reversed routes. A peer that hears nothing from
its parent joins again, and keeps its children.

Routes of Pastry have no loops, but routes of different times can form one. Therefore heartbeats carry the path from the
root: a peer that finds itself on it leaves; a peer below the joining peer lets the JOIN pass; and a JOIN that has
failed a few times goes to the root itself. This part does not know the roots: `roots` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import MAX_HOPS, Peer
from ringmq.peer.engines.scribe.context import MOST_AT_ONCE, TreeContext
from ringmq.peer.engines.scribe.messages import Beat, Branch, Gone, Join, Leave, Stay
from ringmq.peer.engines.scribe.send_window import Carrier
from ringmq.peer.engines.scribe.tree import Child, Tree

STAYS: Final = 5
"""Renewals within a child's lease, so that three lost ones in a row do no harm."""


class Trees:
    """One per engine. Call `beat_all` every `heartbeat_s`, and `stay_all` STAYS times in `child_s`."""

    __slots__ = ("_attached", "_carrier", "_state", "_trees", "_vacant_until")

    def __init__(
        self,
        state: TreeContext,
        carrier: Carrier,
        attached: Callable[[str], None],
        vacant_until: Callable[[str], float],
    ) -> None:
        """`attached` is called when messages reach this peer from the root of a place. `vacant_until` says how long
        publishers may believe that a tree is empty of which this peer is the root."""
        self._state = state
        self._carrier = carrier
        self._attached = attached
        self._vacant_until = vacant_until
        self._trees: dict[str, Tree] = {}

    def __len__(self) -> int:
        return len(self._trees)

    def __iter__(self) -> Iterator[Tree]:
        return iter(list(self._trees.values()))

    def get(self, place: str) -> Tree | None:
        return self._trees.get(place)

    def _open(self, place: str) -> Tree:
        tree = self._trees.get(place)
        if tree is None:
            tree = self._trees[place] = Tree(place, self._state.config.max_orders)
        return tree

    def enter(self, place: str) -> bool:
        """Filters of this peer live at a place: whether messages reach this peer already."""
        tree = self._open(place)
        if not tree.enter():
            self._seek(tree)
        return tree.attached

    def exit(self, place: str) -> None:
        """No filter of this peer lives at a place any more."""
        tree = self._trees.get(place)
        if tree is not None and not tree.exit():
            self._release(tree)

    def _release(self, tree: Tree) -> None:
        if tree.needed:
            return
        if tree.parent is not None:
            self._state.tell(tree.parent, Leave((tree.place,)))
        del self._trees[tree.place]

    def _seek(self, tree: Tree) -> None:
        if tree.seek():
            self._join(tree)

    def _join(self, tree: Tree) -> None:
        state = self._state
        attempt = tree.join()
        state.counters.joins += 1
        state.tell_owner(tree.key, Join(tree.place, state.me, tree.failed >= state.trees.patience))
        wait_s = tree.wait_s(state.config.retry_s, state.config.slow_retry_s)
        state.after(wait_s, lambda: self._join_again(tree, attempt))

    def _join_again(self, tree: Tree, attempt: int) -> None:
        # If this peer has left the tree, its old `Tree` still seeks: it would send JOINs for ever.
        if self._trees.get(tree.place) is tree and tree.join_failed(attempt):
            self._join(tree)

    def _orphan(self, tree: Tree) -> None:
        self._state.counters.orphaned += 1
        tree.orphan()
        self._seek(tree)

    def lost(self, peer: Peer) -> None:
        """The ring suspects a peer: join again below another parent, without waiting for `silence_s`."""
        for tree in self:
            if tree.has_parent(peer):
                self._orphan(tree)

    def _attach(self, tree: Tree, parent: Peer | None, path: tuple[Id, ...]) -> None:
        tree.attach(parent, path, self._state.clock.now)
        self._tell_children(tree)
        self._attached(tree.place)

    def crown(self, place: str, children: tuple[Peer, ...] = ()) -> None:
        """This peer is the root of the tree, and takes over these children of the root before it."""
        tree = self._open(place)
        if tree.parent is not None:
            self._state.tell(tree.parent, Leave((place,)))
        until = self._state.clock.now + self._state.trees.child_s
        for peer in children:
            if peer.id != self._state.me.id and peer.id not in tree.children:
                # The earlier root has notified them: without heartbeats they would join again after `silence_s`.
                tree.adopt(peer, until, acked=True)
        if tree.crown():
            self._take_charge(tree)
        elif children and tree.attached:
            # The earlier root has handed its children over and lives: at a heartbeat of the new root they leave it.
            self._tell_children(tree)

    def _take_charge(self, tree: Tree) -> None:
        # No child is notified while publishers may believe that the tree is empty: they would not send to it, and the
        # SUBACK of the child's client would promise messages that do not come.
        if not tree.root or self._trees.get(tree.place) is not tree:
            return
        until = self._vacant_until(tree.place)
        if until > self._state.clock.now:
            self._state.after(until - self._state.clock.now, lambda: self._take_charge(tree))
        else:
            self._attach(tree, None, ())

    def uncrown(self, place: str) -> None:
        """Another is the root from now on; this peer stays in the tree as long as it is needed there."""
        tree = self._trees.get(place)
        if tree is not None and tree.root:
            tree.uncrown()
            self._seek(tree)

    def take(self, place: str, peer: Peer) -> bool:
        """Accept a peer as a child, if it is not above this peer in the tree: whether it was accepted."""
        state, tree = self._state, self._trees.get(place)
        # A child that is above this peer would close a loop, which no message from the root would enter any more.
        # A heartbeat has room for MAX_HOPS ids of its path, so a tree is no deeper.
        if tree is not None and (peer.id in tree.path or len(tree.path) >= MAX_HOPS - 1):
            return False
        tree = self._open(place)
        if tree.adopt(peer, state.clock.now + state.trees.child_s):
            state.counters.taken += 1
        if tree.attached:
            self._tell(tree, tree.children[peer.id])
        else:
            # The child's filters come into force at its first heartbeat: it gets none before messages come here.
            self._seek(tree)
        return True

    def _tell(self, tree: Tree, child: Child) -> None:
        child.heartbeat(self._state.clock.now)
        self._state.tell(child.peer, Beat((self._branch(tree),)))

    def _tell_children(self, tree: Tree) -> None:
        for child in tree.children.values():
            self._tell(tree, child)

    def _branch(self, tree: Tree) -> Branch:
        return Branch(tree.place, (*tree.path, self._state.me.id))

    def _drop(self, tree: Tree, peer_id: Id) -> None:
        tree.drop(peer_id)
        # Its messages count as reached: `done` of their publishers must not wait for a peer that is not in the tree.
        self._carrier.drop(peer_id, tree.place)
        self._release(tree)

    def stay(self, sender: Peer, message: Stay) -> None:
        until = self._state.clock.now + self._state.trees.child_s
        strangers = []
        for place in message.places:
            tree = self._trees.get(place)
            if tree is not None and tree.renew(sender.id, until):
                continue
            # A child whose lease has expired is taken back without a JOIN, unless this peer gets no messages itself.
            if tree is None or not tree.attached or not self.take(place, sender):
                strangers.append(place)
        if strangers:
            self._state.tell(sender, Gone(tuple(strangers)))

    def leave(self, sender: Peer, message: Leave) -> None:
        for place in message.places:
            tree = self._trees.get(place)
            if tree is not None and sender.id in tree.children:
                self._drop(tree, sender.id)

    def beat(self, sender: Peer, message: Beat) -> None:
        strangers = [item.place for item in message.items if not self._beaten(sender, item)]
        if strangers:
            self._state.tell(sender, Leave(tuple(strangers)))

    def _beaten(self, sender: Peer, item: Branch) -> bool:
        """Whether the sender is the parent of this peer now."""
        tree = self._trees.get(item.place)
        if tree is None or tree.root:
            return False
        parent = tree.parent
        if self._state.me.id in item.path:
            self._state.counters.loops += 1
            if parent is not None and parent.id == sender.id:
                self._orphan(tree)
            return False
        if parent is None:
            self._attach(tree, sender, item.path)
        elif parent.id == sender.id:
            if tree.beaten(item.path, self._state.clock.now):
                # Loops are found by the path: if it waited for the next round, each level would add a delay.
                self._tell_children(tree)
        elif len(item.path) == 1 and len(tree.path) == 1:
            # Two peers beat as the root: the later of them has taken over.
            self._state.tell(parent, Leave((tree.place,)))
            self._attach(tree, sender, item.path)
        else:
            return False
        return True

    def heard(self, tree: Tree, sender: Peer) -> None:
        """A multicast has come from this peer, which stands for a heartbeat."""
        # A peer without a parent sends no Leave: an earlier parent that lives may still reach it.
        if not tree.heard(sender, self._state.clock.now) and tree.attached:
            self._state.tell(sender, Leave((tree.place,)))

    def gone(self, sender: Peer, places: tuple[str, ...]) -> None:
        for place in places:
            tree = self._trees.get(place)
            if tree is not None and tree.has_parent(sender):
                self._orphan(tree)

    def beat_all(self) -> None:
        """Send heartbeats to the children; find parents and children that have fallen silent."""
        now, config = self._state.clock.now, self._state.trees
        # One message for each peer, however many trees it shares with this peer.
        batches: dict[Peer, list[Branch]] = {}
        for tree in self:
            if tree.parent is not None and tree.heard_at + config.silence_s < now:
                self._orphan(tree)
            for peer_id, child in list(tree.children.items()):
                if child.until < now:
                    self._state.counters.expired += 1
                    self._drop(tree, peer_id)
                elif child.due(now, config.heartbeat_s / 2):
                    # With the whole period, a message just after a round would delay the next by two periods.
                    child.heartbeat(now)
                    batches.setdefault(child.peer, []).append(self._branch(tree))
        for peer, branches in batches.items():
            for start in range(0, len(branches), MOST_AT_ONCE):
                self._state.tell(peer, Beat(tuple(branches[start : start + MOST_AT_ONCE])))

    def stay_all(self) -> None:
        """Renew the leases of this peer at its parents."""
        batches: dict[Peer, list[str]] = {}
        for tree in self:
            if tree.parent is not None:
                batches.setdefault(tree.parent, []).append(tree.place)
        for peer, places in batches.items():
            for start in range(0, len(places), MOST_AT_ONCE):
                self._state.tell(peer, Stay(tuple(places[start : start + MOST_AT_ONCE])))
