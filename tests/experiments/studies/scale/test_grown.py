"""A ring that was grown by joins has exact leaf sets, and routing tables with the peers that each peer met."""

from __future__ import annotations

import pytest

from ringmq.experiments.studies.harness.plan import ids
from ringmq.experiments.studies.scale import grown as scale_grown
from ringmq.experiments.studies.scale.grown import grown_ring
from ringmq.experiments.studies.scale.multicast import LinkModel, known_ring, tree
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.scribe.places import key_of_place

LINKS = LinkModel(Peer(Id(0), "127.0.0.1", 20_000, 1), (0.001, 0.010), 1, recorded=False)
IDS = ids(1, 50)


def test_grown_ring_has_the_leaf_sets_of_a_filled_ring() -> None:
    grown, filled = grown_ring(IDS, LINKS, 1), known_ring(IDS, 1)
    assert grown.ids == filled.ids == sorted(IDS)
    for position in range(len(IDS)):
        (leaves, table), (exact, _) = grown.view(position), filled.view(position)
        assert leaves.center == table.center == grown.ids[position]
        assert leaves.ids == exact.ids
    assert any({*grown.view(position)[1]} != {*filled.view(position)[1]} for position in range(len(IDS)))


def test_trees_lead_to_the_owner() -> None:
    ring, key = grown_ring(IDS, LINKS, 1), key_of_place("topic-1")
    root, children = tree(ring, range(50), key)
    assert ring.ids[root] == ring.owner(key)
    inner = sorted(child for siblings in children.values() for child in siblings)
    assert inner == [position for position in range(50) if position != root]


def test_the_same_seed_gives_the_same_ring() -> None:
    first, again = grown_ring(IDS[:40], LINKS, 1), grown_ring(IDS[:40], LINKS, 1)
    assert all([*first.view(position)[1]] == [*again.view(position)[1]] for position in range(40))


def test_peers_that_do_not_become_a_ring_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale_grown, "GROW_S", 0.001)
    with pytest.raises(AssertionError, match=f"{scale_grown.AT_ONCE} peers did not become one ring"):
        grown_ring(IDS, LINKS, 1)
