"""The routing table against a dictionary of lists; the next hop: progress at each hop, and the owner at the end."""

from itertools import pairwise
from random import Random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringmq.experiments.simulator.filled import FilledRing
from ringmq.overlay.core.ids import BASE, DIGITS, ID_BITS, MASK, Id, digit, nearness, shared_digits
from ringmq.overlay.core.leaf_set import LeafSet
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.routing import RoutingTable, next_hop

CENTER = Id(0x8123456789ABCDEF << 64 | 0xFEDCBA9876543210)
# Ids with prefixes of all lengths in common with the centre, few enough that they meet in their slots.
points = st.builds(
    lambda row, flip, rest: Id(CENTER ^ flip << (ID_BITS - 4 * (row + 1)) ^ (rest if row < DIGITS - 1 else 0)),
    st.one_of(st.integers(0, 3), st.integers(0, DIGITS - 1)),
    st.integers(1, 3),
    st.integers(0, 3),
)
peers = st.builds(lambda peer_id, boot: Peer(peer_id, "host", 1, boot), points, st.integers(0, 2))
changes = st.lists(st.tuples(st.sampled_from(["offer", "offer", "offer", "remove"]), peers), max_size=40)

Slots = dict[tuple[int, int], list[Peer]]


def slot_of(peer_id: int) -> tuple[int, int]:
    row = next(place for place in range(DIGITS) if digit(peer_id, place) != digit(CENTER, place))
    return row, digit(peer_id, row)


def offered(slots: Slots, peer: Peer) -> bool:
    slot = slots.setdefault(slot_of(peer.id), [])
    for place, entry in enumerate(slot):
        if entry.id == peer.id:
            slot[place] = max(entry, peer, key=lambda each: each.boot)
            return peer.boot > entry.boot
    if len(slot) < 2:
        slot.append(peer)
        return True
    return False


def removed(slots: Slots, peer_id: int) -> Peer | None:
    slot = slots.get(slot_of(peer_id), [])
    entry = next((entry for entry in slot if entry.id == peer_id), None)
    if entry is not None:
        slot.remove(entry)
    return entry


def after(made: list[tuple[str, Peer]]) -> tuple[RoutingTable, Slots]:
    table = RoutingTable(CENTER)
    slots: Slots = {}
    for what, peer in made:
        if what == "offer":
            assert table.offer(peer) == offered(slots, peer)
        else:
            assert table.remove(peer.id) == removed(slots, peer.id)
    return table, {slot: entries for slot, entries in slots.items() if entries}


@given(changes, points)
def test_two_entries_a_slot_the_first_come_first(made: list[tuple[str, Peer]], peer_id: Id) -> None:
    table, slots = after(made)
    entries = [entry for slot in slots.values() for entry in slot]
    assert sorted(table, key=lambda peer: peer.id) == sorted(entries, key=lambda peer: peer.id)
    assert len(table) == len(entries)
    assert (peer_id in table) == (peer_id in {entry.id for entry in entries})
    for row in range(DIGITS):
        assert table.row(row) == tuple(slots[row, column][0] for column in range(BASE) if (row, column) in slots)


@given(changes, points, st.data())
def test_towards_a_key_is_one_digit_farther(made: list[tuple[str, Peer]], key: Id, data: st.DataObject) -> None:
    table, slots = after(made)
    everybody = [entry.id for entry in table]
    without = data.draw(st.sets(st.sampled_from(everybody))) if everybody else set()
    usable = [entry for entry in slots.get(slot_of(key), []) if entry.id not in without]
    ahead = table.towards(key, without)
    assert ahead == (usable[0] if usable else None)
    if ahead is not None:
        assert shared_digits(ahead.id, key) > shared_digits(CENTER, key)
    else:
        longer = [p for p in everybody if p not in without and shared_digits(p, key) > shared_digits(CENTER, key)]
        assert longer == []


@given(changes, points, st.integers(0, DIGITS))
def test_rows_for_a_peer_end_at_the_common_prefix(made: list[tuple[str, Peer]], peer_id: Id, start: int) -> None:
    table, _ = after(made)
    common = shared_digits(CENTER, peer_id)
    rows = table.rows_for(peer_id, start)
    assert rows == tuple(peer for row in range(start, common + 1) for peer in table.row(row))
    assert all(shared_digits(peer.id, peer_id) >= start for peer in rows)


@given(changes)
def test_probing_rotates_through_all_first_entries(made: list[tuple[str, Peer]]) -> None:
    table, slots = after(made)
    if not slots:
        assert table.next_in_turn() is None
        return
    for _ in range(2):
        turns = {table.next_in_turn() for _ in slots}
        assert turns == {(row, entries[0]) for (row, _), entries in slots.items()}


def test_the_centre_has_no_entry() -> None:
    table = RoutingTable(CENTER)
    me = Peer(CENTER, "host", 1, 9)
    assert not table.offer(me)
    assert table.remove(CENTER) is None
    assert table.towards(CENTER) is None
    assert table.rows_for(CENTER, 0) == ()
    assert len(table) == 0


def test_the_centre_is_not_in_its_table() -> None:
    assert CENTER not in RoutingTable(CENTER)


def test_ids_of_the_last_row() -> None:
    table = RoutingTable(CENTER)
    for flip in range(1, BASE):
        assert table.offer(Peer(Id(CENTER ^ flip), "host", 1, 0))
    assert len(table.row(DIGITS - 1)) == BASE - 1
    assert table.towards(CENTER ^ 5) == Peer(Id(CENTER ^ 5), "host", 1, 0)
    assert table.towards(CENTER ^ MASK) is None


# Next hop

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
    for place, peer_id in enumerate(ring.ids):
        run = run + 1 if place not in (0, keep) and run < HALF - 1 and random.random() < 0.5 else 0
        if run:
            dead.append(peer_id)
    return frozenset(dead)


def thinned(ring: FilledRing, place: int, random: Random) -> tuple[LeafSet, RoutingTable]:
    """The view of a peer whose routing table lacks most entries."""
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
            living = [peer_id for peer_id in (*leaves.ids, here) if peer_id not in without]
            assert min(living, key=lambda peer_id: nearness(key, peer_id)) == here
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
        for first, other in pairwise([leaves.center, *(peer.id for peer in leaves.clockwise)]):
            key = Id(first + ((other - first) & MASK) // 3 & MASK)
            peer = next_hop(leaves, table, key)
            assert (leaves.center if peer is None else peer.id) == first


def test_a_key_far_off_takes_the_table_before_the_leaf_set() -> None:
    leaves, table = LeafSet(Id(0), 1), RoutingTable(Id(0))
    leaves.fill([Peer(Id(1), "a", 1, 0), Peer(Id(MASK), "b", 1, 0)])
    far = Peer(Id(0x80 << 120), "c", 1, 0)
    table.offer(far)
    assert next_hop(leaves, table, Id(0x8F << 120)) == far
    assert next_hop(leaves, table, Id(0x8F << 120), {far.id}) == Peer(Id(MASK), "b", 1, 0)


def test_without_the_next_digit_a_nearer_peer_with_the_same_prefix_is_next() -> None:
    center = Id(0x40 << 120)
    leaves, table = LeafSet(center, 1), RoutingTable(center)
    leaves.fill([Peer(Id(center + 1), "a", 1, 0), Peer(Id(center - 1), "b", 1, 0)])
    nearer = Peer(Id(0x47 << 120), "c", 1, 0)
    table.offer(nearer)
    assert next_hop(leaves, table, Id(0x4A << 120)) == nearer, "nobody with the prefix 4A is known"


def test_without_the_next_digit_no_peer_with_a_shorter_prefix_is_next() -> None:
    center, key = Id(0x40 << 120), Id(0x4F << 120)
    leaves, table = LeafSet(center, 1), RoutingTable(center)
    leaves.fill([Peer(Id(center + 1), "a", 1, 0), Peer(Id(center - 1), "b", 1, 0)])
    across, behind = Peer(Id(0x50 << 120), "c", 1, 0), Peer(Id(0x47 << 120), "d", 1, 0)
    table.offer(across)
    assert next_hop(leaves, table, key) == Peer(Id(center + 1), "a", 1, 0), "who is across knows no better"
    table.offer(behind)
    assert next_hop(leaves, table, key) == behind


def test_a_peer_alone_has_no_next_hop() -> None:
    assert next_hop(LeafSet(Id(7)), RoutingTable(Id(7)), Id(1 << (ID_BITS - 1))) is None
