"""A ring at full size: what each would know is right, and only what it would know."""

from collections import defaultdict

import pytest

from ringmq.experiments.simulator import filled
from ringmq.experiments.simulator.filled import FilledRing, LostWayError
from ringmq.overlay.core.ids import ID_BITS, SPACE, Id, digit, shared_digits
from ringmq.overlay.core.messages import Peer


def far(key: int, point: int) -> tuple[int, bool]:
    up, down = (point - key) % SPACE, (key - point) % SPACE
    return min(up, down), up < down


RINGS = [FilledRing(nodes, seed=3, half=4) for nodes in (1, 2, 8, 9, 10, 40, 500)]


def test_points_are_sorted_and_the_seed_decides_them() -> None:
    ring = RINGS[-1]
    assert ring.points == sorted(set(ring.points))
    assert len(ring) == 500
    assert FilledRing(500, seed=3).points == ring.points != FilledRing(500, seed=4).points
    assert all(ring.points[ring.place(point)] == point for point in ring.points)


@pytest.mark.parametrize("ring", RINGS, ids=len)
def test_leaf_sets_hold_the_nearest(ring: FilledRing) -> None:
    count = len(ring)
    for place, point in enumerate(ring.points):
        leaves = [peer.id for peer in ring.leaves(place)]
        assert point not in leaves
        assert len(set(leaves)) == len(leaves) == min(count - 1, 2 * ring.half)
        if count > 1:
            assert {ring.points[place - 1], ring.points[(place + 1) % count]} <= set(leaves)
        if count == 500:
            assert set(leaves) == {ring.points[(place + step) % count] for step in range(-4, 5)} - {point}


@pytest.mark.parametrize("per_slot", [1, 2])
def test_tables_have_as_many_for_each_slot_as_there_are(per_slot: int) -> None:
    ring = FilledRing(500, seed=3, half=4, entries=per_slot)
    for place in range(0, 500, 25):
        point = ring.points[place]
        fitting, entries = defaultdict(set), defaultdict(set)
        for other in ring.points:
            if other != point:
                row = shared_digits(point, other)
                fitting[row, digit(other, row)].add(other)
        found = [peer.id for peer in ring.entries(place)]
        for other in found:
            row = shared_digits(point, other)
            entries[row, digit(other, row)].add(other)
        assert len(set(found)) == len(found)
        assert {slot: len(each) for slot, each in entries.items()} == {
            slot: min(per_slot, len(each)) for slot, each in fitting.items()
        }
        assert found == [peer.id for peer in ring.entries(place)], "the same each time"


def test_a_view_is_what_the_peer_knows() -> None:
    ring = RINGS[-1]
    leaves, table = ring.view(7)
    assert leaves.center == table.center == ring.points[7]
    assert leaves.ids == {peer.id for peer in ring.leaves(7)}
    assert {peer.id for peer in table} == {peer.id for peer in ring.entries(7)}
    assert ring.view(7)[0] is leaves


def test_views_are_not_kept_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filled, "KEPT_VIEWS", 3)
    ring = FilledRing(20, seed=1)
    for place in range(20):
        ring.view(place)
        assert len(ring._views) <= 3


@pytest.mark.parametrize("ring", RINGS, ids=len)
def test_the_owner_is_the_nearest_that_lives(ring: FilledRing) -> None:
    dead = frozenset(ring.points[1::2])
    keys = [*ring.points, 0, SPACE - 1, *(point + 1 for point in ring.points), *range(1 << 124, SPACE, 1 << 123)]
    for key in keys:
        for gone in (frozenset[Id](), dead):
            living = [point for point in ring.points if point not in gone]
            assert ring.owner(key, gone) == min(living, key=lambda point: far(key, point))


def test_walks_are_short_and_end_at_the_owner() -> None:
    ring = RINGS[-1]
    total = 0
    for number in range(300):
        key = Id((number * 0x9E3779B97F4A7C15F39CC0605CEDC834) % SPACE)
        end, hops = ring.walk(number, key)
        assert end == ring.owner(key)
        total += hops
    assert 1.0 < total / 300 < 3.0, "log16(500) is 2.2"


def test_a_walk_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = RINGS[1]
    one, other = (Peer(point, "h", 1, 0) for point in ring.points)
    monkeypatch.setattr(filled, "next_hop", lambda leaves, *_: other if leaves.center == one.id else one)
    with pytest.raises(LostWayError, match="still on its way after 65 hops"):
        ring.walk(0, Id(1 << ID_BITS - 1))
