"""Names of thousands of topics meet the needs of a run."""

from __future__ import annotations

from random import Random

import pytest

from ringmq.experiments.scenarios.pubsub.names import BROAD, FILTERS, TOPICS, ManyNames, Names
from ringmq.mqtt_front.matching.topics import check_filter, check_topic_name, has_wildcard, matches
from ringmq.peer.engines.partitioned.names import partition_of_filter, prefixes_of, shape_of
from ringmq.peer.engines.scribe.engine import ScribeEngine
from ringmq.peer.messaging.shared_filters import inner_of, is_shared


def all_served(topic_filter: str) -> bool:
    return True


@pytest.fixture(scope="module")
def names() -> ManyNames:
    return ManyNames(all_served, 10_000, 1)


def test_names_are_valid_and_follow_from_the_seed(names: ManyNames) -> None:
    for topic in names.topics:
        check_topic_name(topic)
    for topic_filter in names.filters:
        check_filter(topic_filter)
    assert len(set(names.topics)) == 10_000
    again, other = ManyNames(all_served, 10_000, 1), ManyNames(all_served, 10_000, 2)
    assert (again.topics, again.filters) == (names.topics, names.filters)
    assert set(other.topics) != set(names.topics)


def test_topics_have_all_kinds_of_levels(names: ManyNames) -> None:
    assert {len(topic.split("/")) for topic in names.topics} >= {1, 2, 3, 4, 5, 6}
    for kind in (lambda topic: topic.startswith("/"), lambda topic: topic.startswith("$"), lambda topic: "//" in topic):
        assert sum(map(kind, names.topics)) > 50


def test_filters_have_all_kinds_and_depths(names: ManyNames) -> None:
    inner = [inner_of(topic_filter) for topic_filter in names.filters]
    shapes = {shape_of(name) for name in inner}
    assert {shape[0] for shape in shapes if shape} >= {0, 1, 2, 3, 4}
    assert len(shapes) > 30
    assert sum(map(is_shared, names.filters)) > 500
    assert any(is_shared(topic_filter) and has_wildcard(topic_filter) for topic_filter in names.filters)


def test_bursts_of_fifty_peers_reach_most_partitions_and_meet(names: ManyNames) -> None:
    random = Random(1)
    taken = [topic_filter for _ in range(50) for topic_filter in names.burst(random, 200)]
    assert len({partition_of_filter(topic_filter) for topic_filter in taken}) > 2048
    published = [names.topic(random) for _ in range(500)]
    wanted = sum(any(matches(inner_of(each), topic) for each in taken) for topic in published)
    assert wanted > 350
    needed = {partition_of_filter(prefix) for topic in published for prefix in prefixes_of(topic)}
    assert len(needed) > 500


def test_topics_of_a_filter_are_those_that_match(names: ManyNames) -> None:
    random = Random(2)
    for topic_filter in [*BROAD, *random.sample(names.filters, 30)]:
        inner = inner_of(topic_filter)
        assert sorted(names.topics_of(topic_filter)) == sorted(each for each in names.topics if matches(inner, each))
        assert names.topics_of(topic_filter)


def test_only_served_filters_are_subscribed_to() -> None:
    random = Random(3)
    for names in (Names(ScribeEngine.serves), ManyNames(ScribeEngine.serves, 200, 1)):
        drawn = [names.filter(random) for _ in range(300)] + names.burst(random, 100)
        assert all(ScribeEngine.serves(topic_filter) for topic_filter in drawn)
        assert not any(map(is_shared, drawn))


def test_few_names_are_those_that_are_written_down() -> None:
    names, random = Names(all_served), Random(4)
    assert {names.topic(random) for _ in range(500)} == set(TOPICS)
    assert {names.filter(random) for _ in range(1000)} == set(FILTERS)
    assert names.topics_of("m/+") == ["m/1", "m/2", "m/3"]
