"""The tree of filters against the plain reading of the specification, and its worst case."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.matching.filter_trie import FilterTrie, Placements, placement_of
from ringmq.mqtt_front.matching.topics import MAX_LEVELS, matches

LEVEL = st.sampled_from(["", "a", "b", "$s"])
TOPICS = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.tuples(st.lists(st.one_of(LEVEL, st.just("+")), max_size=4), st.sampled_from(["#", "+", "a", "b"])).map(
    lambda parts: "/".join([*parts[0], parts[1]])
)


def filled(*filters: str) -> FilterTrie[str]:
    tree: FilterTrie[str] = FilterTrie()
    for topic_filter in filters:
        tree.put(topic_filter, topic_filter)
    return tree


@pytest.mark.parametrize(
    ("topic", "filters"),
    [
        ("a/b", ["a/b", "#", "a/#", "a/+", "+/b", "a/b/#"]),
        ("a", ["#", "a/#"]),
        ("$SYS/x", ["$SYS/#"]),
        ("x/$SYS", ["#"]),
        ("/b", ["#", "+/b"]),
    ],
)
def test_match(topic: str, filters: list[str]) -> None:
    tree = filled("a/b/#", "#", "+/b", "a/#", "$SYS/#", "a/+", "a/b", "x/y")
    assert sorted(tree.match(topic)) == sorted(filters)


def test_the_order_is_from_the_top() -> None:
    filters = ["a/b/#", "a/b", "+/b", "a/+", "a/#", "#"]
    assert filled(*filters).match("a/b") == filled(*reversed(filters)).match("a/b")


def test_get_and_replace() -> None:
    tree = filled("a", "a/+")
    tree.put("a/+", "other")
    assert (tree.get("a"), tree.get("a/+"), tree.get("a/#")) == ("a", "other", None)
    assert len(tree) == 2


@pytest.mark.parametrize("topic_filter", ["a/x", "a/#", "a"])
def test_removing_an_absent_entry(topic_filter: str) -> None:
    with pytest.raises(KeyError):
        filled("a/+").remove(topic_filter)


STEPS = st.lists(FILTERS, min_size=1, max_size=8).flatmap(
    lambda few: st.lists(st.tuples(st.booleans(), st.sampled_from(few)), max_size=40)
)


@given(STEPS, TOPICS)
def test_as_a_scan_of_all_filters_would(steps: list[tuple[bool, str]], topic: str) -> None:
    tree: FilterTrie[str] = FilterTrie()
    model: set[str] = set()
    for add, topic_filter in steps:
        if add:
            tree.put(topic_filter, topic_filter)
            model.add(topic_filter)
        elif topic_filter in model:
            tree.remove(topic_filter)
            model.discard(topic_filter)
        assert sorted(tree.match(topic)) == sorted(name for name in model if matches(name, topic))
    for topic_filter in model:
        tree.remove(topic_filter)
    assert tree._root.empty, "an empty branch stays"
    assert len(tree) == 0


@pytest.mark.parametrize(
    ("topic_filter", "placement"),
    [("a/b", 0), ("#", 0), ("+", 0b1), ("+/a", 0b1), ("+/b/#", 0b1), ("a/+", 0b10), ("+/a/+/#", 0b101), ("a+b", 0)],
)
def test_placement(topic_filter: str, placement: int) -> None:
    assert placement_of(topic_filter) == placement


def test_placements_are_counted_and_bounded() -> None:
    placements = Placements(most=2)
    for placement in (0, 1, 1, 2):
        assert placements.allows(placement)
        placements.add(placement)
    assert len(placements) == 2
    assert [placements.allows(placement) for placement in (0, 1, 2, 3)] == [True, True, True, False]
    placements.remove(1)
    placements.remove(0)
    assert not placements.allows(3)
    placements.remove(1)
    assert placements.allows(3)


class CountingDict(dict[str, Any]):
    """The children of a node; each look for a `+` is one visit."""

    visits = 0

    def get(self, key: str, default: Any = None) -> Any:
        CountingDict.visits += key == "+"
        return super().get(key, default)


def count_visits(tree: FilterTrie[str], topic: str) -> int:
    def watch(node: Any) -> None:
        for child in node.children.values():
            watch(child)
        node.children = CountingDict(node.children)

    watch(tree._root)
    CountingDict.visits = 0
    tree.match(topic)
    return CountingDict.visits


def test_no_more_visits_than_placements_and_levels() -> None:
    """All 2^8 filters of `a` and `+`, with different tails: as bad as can be."""
    filters = ["/".join([*levels, tail]) for levels in product("a+", repeat=8) for tail in ("x", "y", "b/#", "b/b/b")]
    tree = filled(*filters)
    placements = len({placement_of(topic_filter) for topic_filter in filters})
    topic = "/".join("a" * 8 + "b" * 20)
    assert placements == 2**8
    assert 2**8 < count_visits(tree, topic) <= placements * 28


def test_the_number_of_filters_does_not_count() -> None:
    few = ["a/+/c", "a/#", "+/b/c", "a/b/c/#"]
    many = [f"{level}/{number}/+/#" for level in "abc" for number in range(300)] + [f"a/b/c/{n}/#" for n in range(300)]
    assert count_visits(filled(*few, *many), "a/b/c") == count_visits(filled(*few), "a/b/c") == 6


def test_the_deepest_filter() -> None:
    wild = "/".join("+" * MAX_LEVELS)
    tree = filled(wild)
    assert tree.match("/".join("x" * MAX_LEVELS)) == [wild]
    tree.remove(wild)
    assert tree._root.empty
