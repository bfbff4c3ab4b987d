"""The tree of topics against the plain reading of the specification."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.matching.topic_trie import TopicTrie
from ringmq.mqtt_front.matching.topics import MAX_LEVELS, matches

LEVEL = st.sampled_from(["", "a", "b", "c", "$s"])
TOPICS = st.lists(LEVEL, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.one_of(
    TOPICS,
    st.tuples(st.lists(st.one_of(LEVEL, st.just("+")), max_size=4), st.sampled_from(["#", "+", "a"])).map(
        lambda parts: "/".join([*parts[0], parts[1]])
    ),
)


def filled(*topics: str) -> TopicTrie[int]:
    tree: TopicTrie[int] = TopicTrie()
    for number, topic in enumerate(topics):
        tree.put(topic, number)
    return tree


def nodes(tree: TopicTrie[int]) -> int:
    waiting, seen = [tree._root], 0
    while waiting:
        node = waiting.pop()
        seen += 1
        waiting += node.children.values()
    return seen


@pytest.mark.parametrize(
    ("topic_filter", "topics"),
    [
        ("#", ["a", "a/b", "a/b/c", "b", "/"]),
        ("a/#", ["a", "a/b", "a/b/c"]),
        ("+/b", ["a/b"]),
        ("a/b", ["a/b"]),
        ("a/x", []),
        ("+", ["a", "b"]),
        ("+/+", ["a/b", "/"]),
        ("+/#", ["a", "a/b", "a/b/c", "b", "/"]),
        ("$SYS/#", ["$SYS/a"]),
        ("$SYS/+", ["$SYS/a"]),
    ],
)
def test_match_and_remove(topic_filter: str, topics: list[str]) -> None:
    tree = filled("b/x/y", "a", "a/b", "a/b/c", "b", "$SYS/a", "/")
    tree.remove("b/x/y")
    found = tree.match(topic_filter)
    assert sorted(topic for topic, _ in found) == sorted(topics)
    assert all(tree.values[topic] == value for topic, value in found)
    for topic, value in found:
        assert tree.remove(topic) == value
    assert tree.match(topic_filter) == []
    assert len(tree) == 6 - len(topics)


def test_matches_come_in_the_order_of_the_branches() -> None:
    tree = filled("b/2", "a", "b/1", "b")
    assert [topic for topic, _ in tree.match("#")] == ["b", "b/2", "b/1", "a"]
    assert list(tree.values) == ["b/2", "a", "b/1", "b"]


def test_a_replaced_value_keeps_its_place() -> None:
    tree = filled("a", "b")
    tree.put("a", 7)
    assert list(tree.values.items()) == [("a", 7), ("b", 1)]
    assert tree.match("+") == [("a", 7), ("b", 1)]


def test_matches_are_a_new_list() -> None:
    tree = filled("a", "b", "c")
    for topic, _ in tree.match("#"):
        tree.remove(topic)
    assert len(tree) == 0


@pytest.mark.parametrize("topic_filter", ["#", "+/#", "+/+", "a/+", "a/#"])
def test_trie_may_change_between_two_steps(topic_filter: str) -> None:
    tree = filled(*[f"a/{number}" for number in range(20)])
    steps = tree.walk(topic_filter)
    found: set[str | None] = set()
    for _ in range(8):
        found.add(next(steps))
    for number in (0, 10, 19):
        tree.remove(f"a/{number}")
    tree.put("a/30", 30)
    tree.put("a/15/x", 31)
    tree.put("b/x", 32)
    found |= set(steps)
    stayed = {f"a/{number}" for number in range(20) if number not in (0, 10, 19)}
    assert stayed <= found
    assert found - stayed <= {None, "a/0", "a/30", "a/15/x", "b/x"}


def test_step_of_a_walk_visits_one_node() -> None:
    tree = filled(*[f"{number}/x/y" for number in range(50)])
    assert list(tree.walk("+/x/z")) == [None] * 101
    assert list(tree.walk("3/x/y")) == ["3/x/y"]
    assert list(tree.walk("3/x")) == [None]


def test_removing_an_absent_entry() -> None:
    tree = filled("a/b")
    assert tree.remove("a") is None
    assert tree.remove("a/b/c") is None
    assert tree.remove("a/b") == 0


def test_the_deepest_topic() -> None:
    deep = "/".join("x" * MAX_LEVELS)
    wild = "/".join("+" * MAX_LEVELS)
    tree = filled(deep)
    assert tree.match(wild) == [(deep, 0)]
    assert tree.remove(deep) == 0
    assert nodes(tree) == 1


STEPS = st.lists(TOPICS, min_size=1, max_size=8).flatmap(
    lambda few: st.lists(st.tuples(st.sampled_from(["put", "put", "remove"]), st.sampled_from(few)), max_size=40)
)


@given(STEPS, FILTERS)
def test_as_a_scan_of_all_topics_would(steps: list[tuple[str, str]], asked: str) -> None:
    tree: TopicTrie[int] = TopicTrie()
    model: dict[str, int] = {}
    for number, (step, topic) in enumerate(steps):
        if step == "put":
            tree.put(topic, number)
            model[topic] = number
        else:
            assert tree.remove(topic) == model.pop(topic, None)
        found = tree.match(asked)
        assert sorted(found) == sorted((name, value) for name, value in model.items() if matches(asked, name))
        assert list(tree.values.items()) == list(model.items())
        branches = {tuple(name.split("/")[:depth]) for name in model for depth in range(1, name.count("/") + 2)}
        assert nodes(tree) == 1 + len(branches), "an empty branch stays"


def test_removed_topics_free_their_memory() -> None:
    tree = filled("b", *(f"a/{number}" for number in range(10_000)))
    seen, most = tree.values, sys.getsizeof(tree.values)
    for number in range(10_000):
        tree.remove(f"a/{number}")
    assert tree.values is seen
    assert dict(seen) == {"b": 0}
    assert sys.getsizeof(seen) < most / 10
