"""The routing table against a dictionary of lists."""

from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import BASE, DIGITS, ID_BITS, MASK, Id, digit, shared_digits
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.routing import RoutingTable

CENTER = Id(0x8123456789ABCDEF << 64 | 0xFEDCBA9876543210)
# Ids with prefixes of all lengths in common with the centre, few enough that they meet in their slots.
points = st.builds(
    lambda row, flip, rest: Id(CENTER ^ flip << (ID_BITS - 4 * (row + 1)) ^ (rest if row < DIGITS - 1 else 0)),
    st.one_of(st.integers(0, 3), st.integers(0, DIGITS - 1)),
    st.integers(1, 3),
    st.integers(0, 3),
)
peers = st.builds(lambda point, boot: Peer(point, "host", 1, boot), points, st.integers(0, 2))
changes = st.lists(st.tuples(st.sampled_from(["offer", "offer", "offer", "remove"]), peers), max_size=40)

Slots = dict[tuple[int, int], list[Peer]]


def slot_of(point: int) -> tuple[int, int]:
    row = next(place for place in range(DIGITS) if digit(point, place) != digit(CENTER, place))
    return row, digit(point, row)


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


def removed(slots: Slots, point: int) -> Peer | None:
    slot = slots.get(slot_of(point), [])
    entry = next((entry for entry in slot if entry.id == point), None)
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
def test_two_entries_a_slot_the_first_come_first(made: list[tuple[str, Peer]], point: Id) -> None:
    table, slots = after(made)
    entries = [entry for slot in slots.values() for entry in slot]
    assert sorted(table, key=lambda peer: peer.id) == sorted(entries, key=lambda peer: peer.id)
    assert len(table) == len(entries)
    assert (point in table) == (point in {entry.id for entry in entries})
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
def test_rows_for_another_are_those_it_can_use(made: list[tuple[str, Peer]], point: Id, start: int) -> None:
    table, _ = after(made)
    common = shared_digits(CENTER, point)
    rows = table.rows_for(point, start)
    assert rows == tuple(peer for row in range(start, common + 1) for peer in table.row(row))
    assert all(shared_digits(peer.id, point) >= start for peer in rows)


@given(changes)
def test_each_first_entry_gets_its_turn(made: list[tuple[str, Peer]]) -> None:
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
