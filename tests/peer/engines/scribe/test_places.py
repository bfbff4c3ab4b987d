"""Where filters live: a publisher that knows the places of its topic knows every filter that matches it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.matching.topics import matches
from ringmq.overlay.core.ids import key_of
from ringmq.peer.engines.scribe.places import is_wild, key_of_place, place_of, places_of, prefix_of, wild_places_of

level = st.sampled_from(["a", "b", "", "$s"])
topics = st.lists(level, min_size=1, max_size=4).map("/".join).filter(bool)
inner = st.tuples(
    st.lists(st.one_of(level, st.just("+")), max_size=4), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join([*parts[0], *parts[1]])).filter(bool)  # fmt: skip


@given(topics, inner)
def test_a_matching_filter_lives_where_its_publishers_look(topic: str, topic_filter: str) -> None:
    if matches(topic_filter, topic):
        assert place_of(topic_filter) in places_of(topic)
        assert place_of(f"$share/g/{topic_filter}") == place_of(topic_filter)


@pytest.mark.parametrize(
    ("topic_filter", "place", "prefix"),
    [
        ("a/b", "a/b", "a/b"),
        ("a/b/#", "a/b/#", "a/b"),
        ("a/b/+/c", "a/b/#", "a/b"),
        ("#", "#", ""),
        ("+/x", "#", ""),
        ("/+", "#", ""),
        ("/", "/", "/"),
        ("//+", "//#", "/"),
        ("$share/g/a/+", "a/#", "a"),
    ],
)
def test_places_and_their_keys(topic_filter: str, place: str, prefix: str) -> None:
    assert place_of(topic_filter) == place
    assert key_of_place(place) == key_of(prefix)
    assert prefix_of(place) == prefix
    assert is_wild(place) is any(wildcard in topic_filter for wildcard in "+#")


def test_the_places_of_a_topic() -> None:
    assert places_of("a/b") == ("a/b", "a/b/#", "a/#", "#")
    assert places_of("/x") == ("/x", "/x/#", "#")
    assert wild_places_of("a") == ("a/#", "#")
