"""The leaf set against brute force over all points that it was shown."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import MASK, SPACE, Id
from ringmq.overlay.core.leaf_set import HALF, LeafSet
from ringmq.overlay.core.messages import Peer

CENTER = Id(0x1234 << 112)
# Near the centre, around it, opposite of it, and anywhere: where ties and wraps are.
offsets = st.one_of(
    st.integers(1, 12),
    st.integers(SPACE - 12, MASK),
    st.integers((SPACE >> 1) - 3, (SPACE >> 1) + 3),
    st.integers(1, 63).map(lambda part: part << 122),
    st.integers(1, MASK),
)
halves = st.sampled_from([1, 2, 3, 4, 8])
keys = st.one_of(st.just(0), offsets).map(lambda offset: Id((CENTER + offset) & MASK))
steps = st.lists(st.tuples(st.booleans(), offsets), max_size=40)


def peer(peer_id: int, boot: int = 0) -> Peer:
    return Peer(Id(peer_id & MASK), "host", 1, boot)


def far(key: int, peer_id: int) -> tuple[int, bool]:
    """Sorts by closeness, the counterclockwise of two equally far first."""
    up, down = (peer_id - key) % SPACE, (key - peer_id) % SPACE
    return min(up, down), up < down


class Model:
    """A set of offsets, cut to the nearest of each side after each change."""

    def __init__(self, half: int) -> None:
        self.half = half
        self.offsets: list[int] = []

    def sides(self, offsets: Iterable[int]) -> tuple[list[int], list[int]]:
        """The nearest of each half of the circle; positions that one side cannot fill go to the other.

        Half of `half` is on each side wherever it stands, or all that there are.
        """
        ordered = sorted(set(offsets))
        fewest = min(max(1, self.half // 2), len(ordered) // 2)
        count = sum(offset < SPACE >> 1 for offset in ordered)
        count = min(max(count, fewest), len(ordered) - fewest)
        right, left = ordered[:count], ordered[count:]
        while len(right) + len(left) > 2 * self.half:
            if len(right) > self.half:
                right.pop()
            else:
                left.pop(0)
        return right, left

    def kept(self, offsets: Iterable[int]) -> list[int]:
        right, left = self.sides(offsets)
        return right + left

    @property
    def points(self) -> list[Id]:
        return [Id((CENTER + offset) & MASK) for offset in self.offsets]


def shown(half: int, changes: list[tuple[bool, int]]) -> tuple[LeafSet, Model]:
    """Both after the same changes, each checked on its way."""
    leaves, model = LeafSet(CENTER, half), Model(half)
    for adding, offset in changes:
        peer_id = (CENTER + offset) & MASK
        if adding:
            after = model.kept([*model.offsets, offset])
            belongs = offset in after and offset not in model.offsets
            assert leaves.admits(peer_id) == belongs
            if belongs:
                gone = set(model.offsets) - set(after)
                pushed_out = leaves.add(peer(peer_id))
                assert (set() if pushed_out is None else {(pushed_out.id - CENTER) & MASK}) == gone
                model.offsets = after
            elif offset not in model.offsets:
                with pytest.raises(ValueError, match="does not belong"):
                    leaves.add(peer(peer_id))
        else:
            removed = leaves.remove(peer_id)
            assert (removed is not None) == (offset in model.offsets)
            model.offsets = [kept for kept in model.offsets if kept != offset]
    return leaves, model


def filled(half: int, among: Iterable[int]) -> LeafSet:
    leaves = LeafSet(CENTER, half)
    for offset in among:
        if leaves.admits(CENTER + offset):
            leaves.add(peer(CENTER + offset))
    return leaves


@given(halves, steps)
def test_members_are_the_nearest_of_each_side(half: int, changes: list[tuple[bool, int]]) -> None:
    leaves, model = shown(half, changes)
    points = model.points
    assert [member.id for member in leaves] == [member.id for member in leaves.peers] == points
    assert leaves.ids == set(points)
    assert len(leaves) == len(points)
    assert leaves.full == (len(points) == 2 * half)
    assert [member.id for member in leaves.clockwise] == points[:half]
    assert [member.id for member in leaves.counterclockwise] == points[::-1][:half]
    assert leaves.successor == (peer(points[0]) if points else None)
    assert leaves.predecessor == (peer(points[-1]) if points else None)
    for peer_id in (*points, CENTER, (CENTER + 5) & MASK):
        assert (peer_id in leaves) == (peer_id in points)
        assert leaves.get(peer_id) == (peer(peer_id) if peer_id in points else None)
    assert not leaves.admits(CENTER)


@given(halves, steps, keys, st.integers(0, 9), st.data())
def test_who_is_nearest(half: int, changes: list[tuple[bool, int]], key: Id, count: int, data: st.DataObject) -> None:
    leaves, model = shown(half, changes)
    points = model.points
    without = data.draw(st.sets(st.sampled_from(points))) if points else set()
    for left_out in (set(), without):
        best = min({*points, CENTER} - left_out, key=lambda peer_id: far(key, peer_id))
        assert leaves.closest(key, left_out) == (None if best == CENTER else peer(best))
    nearest = sorted(points, key=lambda peer_id: far(key, peer_id))[:count]
    assert [member.id for member in leaves.nearest(key, count)] == nearest


@given(halves, steps, keys.filter(lambda key: key != CENTER))
def test_who_stands_before(half: int, changes: list[tuple[bool, int]], peer_id: Id) -> None:
    leaves, model = shown(half, changes)
    others = {*model.points, CENTER} - {peer_id}
    last = min(others, key=lambda other: (peer_id - other) % SPACE)
    assert leaves.before(peer_id) == (None if last == CENTER else peer(last))


@given(halves, steps)
def test_reach_ends_where_another_is_nearer(half: int, changes: list[tuple[bool, int]]) -> None:
    leaves, _ = shown(half, changes)
    back, forth = leaves.reach()
    assert leaves.closest((CENTER - back) & MASK) is leaves.closest((CENTER + forth) & MASK) is None
    if len(leaves):
        assert leaves.closest((CENTER - back - 1) & MASK) is not None
        assert leaves.closest((CENTER + forth + 1) & MASK) is not None
    else:
        assert back + forth + 1 == SPACE


@given(st.integers(1, MASK))
def test_neighbours_share_what_is_between_them(gap: int) -> None:
    low, high = LeafSet(CENTER), LeafSet(Id((CENTER + gap) & MASK))
    low.add(peer(high.center))
    high.add(peer(low.center))
    assert low.reach()[1] + high.reach()[0] == gap - 1, "each key between the two has one owner"
    assert high.reach()[1] + low.reach()[0] == SPACE - gap - 1


@given(halves, st.lists(offsets, max_size=24), keys)
def test_covered_keys_have_their_owner_in_the_set(half: int, ring: list[int], key: Id) -> None:
    leaves = filled(half, ring)
    everybody = {CENTER, *(Id((CENTER + offset) & MASK) for offset in ring)}
    owner = min(everybody, key=lambda peer_id: far(key, peer_id))
    if leaves.covers(key):
        assert owner in leaves.ids | {CENTER}
    assert all(leaves.covers(member) for member in leaves.ids)
    if leaves.full:
        right, left = Model(half).sides((member.id - CENTER) & MASK for member in leaves)
        assert leaves.covers(key) == (not right[-1] < ((key - CENTER) & MASK) < left[0])


@given(halves, steps, keys)
def test_a_set_that_is_not_full_covers_all_but_its_widest_gap(
    half: int, changes: list[tuple[bool, int]], key: Id
) -> None:
    leaves, model = shown(half, changes)
    if leaves.full:
        return
    stops = [0, *model.offsets, SPACE]
    gaps = [(after - before, before, after) for before, after in itertools.pairwise(stops)]
    width = max(gaps)[0]
    offset = (key - CENTER) & MASK
    inside = [gap for gap in gaps if gap[1] < offset < gap[2]]
    widest = [gap for gap in gaps if gap[0] == width]
    assert leaves.covers(key) or inside == [widest[0]]
    assert not leaves.covers(key) or inside != widest[:1]


def test_a_set_that_lost_one_side_to_the_other_does_not_cover_the_gap() -> None:
    leaves = filled(2, [1, 2, -1, -2])
    leaves.remove(CENTER + 1)
    leaves.add(peer(CENTER - 3))
    assert leaves.full
    assert not leaves.covers(CENTER + 1000), "nobody beyond the second clockwise has been heard of"


@pytest.mark.parametrize(
    ("members", "ends"),
    [
        ([], []),
        ([1], [1]),
        ([-1], [-1]),
        ([1, -1], [1, -1]),
        ([1, 2, -1], [-1]),
        ([2, -1, -2], [2]),
        ([1, 2, -1, -2], []),
        ([1, -1, -2, -3], [1]),
        ([1, 2, 3, -1], [-1]),
    ],
)
def test_sides_that_are_too_short(members: list[int], ends: list[int]) -> None:
    leaves = LeafSet(CENTER, 2)
    leaves.fill(peer(CENTER + offset) for offset in members)
    assert leaves.ragged_ends() == tuple(peer(CENTER + offset) for offset in ends)


@given(halves, steps, st.lists(offsets, max_size=8, unique=True), st.lists(offsets, max_size=8))
def test_rivals_are_those_that_would_stay(
    half: int, changes: list[tuple[bool, int]], candidates: list[int], others: list[int]
) -> None:
    leaves, model = shown(half, changes)
    kept = model.kept([*model.offsets, *candidates, *others])
    rivals = leaves.rivals([peer(CENTER + offset) for offset in candidates], [Id((CENTER + o) & MASK) for o in others])
    assert [(rival.id - CENTER) & MASK for rival in rivals] == [offset for offset in candidates if offset in kept]


@given(halves, st.lists(offsets, max_size=20, unique=True))
def test_filling_is_adding_all(half: int, members: list[int]) -> None:
    at_once = LeafSet(CENTER, half)
    at_once.fill(peer(CENTER + offset) for offset in [0, *members])
    assert at_once.peers == filled(half, members).peers
    assert at_once.ids == filled(half, members).ids


@given(halves, st.lists(offsets, max_size=12, unique=True), st.data())
def test_the_order_in_which_members_come_does_not_matter(half: int, ring: list[int], data: st.DataObject) -> None:
    assert filled(half, data.draw(st.permutations(ring))).peers == filled(half, ring).peers


def test_the_neighbours_are_members_wherever_they_are() -> None:
    leaves = filled(1, [-1, -2, -3])
    assert leaves.successor == peer(CENTER - 3)
    assert leaves.predecessor == peer(CENTER - 1)


def test_a_member_may_get_a_new_address() -> None:
    leaves = LeafSet(CENTER)
    leaves.add(peer(CENTER + 1))
    assert leaves.add(peer(CENTER + 1, boot=3)) is None
    assert leaves.peers == (peer(CENTER + 1, boot=3),)
    assert leaves.get(CENTER + 1) == peer(CENTER + 1, boot=3)


def test_the_view_of_the_members_is_a_value() -> None:
    leaves = filled(2, [1, 2, 3])
    before = leaves.peers
    leaves.remove(CENTER + 2)
    assert [(member.id - CENTER) & MASK for member in before] == [1, 2, 3]
    assert LeafSet(CENTER).half == HALF
