"""Records merge by rank in any order, and digests are equal exactly if live records are."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.replication.partition_store import PartitionStore
from ringmq.peer.replication.record import Epoch, RecordKind, SharedRecord

HOMES = [Peer(Id(number), f"10.0.0.{number}", 4883, number) for number in (1, 2)]
EPOCHS_OF_BOTH = [Epoch(number, home.id) for home in HOMES for number in (0, 1, 2)]


def entry(name: str, home: int, count: int, gone: bool = False) -> SharedRecord:
    return SharedRecord(RecordKind.ENTRY, name, HOMES[home], (HOMES[home].boot, count), gone)


def retained(name: str, stamp: int, gone: bool = False) -> SharedRecord:
    return SharedRecord(RecordKind.RETAINED, name, None, (stamp, 7), gone, body=b"" if gone else b"x")


RECORDS = st.one_of(
    st.builds(entry, st.sampled_from("ab"), st.integers(0, 1), st.integers(1, 3), st.booleans()),
    st.builds(retained, st.sampled_from("ab"), st.integers(1, 3), st.booleans()),
)


def store_of(records: list[SharedRecord]) -> PartitionStore:
    store = PartitionStore(lambda: Peer(Id(9), "h", 1, 1), lambda partition, before, after: None)
    for now, record in enumerate(records):
        store.take(5, record, float(now))
    return store


def live(store: PartitionStore) -> set[tuple[object, ...]]:
    records = store.records(5).values()
    return {(record.key, record.number, record.confirmed) for record in records if not record.gone}


@given(st.lists(RECORDS, max_size=12).flatmap(lambda records: st.tuples(st.just(records), st.permutations(records))))
def test_order_does_not_matter(both: tuple[list[SharedRecord], list[SharedRecord]]) -> None:
    first, second = store_of(both[0]), store_of(both[1])
    assert dict(first.records(5)) == dict(second.records(5))
    assert first.digest(5) == second.digest(5)


@given(st.lists(RECORDS, max_size=8), st.lists(RECORDS, max_size=8))
def test_digests_are_equal_exactly_if_live_records_are(first: list[SharedRecord], second: list[SharedRecord]) -> None:
    one_store, other_store = store_of(first), store_of(second)
    assert (one_store.digest(5) == other_store.digest(5)) == (live(one_store) == live(other_store))


@settings(max_examples=200)
@given(st.lists(st.one_of(RECORDS, st.sampled_from(["digest", "forget", "drop"])), max_size=20))
def test_digest_follows_changes_and_changes_are_reported_in_a_chain(steps: list[SharedRecord | str]) -> None:
    reported: dict[object, list[tuple[object, object]]] = {}

    def changed(partition: int, before: SharedRecord | None, after: SharedRecord | None) -> None:
        record = after or before
        assert record is not None
        reported.setdefault(record.key, []).append((before, after))

    store = PartitionStore(lambda: Peer(Id(9), "h", 1, 1), changed)
    for step in steps:
        if isinstance(step, SharedRecord):
            store.take(5, step, 0.0)
        elif step == "digest":
            store.digest(5)
        elif step == "forget":
            for key in list(store.records(5))[:1]:
                store.forget(5, key)
        else:
            store.drop(5)
    assert store.digest(5) == store_of(list(store.records(5).values())).digest(5)
    counted = Counter((record.kind, record.flags, record.gone) for _, record in store)
    assert +store.counts == counted, "the status does not count a million records"
    for key, changes in reported.items():
        assert changes[0][0] is None
        assert all(earlier[1] == later[0] for earlier, later in pairwise(changes))
        assert changes[-1][1] == store.get(5, key)  # type: ignore[arg-type]


def test_tombstones_are_forgotten_after_their_time_unless_the_record_came_back() -> None:
    store = store_of([])
    store.take(5, entry("a", 0, 1, gone=True), 10.0)
    store.take(5, entry("b", 0, 1, gone=True), 10.0)
    store.take(5, entry("b", 0, 2), 11.0)
    store.forget_gone(10.0)
    assert len(store.records(5)) == 2
    store.forget_gone(10.5)
    assert [record.name for record in store.records(5).values()] == ["b"]


def test_lapse_differs_from_an_unsubscribe_by_its_number() -> None:
    store = store_of([entry("a", 0, 1, gone=True)])
    assert store.lapsed(5, entry("a", 0, 1))
    assert not store.lapsed(5, entry("a", 0, 2))
    assert not store.lapsed(5, entry("a", 1, 1))


def test_records_of_a_home_share_its_peer() -> None:
    again = Peer(HOMES[0].id, HOMES[0].host, HOMES[0].port, HOMES[0].boot)
    store = store_of([entry("a", 0, 1)])
    store.take(5, SharedRecord(RecordKind.ENTRY, "b", again, (again.boot, 2), False), 0.0)
    homes = [record.home for record in store.records(5).values()]
    assert homes[0] is homes[1]


@given(
    st.dictionaries(st.integers(0, 9), st.integers(0, 5).map(lambda index: EPOCHS_OF_BOTH[index]), max_size=10),
    st.tuples(st.integers(0, 9), st.integers(0, 9)),
    st.sampled_from(range(6)),
)
def test_partitions_above_an_epoch_are_those_that_compare_higher(
    obeyed: dict[int, Epoch], ends: tuple[int, int], index: int
) -> None:
    store = PartitionStore(lambda: HOMES[0], lambda partition, before, after: None)
    for partition, epoch in obeyed.items():
        store.obey(partition, epoch)
    epoch = EPOCHS_OF_BOTH[index]
    first, last = sorted(ends)
    assert store.above(epoch, first, last) == [
        partition for partition in range(first, last + 1) if store.epoch(partition) > epoch
    ]
