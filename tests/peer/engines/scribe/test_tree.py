"""What one peer knows of one tree."""

from __future__ import annotations

from ringmq.peer.engines.scribe.places import key_of_place
from ringmq.peer.engines.scribe.tree import Tree
from tests.peer.engines.scribe.alone import peer_at


def test_a_tree_is_needed_for_own_filters_or_for_children() -> None:
    tree = Tree("a/#", 10)
    assert tree.key == key_of_place("a/#")
    assert not tree.needed
    tree.enter()
    assert tree.needed
    assert tree.own
    assert not tree.exit()
    child = peer_at(3)
    assert tree.adopt(child, 1.0)
    assert tree.needed
    assert not tree.own
    assert tree.peers() == (child,)


def test_the_depth_is_the_way_to_the_root() -> None:
    tree = Tree("a", 10)
    assert tree.depth == 0
    tree.path = (peer_at(1).id, peer_at(2).id)
    assert tree.depth == 2
