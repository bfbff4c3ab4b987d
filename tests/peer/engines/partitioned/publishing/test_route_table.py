"""The table of routes: it finds each home that the reference finds, in little memory."""

from __future__ import annotations

import random
import tracemalloc
from array import array
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ringmq.mqtt_front.matching.topics import MAX_LEVELS, matches
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.peer.engines.partitioned.item_codec import packed
from ringmq.peer.engines.partitioned.messages import Begun
from ringmq.peer.engines.partitioned.names import partition_of, partition_of_filter, prefixes_of, shape_of
from ringmq.peer.engines.partitioned.publishing.route_table import RouteChanges, RouteRows, RouteTable, shape_from
from ringmq.peer.messaging.shared_filters import inner_of, is_shared
from ringmq.peer.replication.space import PARTITIONS
from tests.peer.engines.partitioned.routes_of import CAME, EXPIRED, GONE, Change, peer_of, routes_of

EVERY = bytes([1]) * PARTITIONS
A, B, C = peer_of(1), peer_of(2), peer_of(3)


def applied(table: RouteTable, *changes: Change) -> RouteChanges:
    table.apply(RouteRows(routes_of(changes)), range(PARTITIONS))
    return table.settle()


def homes(table: RouteTable, topic: str) -> set[Peer]:
    matched = table.match(topic)
    assert matched is not None
    assert table.match(topic, EVERY) == matched, "both ways of a match agree"
    return {table.home_sets.peers[slot] for slot in matched[0]}


def groups(table: RouteTable, topic: str) -> dict[str, set[Peer]]:
    matched = table.match(topic)
    assert matched is not None
    assert table.match(topic, EVERY) == matched, "both ways of a match agree"
    return {name: {table.home_sets.peers[slot] for slot in slots} for name, slots in matched[1]}


levels = st.sampled_from(["", "a", "b", "$SYS", "é"])
topics = st.lists(levels, min_size=1, max_size=5).map("/".join).filter(bool)
inner_filters = st.builds(
    lambda parts, end: "/".join([*parts, *end]),
    st.lists(st.one_of(levels, st.just("+")), min_size=1, max_size=5),
    st.sampled_from([[], ["#"]]),
).filter(bool) | st.just("#")
filters = inner_filters | inner_filters.map(lambda inner: f"$share/g/{inner}")


@dataclass
class Reference:
    """Filters by name, matched by the text of the specification."""

    entries: set[tuple[str, Peer]] = field(default_factory=set)

    def homes(self, topic: str) -> set[Peer]:
        return {peer for name, peer in self.entries if not is_shared(name) and matches(name, topic)}

    def groups(self, topic: str) -> dict[str, set[Peer]]:
        found: dict[str, set[Peer]] = {}
        for name, peer in self.entries:
            if is_shared(name) and matches(inner_of(name), topic):
                found.setdefault(name, set()).add(peer)
        return found


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.lists(st.tuples(filters, st.sampled_from([A, B, C]), st.booleans()), max_size=20), max_size=4),
    st.lists(topics, min_size=1, max_size=6),
    st.lists(filters, max_size=2),
)
def test_a_match_finds_what_the_reference_finds(
    messages: list[list[tuple[str, Peer, bool]]], names: list[str], dropped: list[str]
) -> None:
    table, reference = RouteTable(), Reference()
    for message in messages:
        for name, peer, gone in message:
            (reference.entries.discard if gone else reference.entries.add)((name, peer))
        applied(table, *[(name, peer, GONE if gone else CAME) for name, peer, gone in message])
    for name in dropped:
        partition = partition_of_filter(name)
        table.drop(partition)
        reference.entries = {entry for entry in reference.entries if partition_of_filter(entry[0]) != partition}
    table.settle()
    for topic in names:
        assert homes(table, topic) == reference.homes(topic)
        assert groups(table, topic) == reference.groups(topic)
    for peer in (A, B, C):
        assert (peer.id in table.home_sets) == any(peer == home for _, home in reference.entries)
    for name, peer in reference.entries:
        applied(table, (name, peer, GONE))
    assert len(table) == 0
    assert table._depths == ()
    assert table.home_sets._numbers == {}


def test_a_change_names_the_topic_of_an_exact_filter_and_any_topic_for_a_wildcard() -> None:
    table = RouteTable()
    changes = applied(table, ("a/b", A, CAME))
    assert len(changes.exact) == 1
    assert not changes.wild
    assert applied(table, ("a/b", A, CAME)) == ([], False, [])
    assert applied(table, ("a/b", B, CAME)) == (changes.exact, False, [])
    assert applied(table, ("a/+", B, CAME)) == ([], True, [])
    assert applied(table, ("$share/g/a/b", B, CAME)) == (changes.exact, False, [])
    assert applied(table, ("a/b", B, GONE)) == (changes.exact, False, [])
    assert applied(table, ("a/c", B, GONE)) == ([], False, [])


def test_a_peer_leaves_with_its_last_route_and_it_matters_how_that_ended() -> None:
    table = RouteTable()
    applied(table, ("a", A, CAME), ("b", A, CAME), ("b", B, CAME), ("$share/g/b", C, CAME))
    assert applied(table, ("a", A, EXPIRED)).left == []
    assert applied(table, ("b", A, GONE)).left == [(A.id, False)]
    assert applied(table, ("b", B, EXPIRED), ("$share/g/b", C, EXPIRED)).left == [(B.id, True), (C.id, True)]


def test_a_partition_that_begins_again_with_the_same_homes_has_no_peer_that_leaves() -> None:
    table = RouteTable()
    applied(table, ("a/b", A, CAME), ("a/b", B, CAME))
    table.drop(partition_of("a/b"))
    changes = applied(table, ("a/b", A, CAME))
    assert changes.left == [(B.id, False)]
    assert changes.wild
    assert homes(table, "a/b") == {A}


def test_a_restarted_home_has_its_new_boot_in_all_routes() -> None:
    table = RouteTable()
    applied(table, ("a", A, CAME), ("b/#", A, CAME))
    again = peer_of(1, boot=2)
    changes = applied(table, ("a", again, CAME))
    assert changes.wild
    assert homes(table, "b/c") == {again}
    # A coordinator that has not heard of the restart yet.
    applied(table, ("c", A, CAME))
    assert homes(table, "c") == {again}


def test_slots_of_peers_are_used_again() -> None:
    table = RouteTable()
    for number in range(1, 100):
        applied(table, ("a", peer_of(number % 50 + 1), CAME))
        applied(table, ("a", peer_of(number % 50 + 1), GONE))
    assert len(table.home_sets.peers) == 1
    assert len(table.home_sets.sets) == 1


def test_a_topic_whose_partitions_are_not_all_trusted_has_no_match() -> None:
    table = RouteTable()
    needed = {partition_of(name) for name in prefixes_of("a/b/c")}
    for missing in needed:
        trusted = bytearray(EVERY)
        trusted[missing] = 0
        assert table.match("a/b/c", trusted) is None
    trusted = bytearray(PARTITIONS)
    for partition in needed:
        trusted[partition] = 1
    assert table.match("a/b/c", trusted) == ((), ())


def test_rows_of_partitions_that_are_not_accepted_change_nothing() -> None:
    table = RouteTable()
    table.apply(RouteRows(routes_of([("a", A, CAME), ("b", A, CAME)])), ())
    assert table.settle() == ([], False, [])
    assert len(table) == 0


def test_more_shapes_than_a_coordinator_admits_are_matched() -> None:
    table = RouteTable()
    names = ["x/" + "/".join("+" if number >> bit & 1 else "a" for bit in range(7)) for number in range(1, 128)]
    applied(table, *[(name, A, CAME) for name in names])
    topic = "x/" + "/".join("a" * 7)
    assert homes(table, topic) == {A}
    applied(table, *[(name, A, GONE) for name in names])
    assert homes(table, topic) == set()


def test_a_topic_of_most_levels_is_matched() -> None:
    table = RouteTable()
    topic = "/".join(["a"] * MAX_LEVELS)
    wild = ["/".join(["a"] * depth + ["#"]) for depth in range(MAX_LEVELS)]
    applied(table, *[(name, A, CAME) for name in wild], (f"{'a/' * (MAX_LEVELS - 1)}+", B, CAME))
    assert homes(table, topic) == {A, B}


@pytest.mark.parametrize("pattern", [b"\x00", b"\x00.+", b"\x00#+", b"\x00+x", b"\x80#"])
def test_a_wrong_shape_is_refused(pattern: bytes) -> None:
    with pytest.raises(ProtocolError):
        shape_from(pattern)
    with pytest.raises(ProtocolError):
        RouteRows(replace(routes_of([("a/+", A, CAME)]), patterns=(pattern,)))


def test_the_deepest_shape_is_read() -> None:
    deepest = "/".join(["a"] * (MAX_LEVELS - 1) + ["#"])
    assert shape_from(shape_of(deepest)).length == MAX_LEVELS - 1


def test_columns_that_do_not_fit_are_refused() -> None:
    message = routes_of([("a", A, CAME)])
    for wrong in (
        replace(message, shapes=b""),
        replace(message, shapes=packed(array("H", [1]))),
        replace(message, homes=packed(array("I", [1]))),
        replace(message, partitions=packed(array("H", [PARTITIONS]))),
        replace(message, fingerprints=b"123"),
    ):
        with pytest.raises(ProtocolError):
            RouteRows(wrong)
    assert len(RouteRows(routes_of([], [Begun(0, 9, 1)]))) == 0


def test_the_same_routes_at_once_and_one_by_one_are_equal() -> None:
    chance = random.Random(5)
    names = [f"{chance.choice('ab')}/{number % 40}{chance.choice(['', '/+', '/#'])}" for number in range(300)]
    rows = sorted({(name, chance.choice([A, B])) for name in names}, key=lambda row: partition_of_filter(row[0]))
    at_once, singly = RouteTable(), RouteTable()
    applied(at_once, *[(name, peer, CAME) for name, peer in rows])
    for name, peer in rows:
        applied(singly, (name, peer, CAME))
    assert len(at_once) == len(singly)
    for number in range(40):
        for topic in (f"a/{number}", f"b/{number}/x"):
            assert homes(at_once, topic) == homes(singly, topic)


@pytest.mark.parametrize(("count", "most_bytes"), [(10_000, 160), (200_000, 22)])
def test_a_filter_takes_few_bytes(count: int, most_bytes: float) -> None:
    """Two arrays hold 12 bytes a filter; each partition in use takes some 300 more."""
    chance = random.Random(7)
    fingerprints = sorted({chance.getrandbits(64) for _ in range(count)})
    rows = RouteRows(
        replace(
            routes_of([("a", A, CAME), ("a", B, CAME)]),
            partitions=packed(array("H", [fingerprint >> 52 for fingerprint in fingerprints])),
            fingerprints=packed(array("Q", fingerprints)),
            shapes=packed(array("H", [0] * count)),
            homes=packed(array("I", [fingerprint & 1 for fingerprint in fingerprints])),
            changes=bytes(count),
        )
    )
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        table = RouteTable()
        table.apply(rows, range(PARTITIONS))
        table.settle()
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(table) == count
    print(f"{used / count:.1f} bytes a filter")
    assert used / count < most_bytes


def test_ids_of_absent_peers_are_in_no_set() -> None:
    assert Id(5) not in RouteTable().home_sets
