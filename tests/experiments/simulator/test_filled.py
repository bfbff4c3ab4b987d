"""A ring at full size: exact leaf sets, complete routing tables, and walks that end at the owner."""

from collections import defaultdict

import pytest

from ringmq.experiments.simulator import filled
from ringmq.experiments.simulator.filled import FilledRing, LostWayError
from ringmq.overlay.core.ids import ID_BITS, SPACE, Id, digit, shared_digits
from ringmq.overlay.core.messages import Peer


def far(key: int, peer_id: int) -> tuple[int, bool]:
    up, down = (peer_id - key) % SPACE, (key - peer_id) % SPACE
    return min(up, down), up < down


RINGS = [FilledRing(nodes, seed=3, half=4) for nodes in (1, 2, 8, 9, 10, 40, 500)]


def test_ids_are_sorted_and_determined_by_the_seed() -> None:
    ring = RINGS[-1]
    assert ring.ids == sorted(set(ring.ids))
    assert len(ring) == 500
    assert FilledRing(500, seed=3).ids == ring.ids != FilledRing(500, seed=4).ids
    assert all(ring.ids[ring.position(peer_id)] == peer_id for peer_id in ring.ids)


@pytest.mark.parametrize("ring", RINGS, ids=len)
def test_leaf_set_has_the_nearest_peers_on_both_sides(ring: FilledRing) -> None:
    count = len(ring)
    for position, own_id in enumerate(ring.ids):
        leaves = [peer.id for peer in ring.leaves(position)]
        assert own_id not in leaves
        assert len(set(leaves)) == len(leaves) == min(count - 1, 2 * ring.half)
        if count > 1:
            assert {ring.ids[position - 1], ring.ids[(position + 1) % count]} <= set(leaves)
        if count == 500:
            assert set(leaves) == {ring.ids[(position + step) % count] for step in range(-4, 5)} - {own_id}


@pytest.mark.parametrize("per_slot", [1, 2])
def test_routing_table_fills_each_slot_as_far_as_peers_fit(per_slot: int) -> None:
    ring = FilledRing(500, seed=3, half=4, entries=per_slot)
    for position in range(0, 500, 25):
        own_id = ring.ids[position]
        fitting, entries = defaultdict(set), defaultdict(set)
        for other in ring.ids:
            if other != own_id:
                row = shared_digits(own_id, other)
                fitting[row, digit(other, row)].add(other)
        found = [peer.id for peer in ring.entries(position)]
        for other in found:
            row = shared_digits(own_id, other)
            entries[row, digit(other, row)].add(other)
        assert len(set(found)) == len(found)
        assert {slot: len(each) for slot, each in entries.items()} == {
            slot: min(per_slot, len(each)) for slot, each in fitting.items()
        }
        assert found == [peer.id for peer in ring.entries(position)], "the same each time"


def test_view_is_the_leaf_set_and_the_table_of_a_peer() -> None:
    ring = RINGS[-1]
    leaves, table = ring.view(7)
    assert leaves.center == table.center == ring.ids[7]
    assert leaves.ids == {peer.id for peer in ring.leaves(7)}
    assert {peer.id for peer in table} == {peer.id for peer in ring.entries(7)}
    assert ring.view(7)[0] is leaves


def test_number_of_kept_views_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filled, "KEPT_VIEWS", 3)
    ring = FilledRing(20, seed=1)
    for position in range(20):
        ring.view(position)
        assert len(ring._views) <= 3


@pytest.mark.parametrize("ring", RINGS, ids=len)
def test_owner_is_the_nearest_live_peer(ring: FilledRing) -> None:
    dead = frozenset(ring.ids[1::2])
    keys = [*ring.ids, 0, SPACE - 1, *(own_id + 1 for own_id in ring.ids), *range(1 << 124, SPACE, 1 << 123)]
    for key in keys:
        for gone in (frozenset[Id](), dead):
            living = [peer_id for peer_id in ring.ids if peer_id not in gone]
            assert ring.owner(key, gone) == min(living, key=lambda peer_id: far(key, peer_id))


def test_walks_are_short_and_end_at_the_owner() -> None:
    ring = RINGS[-1]
    total = 0
    for number in range(300):
        key = Id((number * 0x9E3779B97F4A7C15F39CC0605CEDC834) % SPACE)
        end, hops = ring.walk(number, key)
        assert end == ring.owner(key)
        total += hops
    assert 1.0 < total / 300 < 3.0, "log16(500) is 2.2"


def test_walk_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = RINGS[1]
    first, second = (Peer(peer_id, "h", 1, 0) for peer_id in ring.ids)
    monkeypatch.setattr(filled, "next_hop", lambda leaves, *_: second if leaves.center == first.id else first)
    with pytest.raises(LostWayError, match="still on its way after 65 hops"):
        ring.walk(0, Id(1 << ID_BITS - 1))
