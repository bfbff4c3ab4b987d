"""The casts of runs: the right ones die, and nobody who is counted is at a victim."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.benchmarks.victims import LEAST_PEERS, OTHER_SUBSCRIBERS, TOPICS, Kind, cast, passing_on
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.overlay.core.ids import Id, key_of, nearness

GUIDED = Choice("guided", 2)
DIRECT = Choice("direct")
IDS = [key_of(f"peer {number}") for number in range(13)]


def owners(topic: str, ids: list[Id]) -> list[int]:
    return sorted(range(len(ids)), key=lambda one: nearness(key_of(topic), ids[one]))


@pytest.mark.parametrize("run", range(20))
@pytest.mark.parametrize("count", [LEAST_PEERS, 13])
@pytest.mark.parametrize("kind", Kind)
def test_no_client_that_counts_is_at_a_victim(run: int, count: int, kind: Kind) -> None:
    part = cast(run, kind, IDS[:count], GUIDED, 2, seed=1)
    clients = {*part.publishers, *part.wildcards, *part.bystanders, *part.fresh}
    assert not clients.union(*part.subscribers) & set(part.victims)
    assert sorted((*part.bystanders, *part.victims)) == list(range(count))
    assert len(part.subscribers) == TOPICS
    assert part.fresh
    if kind is not Kind.INTERIOR:
        assert {len(some) for some in part.subscribers[1:]} == {OTHER_SUBSCRIBERS}


def test_owners_of_the_topic_die() -> None:
    nearest = owners("kill/3/0", IDS)
    assert list(cast(3, Kind.COORDINATOR, IDS, DIRECT, 2, 1).victims) == nearest[:1]
    assert list(cast(3, Kind.OWNERS, IDS, DIRECT, 2, 1).victims) == nearest[:2]
    assert list(cast(3, Kind.OWNERS, IDS, DIRECT, 4, 1).victims) == nearest[:4]


@pytest.mark.parametrize("run", range(20))
def test_an_interior_victim_passes_on_and_owns_nothing(run: int) -> None:
    part = cast(run, Kind.INTERIOR, IDS, GUIDED, 2, 1)
    (victim,) = part.victims
    assert victim not in owners(part.topic(0), IDS)[:3]
    among = sorted({victim, *part.subscribers[0], *part.wildcards}, key=lambda one: IDS[one])
    assert any(victim in passing_on(IDS, origin, among, GUIDED, part.topic(0)) for origin in part.publishers)


def test_the_seed_decides() -> None:
    assert cast(1, Kind.OWNERS, IDS, DIRECT, 2, 1) == cast(1, Kind.OWNERS, IDS, DIRECT, 2, 1)
    assert cast(1, Kind.OWNERS, IDS, DIRECT, 2, 1) != cast(1, Kind.OWNERS, IDS, DIRECT, 2, 2)


def test_nobody_passes_on_without_a_tree() -> None:
    assert passing_on(IDS, 0, list(range(13)), DIRECT, "a") == set()
    assert passing_on(IDS, 0, [1, 2], GUIDED, "a") == set()
    assert passing_on(IDS, 0, [1, 2], Choice("guided", 1), "a") in ({1}, {2})
    with pytest.raises(BenchError, match="no subscriber passes messages on with direct"):
        cast(1, Kind.INTERIOR, IDS, DIRECT, 2, 1)


def test_who_passes_on_are_as_many_as_a_tree_has_inside() -> None:
    among = sorted(range(1, 13), key=lambda one: IDS[one])
    assert len(passing_on(IDS, 0, among, GUIDED, "a")) in (5, 6)
    assert len(passing_on(IDS, 0, among, Choice("guided", 1), "a")) == 11
