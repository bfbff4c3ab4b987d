"""The index of retained topics finds exactly the matching ones, in pieces of any size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.matching.topics import matches
from ringmq.peer.engines.partitioned.coordinating.retained_index import RetainedIndex

level = st.sampled_from(["a", "b", "", "$s", "a0", "a."])
topics = st.lists(level, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.tuples(
    st.lists(st.one_of(level, st.just("+")), max_size=4), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join([*parts[0], *parts[1]])).filter(bool)  # fmt: skip


@given(st.sets(topics, max_size=12), filters, st.integers(1, 5))
def test_all_matching_topics_are_found_once(names: set[str], topic_filter: str, most: int) -> None:
    index = RetainedIndex()
    for number, name in enumerate(names):
        index.add(name, number % 4096)
    found: list[str] = []
    after: str | None = None
    while True:
        piece, after = index.look_through(topic_filter, after, most)
        assert len(piece) <= most
        found += [name for name, _ in piece]
        if after is None:
            break
    assert sorted(found) == sorted(name for name in names if matches(topic_filter, name))


def test_a_removed_topic_has_no_partition() -> None:
    index = RetainedIndex()
    index.add("a", 7)
    assert (index.partition_of("a"), len(index)) == (7, 1)
    index.remove("a")
    index.remove("a")
    assert (index.partition_of("a"), len(index)) == (None, 0)
