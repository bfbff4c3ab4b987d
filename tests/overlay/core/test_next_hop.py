"""Where messages go next: progress at each hop, and the owner at the end."""

from itertools import pairwise
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringmq.experiments.simulator.filled import FilledRing
from ringmq.overlay.core.ids import ID_BITS, MASK, Id, nearness, shared_digits
from ringmq.overlay.core.leaf_set import LeafSet
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.next_hop import next_hop
from ringmq.overlay.core.routing import RoutingTable

HALF = 4
NODES = 300
RING = FilledRing(NODES, seed=5, half=HALF)
SMALL = FilledRing(2 * HALF + 3, seed=6, half=HALF)

places = st.integers(0, NODES - 1)
keys = st.one_of(
    st.integers(0, MASK),
    st.builds(lambda place, off: (RING.ids[place] + off) & MASK, places, st.integers(-2, 2)),
    st.builds(lambda place: RING.ids[place - 1] + RING.ids[place] >> 1, places),
).map(Id)
chances = st.randoms(use_true_random=False)


def some_dead(ring: FilledRing, random: Random, keep: int) -> frozenset[Id]:
    """Dead ones, in runs shorter than a side of the leaf set, so that nobody loses a whole side."""
    dead: list[Id] = []
    run = 0
    for place, point in enumerate(ring.ids):
        run = run + 1 if place not in (0, keep) and run < HALF - 1 and random.random() < 0.5 else 0
        if run:
            dead.append(point)
    return frozenset(dead)


def thinned(ring: FilledRing, place: int, random: Random) -> tuple[LeafSet, RoutingTable]:
    """What a peer knows whose routing table lacks most entries."""
    leaves, full = ring.view(place)
    table = RoutingTable(leaves.center)
    for peer in full:
        if random.random() < 0.3:
            table.offer(peer)
    return leaves, table


@settings(max_examples=150)
@given(places, keys, chances)
def test_each_hop_makes_progress(place: int, key: Id, random: Random) -> None:
    without = some_dead(RING, random, place)
    for leaves, table in (RING.view(place), thinned(RING, place, random)):
        peer = next_hop(leaves, table, key, without)
        here = leaves.center
        if peer is None:
            living = [point for point in (*leaves.ids, here) if point not in without]
            assert min(living, key=lambda point: nearness(key, point)) == here
            continue
        assert peer.id not in without
        before, after = shared_digits(here, key), shared_digits(peer.id, key)
        nearer = nearness(key, peer.id) < nearness(key, here)
        nearest_leaf = leaves.closest(key, without)
        assert after > before or (after == before and nearer) or (nearer and peer == nearest_leaf)


@settings(max_examples=150)
@given(places, keys, chances)
def test_every_way_ends_at_the_owner(start: int, key: Id, random: Random) -> None:
    assert RING.walk(start, key)[0] == RING.owner(key)
    dead = some_dead(RING, random, start)
    assert RING.walk(start, key, dead)[0] == RING.owner(key, dead)


@settings(max_examples=40)
@given(places, keys, chances)
def test_every_way_ends_at_the_owner_with_poor_tables(start: int, key: Id, random: Random) -> None:
    dead = some_dead(RING, random, start)
    here, way = start, [RING.ids[start]]
    while (peer := next_hop(*thinned(RING, here, random), key, dead)) is not None:
        assert peer.id not in way
        way.append(peer.id)
        here = RING.position(peer.id)
    assert way[-1] == RING.owner(key, dead)


@given(st.integers(0, len(SMALL) - 1), st.integers(0, MASK).map(Id))
@example(0, Id(0))
def test_a_ring_hardly_larger_than_a_leaf_set(start: int, key: Id) -> None:
    end, hops = SMALL.walk(start, key)
    assert end == SMALL.owner(key)
    assert hops <= 2


def test_a_covered_key_goes_straight_to_its_owner() -> None:
    for place in range(0, NODES, 7):
        leaves, table = RING.view(place)
        for one, other in pairwise([leaves.center, *(peer.id for peer in leaves.clockwise)]):
            key = Id(one + ((other - one) & MASK) // 3 & MASK)
            peer = next_hop(leaves, table, key)
            assert (leaves.center if peer is None else peer.id) == one


def test_a_key_far_off_takes_the_table_before_the_leaf_set() -> None:
    leaves, table = LeafSet(Id(0), 1), RoutingTable(Id(0))
    leaves.fill([Peer(Id(1), "a", 1, 0), Peer(Id(MASK), "b", 1, 0)])
    far = Peer(Id(0x80 << 120), "c", 1, 0)
    table.offer(far)
    assert next_hop(leaves, table, Id(0x8F << 120)) == far
    assert next_hop(leaves, table, Id(0x8F << 120), {far.id}) == Peer(Id(MASK), "b", 1, 0)


def test_the_rare_case_takes_whoever_is_nearer_with_no_shorter_prefix() -> None:
    center = Id(0x40 << 120)
    leaves, table = LeafSet(center, 1), RoutingTable(center)
    leaves.fill([Peer(Id(center + 1), "a", 1, 0), Peer(Id(center - 1), "b", 1, 0)])
    nearer = Peer(Id(0x47 << 120), "c", 1, 0)
    table.offer(nearer)
    assert next_hop(leaves, table, Id(0x4A << 120)) == nearer, "nobody with the prefix 4A is known"


def test_the_rare_case_takes_nobody_with_a_shorter_prefix() -> None:
    center, key = Id(0x40 << 120), Id(0x4F << 120)
    leaves, table = LeafSet(center, 1), RoutingTable(center)
    leaves.fill([Peer(Id(center + 1), "a", 1, 0), Peer(Id(center - 1), "b", 1, 0)])
    across, behind = Peer(Id(0x50 << 120), "c", 1, 0), Peer(Id(0x47 << 120), "d", 1, 0)
    table.offer(across)
    assert next_hop(leaves, table, key) == Peer(Id(center + 1), "a", 1, 0), "who is across knows no better"
    table.offer(behind)
    assert next_hop(leaves, table, key) == behind


def test_alone_one_is_the_nearest() -> None:
    assert next_hop(LeafSet(Id(7)), RoutingTable(Id(7)), Id(1 << (ID_BITS - 1))) is None
