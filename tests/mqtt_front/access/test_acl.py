"""Covering and overlapping of filters are exact, and rights let nothing through that no rule allows."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.access.acl import (
    ALL_RIGHTS,
    MAX_CACHED_CHARS,
    MAX_CACHED_TOPICS,
    NO_RIGHTS,
    Rights,
    Shape,
    covers,
    overlaps,
)
from ringmq.mqtt_front.matching.topics import matches

LEVELS = ("", "a", "$a", "other")
"""Filters below never have the level `other`: it stands for all the names that no filter has."""
MAX_LEVELS = 4
"""One more than filters below have, so that what is behind their end is seen."""
TOPICS = [
    topic
    for count in range(1, MAX_LEVELS + 1)
    for topic in map("/".join, itertools.product(LEVELS, repeat=count))
    if topic
]

filters = (
    st.lists(st.sampled_from(["", "a", "$a", "+"]), min_size=0, max_size=MAX_LEVELS - 1)
    .flatmap(lambda levels: st.sampled_from([levels, [*levels[: MAX_LEVELS - 2], "#"]]))
    .map("/".join)
    .filter(bool)
)
topics = st.sampled_from(TOPICS)


def matched(filter_: str) -> set[str]:
    return {topic for topic in TOPICS if matches(filter_, topic)}


@given(filters, filters)
@settings(max_examples=1500, deadline=None)
def test_covering_is_exact(allowed: str, requested: str) -> None:
    assert covers(allowed, requested) == (matched(requested) <= matched(allowed))


@given(filters, filters)
@settings(max_examples=1500, deadline=None)
def test_overlapping_is_exact(one: str, other: str) -> None:
    assert overlaps(one, other) == bool(matched(one) & matched(other))


@given(filters, topics)
def test_a_topic_is_covered_by_what_matches_it(filter_: str, topic: str) -> None:
    """Rights must see no other match than the router does."""
    assert covers(filter_, topic) == overlaps(filter_, topic) == matches(filter_, topic)


@pytest.mark.parametrize(
    ("allowed", "requested", "covered"),
    [
        ("a/b", "a/b", True),
        ("a/b", "a/B", False),
        ("a/b", "a/+", False),
        ("a/+", "a/b", True),
        ("a/+", "a/+", True),
        ("a/+", "a/#", False),
        ("a/+", "a", False),
        ("a/+", "a/", True),
        ("a/+", "a/b/c", False),
        ("a/#", "a", True),
        ("a/#", "a/#", True),
        ("a/#", "a/+/#", True),
        ("a/+/#", "a/#", False),
        ("a/+/#", "a/b", True),
        ("a/b", "a/b/#", False),
        ("+/+", "+/#", False),
        ("#", "+/#", True),
        ("+/#", "#", True),
        ("#", "/", True),
        ("+", "#", False),
        ("/#", "/+/#", True),
        ("/+/#", "/#", True),
        ("#", "$SYS/#", False),
        ("#", "$SYS", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/x/+", True),
        ("$SYS/+", "$SYS/$x", True),
        ("a/+", "a/$x", True),
        ("#", "$share/g/a", False),
    ],
)
def test_covering(allowed: str, requested: str, covered: bool) -> None:
    assert covers(allowed, requested) is covered


@pytest.mark.parametrize(
    ("one", "other", "overlapping"),
    [
        ("a/b", "a/+", True),
        ("a/+", "+/b", True),
        ("a/+", "b/+", False),
        ("a/#", "a", True),
        ("a/#", "+/b/c", True),
        ("a/#", "b/#", False),
        ("a/b/#", "a/+", True),
        ("a/b/c/#", "a/+", False),
        ("#", "$SYS/x", False),
        ("+/x", "$SYS/x", False),
        ("$SYS/#", "$SYS/+/x", True),
        ("/#", "/", True),
    ],
)
def test_overlapping(one: str, other: str, overlapping: bool) -> None:
    assert overlaps(one, other) is overlaps(other, one) is overlapping


@pytest.mark.parametrize("filter_", ["", "a#", "#/a", "a/#/b", "a/#/#", "+a", "a/b+/c", "a\0"])
def test_invalid_filters_are_refused(filter_: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  # the filter is all it says
        Shape.of(filter_)
    for rights in (Rights(read=["#"], write=["#"]), NO_RIGHTS):
        assert not rights.may_subscribe(filter_)
        assert not rights.reads_all(filter_)
        assert not rights.may_write(filter_)
        assert not rights.may_read(filter_)


RIGHTS = Rights(
    read=["sensors/#", "own/alice/+", "news", "$SYS/load"],
    write=["own/alice/+", "commands/+/set"],
    denied=["sensors/secret/#", "own/alice/locked"],
)


@pytest.mark.parametrize(
    ("topic", "read", "write"),
    [
        ("sensors", True, False),
        ("sensors/a/b", True, False),
        ("sensors/secret", False, False),
        ("sensors/secret/x", False, False),
        ("sensorsx", False, False),
        ("own/alice/x", True, True),
        ("own/alice/locked", False, False),
        ("own/alice", False, False),
        ("own/alice/x/y", False, False),
        ("own/bob/x", False, False),
        ("news", True, False),
        ("news/", False, False),
        ("NEWS", False, False),
        ("commands/a/set", False, True),
        ("commands//set", False, True),
        ("$SYS/load", True, False),
        ("$SYS/other", False, False),
        ("", False, False),
        ("own/alice/+", False, False),
        ("sensors/#", False, False),
        ("sensors/a+b", False, False),
        ("$share/g/news", False, False),
    ],
)
def test_topics(topic: str, read: bool, write: bool) -> None:
    for _ in range(2):  # looked up, then from the cache
        assert RIGHTS.may_read(topic) is read
        assert RIGHTS.may_write(topic) is write


@pytest.mark.parametrize(
    ("filter_", "allowed", "whole"),
    [
        ("news", True, True),
        ("sensors/+", True, False),
        ("sensors/a", True, True),
        ("sensors/a/#", True, True),
        ("sensors/#", True, False),
        ("sensors/secret/#", False, False),
        ("sensors/secret", False, False),
        ("sensors/+/x", True, False),
        ("own/alice/+", True, False),
        ("own/alice/locked", False, False),
        ("own/alice/#", False, False),
        ("own/+/x", False, False),
        ("#", False, False),
        ("+", False, False),
        ("commands/a/set", False, False),
        ("$SYS/#", False, False),
        ("$SYS/load", True, True),
    ],
)
def test_subscriptions(filter_: str, allowed: bool, whole: bool) -> None:
    assert RIGHTS.may_subscribe(filter_) is allowed
    assert RIGHTS.reads_all(filter_) is whole
    assert RIGHTS.may_subscribe(f"$share/g/{filter_}") is whole, "a member must be able to read every message"


@pytest.mark.parametrize(
    "filter_", ["$share", "$share/", "$share/g", "$share/g/", "$share//news", "$share/g/$share/h/news"]
)
def test_invalid_shared_filters_are_refused(filter_: str) -> None:
    assert not RIGHTS.may_subscribe(filter_)
    assert not Rights(read=["#"]).may_subscribe(filter_)


@given(st.lists(filters, max_size=3), st.lists(filters, max_size=3), st.lists(filters, max_size=2), topics)
@settings(deadline=None)
def test_rights_are_the_rules(read: list[str], write: list[str], denied: list[str], topic: str) -> None:
    rights = Rights(read, write, denied)
    denies = any(matches(rule, topic) for rule in denied)
    for _ in range(2):
        assert rights.may_read(topic) == (any(matches(rule, topic) for rule in read) and not denies)
        assert rights.may_write(topic) == (any(matches(rule, topic) for rule in write) and not denies)


@given(st.lists(filters, max_size=3), st.lists(filters, max_size=2), filters)
@settings(deadline=None)
def test_no_subscription_is_a_way_around(read: list[str], denied: list[str], requested: str) -> None:
    """Without denies, all that an allowed subscription matches may be read; with them, something of it is not denied
    by one rule alone, and what `reads_all` promises holds.
    """
    rights = Rights(read, (), denied)
    readable = {topic for topic in matched(requested) if rights.may_read(topic)}
    if rights.may_subscribe(requested):
        assert any(matched(requested) <= matched(rule) for rule in read)
        assert not any(matched(requested) <= matched(rule) for rule in denied)
    if rights.reads_all(requested):
        assert readable == matched(requested)
        assert rights.may_subscribe(requested)
    if not denied:
        assert rights.may_subscribe(requested) == rights.reads_all(requested)
    assert rights.may_subscribe(f"$share/g/{requested}") == rights.reads_all(requested)


def test_all_and_nothing() -> None:
    for name in ("a", "$SYS/x", "x/#", "$share/g/x"):
        assert ALL_RIGHTS.may_write(name)
        assert ALL_RIGHTS.may_read(name)
        assert ALL_RIGHTS.may_subscribe(name)
        assert ALL_RIGHTS.reads_all(name)
        assert not NO_RIGHTS.may_write(name)
        assert not NO_RIGHTS.may_read(name)
        assert not NO_RIGHTS.may_subscribe(name)


def test_the_caches_are_bounded_and_stay_right() -> None:
    rights = Rights(read=["a/+"], write=["b/+"])
    for number in range(3 * MAX_CACHED_TOPICS):
        assert rights.may_read(f"a/{number}")
        assert rights.may_write(f"b/{number}")
        assert not rights.may_read(f"b/{number}")
        assert max(len(rights._readable), len(rights._writable)) <= MAX_CACHED_TOPICS
    kept = dict(rights._readable)
    for length in (MAX_CACHED_CHARS, 60_000):
        assert rights.may_read("a/" + "x" * length)
    assert rights._readable == kept, "long topics are not kept"
