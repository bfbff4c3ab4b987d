"""A ring that has joined knows its neighbours exactly, and of the others those it met."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.plan import ids
from ringmq.experiments.studies.scale import grown as scale_grown
from ringmq.experiments.studies.scale.grown import grown_ring
from ringmq.experiments.studies.scale.multicast import Network, known_ring, tree
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.partitions import key_of_place

LINKS = Network(Peer(Id(0), "127.0.0.1", 20_000, 1), (0.001, 0.010), 1, recorded=False)
POINTS = ids(1, 50)


def test_leaf_sets_are_those_of_a_ring_that_was_there_before() -> None:
    grown, filled = grown_ring(POINTS, LINKS, 1), known_ring(POINTS, 1)
    assert grown.points == filled.points == sorted(POINTS)
    for place in range(len(POINTS)):
        (leaves, table), (exact, _) = grown.view(place), filled.view(place)
        assert leaves.center == table.center == grown.points[place]
        assert leaves.ids == exact.ids
    assert any({*grown.view(place)[1]} != {*filled.view(place)[1]} for place in range(len(POINTS)))


def test_trees_lead_to_the_owner() -> None:
    ring, key = grown_ring(POINTS, LINKS, 1), key_of_place("topic-1")
    root, children = tree(ring, range(50), key)
    assert ring.points[root] == ring.owner(key)
    assert sorted(child for its in children.values() for child in its) == [one for one in range(50) if one != root]


def test_the_same_seed_gives_the_same_ring() -> None:
    one, same = grown_ring(POINTS[:40], LINKS, 1), grown_ring(POINTS[:40], LINKS, 1)
    assert all([*one.view(place)[1]] == [*same.view(place)[1]] for place in range(40))


def test_peers_that_do_not_become_a_ring_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_grown, "GROW_S", 0.001)
    with pytest.raises(AssertionError, match=f"{scale_grown.AT_ONCE} peers did not become one ring"):
        grown_ring(POINTS, LINKS, 1)
