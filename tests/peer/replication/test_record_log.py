"""A book of records: equal whatever the order they came in, and able to tell what changed since."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.coordinated.messages import Kind, Record
from ringmq.peer.replication.record_log import RecordLog

records = st.builds(
    lambda kind, name, point, number, gone, confirmed: Record(
        kind, name, Peer(Id(point), "h", 1, 0) if kind in (Kind.ENTRY, Kind.PUBLISHER) else None, (0, number), gone,
        confirmed,
    ),
    st.sampled_from(Kind), st.sampled_from("ab"), st.integers(1, 2), st.integers(0, 3), st.booleans(), st.booleans(),
)  # fmt: skip


@given(st.lists(records), st.randoms(use_true_random=False))
def test_merging_does_not_depend_on_the_order(many: list[Record], random: object) -> None:
    books = [RecordLog(), RecordLog()]
    for book in books:
        for record in many:
            book.put(record)
        random.shuffle(many)  # type: ignore[attr-defined]
    assert {record.key: record for record in books[0]} == {record.key: record for record in books[1]}


@given(st.lists(records), st.lists(records))
def test_a_follower_that_is_told_the_changes_is_a_copy(before: list[Record], after: list[Record]) -> None:
    book, copy = RecordLog(), RecordLog()
    for record in before:
        book.put(record)
    position = book.position
    copy.replace(book.since(0), position)
    for record in after:
        book.put(record)
    changes = book.since(position)
    assert len(changes) <= len(after)
    for record in changes:
        copy.put(record)
    assert {record.key: record for record in copy} == {record.key: record for record in book}
    assert book.since(book.position) == []


def test_publishers_need_not_know_what_is_not_on_their_lists() -> None:
    book, peer = RecordLog(), Peer(Id(1), "h", 1, 0)
    book.put(Record(Kind.ENTRY, "a", peer, (0, 1), False))
    listed = book.listed
    assert listed == book.position == book.position_of((Kind.ENTRY, "a", 1))
    book.put(Record(Kind.PUBLISHER, "", peer, (0, 1), False))
    book.put(Record(Kind.ENTRY, "a", peer, (0, 1), False, True))
    assert book.listed == listed < book.position
    book.put(Record(Kind.ENTRY, "a", peer, (0, 1), True))
    assert book.listed == book.position
    book.forget((Kind.ENTRY, "a", 1))
    assert len(book) == 1
    assert book.get((Kind.ENTRY, "a", 1)) is None


def test_a_lease_that_ran_out_with_one_of_two_is_told_from_what_was_ended() -> None:
    here = Record(Kind.ENTRY, "a", Peer(Id(1), "h", 1, 0), (0, 2), False)
    book = RecordLog()
    assert not book.lapsed(here), "nothing is known"
    book.put(here)
    assert book.lapsed(here.ended())
    assert not book.lapsed(here)
    assert not book.lapsed(Record(Kind.ENTRY, "a", here.peer, (0, 3), True)), "it was unsubscribed"
    note = Record(Kind.NOTE, "b", None, (0, 2), False)
    book.put(note)
    assert not book.lapsed(note.ended()), "only entries have one owner, who numbers them"
