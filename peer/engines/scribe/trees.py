"""The trees that this peer is in: JOINs, parents, children, heartbeats, and repair.

A JOIN goes towards the owner of the key. Each peer on its way takes it off, takes its sender as a child and, if it was
not in the tree, sends a JOIN of its own. So the tree is made of the reverse ways. Whoever hears nothing of its parent
joins again, and keeps what is below it.

Ways of Pastry do not go in circles, but those of different times can. Therefore heartbeats carry the peers above: who
finds itself among them leaves; who has the joining peer above itself lets its JOIN pass; and a JOIN that failed a few
times goes to the root itself. This part does not know who is the root of what: `roots` says so.
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
"""In the time of a child's lease, so that three lost in a row do no harm."""


class Trees:
    """One per core. Call `beat_all` every `heartbeat_s`, and `stay_all` STAYS times in `child_s`."""

    __slots__ = ("_carrier", "_state", "_trees", "attached", "vacant_until")

    def __init__(self, state: TreeContext, carrier: Carrier) -> None:
        self._state = state
        self._carrier = carrier
        self._trees: dict[str, Tree] = {}
        self.attached: Callable[[str], None] = lambda place: None
        """Called when there is a way from the root to here."""
        self.vacant_until: Callable[[str], float] = lambda place: 0.0
        """Until when publishers may believe that nobody is in a tree of which this peer is the root."""

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

    # What this peer wants itself

    def enter(self, place: str) -> bool:
        """There are filters of this peer at a place; whether it is reached already."""
        tree = self._open(place)
        tree.own = True
        if not tree.attached:
            self._seek(tree)
        return tree.attached

    def exit(self, place: str) -> None:
        """There are none any more."""
        tree = self._trees.get(place)
        if tree is not None:
            tree.own = False
            self._release(tree)

    def _release(self, tree: Tree) -> None:
        if tree.needed:
            return
        if tree.parent is not None:
            self._state.tell(tree.parent, Leave((tree.place,)))
        del self._trees[tree.place]

    # Towards the root

    def _seek(self, tree: Tree) -> None:
        if not tree.root and not tree.seeking:
            tree.seeking = True
            tree.failed = 0
            self._join(tree)

    def _join(self, tree: Tree) -> None:
        state = self._state
        tree.attempts += 1
        state.counters.joins += 1
        state.tell_owner(tree.key, Join(tree.place, state.me, tree.failed >= state.trees.patience))
        wait_s = min(state.config.slow_retry_s, state.config.retry_s * (1 << min(tree.failed, 6)))
        attempt = tree.attempts
        state.after(wait_s, lambda: self._join_again(tree, attempt))

    def _join_again(self, tree: Tree, attempt: int) -> None:
        if tree.seeking and tree.attempts == attempt and self._trees.get(tree.place) is tree:
            tree.failed += 1
            self._join(tree)

    def _orphan(self, tree: Tree) -> None:
        """Its parent is lost; what is below stays."""
        self._state.counters.orphaned += 1
        tree.parent = None
        tree.attached = False
        self._seek(tree)

    def lost(self, peer: Peer) -> None:
        """The ring suspects this peer: do not wait for its silence."""
        for tree in self:
            if tree.parent is not None and tree.parent.id == peer.id:
                self._orphan(tree)

    def _attach(self, tree: Tree, parent: Peer | None, path: tuple[Id, ...]) -> None:
        tree.parent, tree.path = parent, path
        tree.attached, tree.seeking = True, False
        tree.heard_at = self._state.clock.now
        self._tell_children(tree)
        self.attached(tree.place)

    # As the root

    def crown(self, place: str, children: tuple[Peer, ...] = ()) -> None:
        """This peer is the root of the tree, and is to have these children too."""
        tree = self._open(place)
        if tree.parent is not None:
            self._state.tell(tree.parent, Leave((place,)))
        tree.parent, tree.path = None, ()
        until = self._state.clock.now + self._state.trees.child_s
        for peer in children:
            if peer.id != self._state.me.id and peer.id not in tree.children:
                tree.children[peer.id] = Child(peer, until, acked=True)
        if not tree.root:
            tree.root, tree.seeking = True, False
            self._take_charge(tree)
        elif children and tree.attached:
            self._tell_children(tree)

    def _take_charge(self, tree: Tree) -> None:
        """Nobody is told that he is in the tree while publishers believe that nobody is."""
        if not tree.root or self._trees.get(tree.place) is not tree:
            return
        until = self.vacant_until(tree.place)
        if until > self._state.clock.now:
            self._state.after(until - self._state.clock.now, lambda: self._take_charge(tree))
        else:
            self._attach(tree, None, ())

    def uncrown(self, place: str) -> None:
        """Another is the root from now on; this peer stays in the tree as long as it is needed there."""
        tree = self._trees.get(place)
        if tree is not None and tree.root:
            tree.root = tree.attached = False
            self._seek(tree)

    # Children

    def take(self, place: str, peer: Peer) -> bool:
        """Take a peer as a child, if it is not above this one."""
        state, tree = self._state, self._trees.get(place)
        if tree is not None and (peer.id in tree.path or len(tree.path) >= MAX_HOPS - 1):
            return False
        tree = self._open(place)
        child = tree.children.get(peer.id)
        until = state.clock.now + state.trees.child_s
        if child is None or child.peer.boot < peer.boot:
            state.counters.taken += 1
            child = tree.children[peer.id] = Child(peer, until)
        child.until = until
        if tree.attached:
            self._tell(tree, child)
        else:
            self._seek(tree)
        return True

    def _tell(self, tree: Tree, child: Child) -> None:
        child.acked, child.told_at = True, self._state.clock.now
        self._state.tell(child.peer, Beat((self._branch(tree),)))

    def _tell_children(self, tree: Tree) -> None:
        for child in tree.children.values():
            self._tell(tree, child)

    def _branch(self, tree: Tree) -> Branch:
        return Branch(tree.place, (*tree.path, self._state.me.id))

    def _drop(self, tree: Tree, point: Id) -> None:
        del tree.children[point]
        self._carrier.drop(point, tree.place)
        self._release(tree)

    def stay(self, sender: Peer, message: Stay) -> None:
        until = self._state.clock.now + self._state.trees.child_s
        strangers = []
        for place in message.places:
            tree = self._trees.get(place)
            child = None if tree is None else tree.children.get(sender.id)
            if child is not None:
                child.until = until
            elif tree is None or not tree.attached or not self.take(place, sender):
                strangers.append(place)
        if strangers:
            self._state.tell(sender, Gone(tuple(strangers)))

    def leave(self, sender: Peer, message: Leave) -> None:
        for place in message.places:
            tree = self._trees.get(place)
            if tree is not None and sender.id in tree.children:
                self._drop(tree, sender.id)

    # Parents

    def beat(self, sender: Peer, message: Beat) -> None:
        strangers = [item.place for item in message.items if not self._beaten(sender, item)]
        if strangers:
            self._state.tell(sender, Leave(tuple(strangers)))

    def _beaten(self, sender: Peer, item: Branch) -> bool:
        """Whether the sender is our parent now."""
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
            tree.heard_at = self._state.clock.now
            if tree.path != item.path:
                tree.path = item.path
                self._tell_children(tree)
        elif len(item.path) == 1 and len(tree.path) == 1:
            # Two say that they are the root: the later one took over.
            self._state.tell(parent, Leave((tree.place,)))
            self._attach(tree, sender, item.path)
        else:
            return False
        return True

    def heard(self, tree: Tree, sender: Peer) -> None:
        """A multicast has come from this peer: it is as good as a heartbeat."""
        if tree.parent is not None and tree.parent.id == sender.id:
            tree.heard_at = self._state.clock.now
        elif tree.attached:
            self._state.tell(sender, Leave((tree.place,)))

    def gone(self, sender: Peer, places: tuple[str, ...]) -> None:
        for place in places:
            tree = self._trees.get(place)
            if tree is not None and tree.parent is not None and tree.parent.id == sender.id:
                self._orphan(tree)

    # Time

    def beat_all(self) -> None:
        """Tell the children that this peer lives; see which parents and which children do."""
        now, config = self._state.clock.now, self._state.trees
        fresh = now - config.heartbeat_s / 2
        batches: dict[Peer, list[Branch]] = {}
        for tree in self:
            if tree.parent is not None and tree.heard_at + config.silence_s < now:
                self._orphan(tree)
            for point, child in list(tree.children.items()):
                if child.until < now:
                    self._state.counters.expired += 1
                    self._drop(tree, point)
                elif child.acked and child.told_at <= fresh:
                    child.told_at = now
                    batches.setdefault(child.peer, []).append(self._branch(tree))
        for peer, branches in batches.items():
            for start in range(0, len(branches), MOST_AT_ONCE):
                self._state.tell(peer, Beat(tuple(branches[start : start + MOST_AT_ONCE])))

    def stay_all(self) -> None:
        """Tell the parents that this peer remains their child."""
        batches: dict[Peer, list[str]] = {}
        for tree in self:
            if tree.parent is not None:
                batches.setdefault(tree.parent, []).append(tree.place)
        for peer, places in batches.items():
            for start in range(0, len(places), MOST_AT_ONCE):
                self._state.tell(peer, Stay(tuple(places[start : start + MOST_AT_ONCE])))
