"""The index finds exactly the filters that match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.experiments.simulator.filter_index import FilterIndex
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import check_filter, matches

LEVELS = st.sampled_from(["", "a", "b", "$x"])
TOPIC_NAMES = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTER_NAMES = st.lists(LEVELS | st.sampled_from(["+", "#"]), min_size=1, max_size=4).map("/".join)


def valid(topic_filter: str) -> bool:
    try:
        check_filter(topic_filter)
    except PacketError:
        return False
    return True


@given(st.lists(FILTER_NAMES.filter(valid)), st.data(), st.lists(TOPIC_NAMES, min_size=1))
def test_matching_agrees_with_the_reference(filters: list[str], data: st.DataObject, topics: list[str]) -> None:
    index: FilterIndex[int] = FilterIndex()
    items = dict(enumerate(filters))
    for item, inner in items.items():
        index.add(inner, item)
    removed = data.draw(st.sets(st.sampled_from(sorted(items)))) if items else set()
    for item in removed:
        index.remove(items.pop(item), item)
    for topic in topics:
        expected = [item for item, inner in items.items() if matches(inner, topic)]
        assert sorted(index.matching(topic)) == expected


def test_unknown_item_cannot_be_removed() -> None:
    index: FilterIndex[int] = FilterIndex()
    index.add("a", 1)
    index.add("a/#", 2)
    for inner, item in (("a", 2), ("a/#", 1), ("b", 1)):
        with pytest.raises(ValueError, match="not in list"):
            index.remove(inner, item)
