"""The plans of runs: the right peers are victims, and no counted client is at a victim."""

from __future__ import annotations

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.benchmarks.victims import LEAST_PEERS, OTHER_SUBSCRIBERS, TOPICS, Kind, draw_plan, relays
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.overlay.core.ids import Id, key_of, nearness

GUIDED = Choice("guided", 2)
DIRECT = Choice("direct")
IDS = [key_of(f"peer {number}") for number in range(13)]


def owners(topic: str, ids: list[Id]) -> list[int]:
    return sorted(range(len(ids)), key=lambda peer: nearness(key_of(topic), ids[peer]))


@pytest.mark.parametrize("run", range(20))
@pytest.mark.parametrize("count", [LEAST_PEERS, 13])
@pytest.mark.parametrize("kind", Kind)
def test_no_counted_client_is_at_a_victim(run: int, count: int, kind: Kind) -> None:
    plan = draw_plan(run, kind, IDS[:count], GUIDED, 2, seed=1)
    clients = {*plan.publishers, *plan.wildcards, *plan.bystanders, *plan.fresh}
    assert not clients.union(*plan.subscribers) & set(plan.victims)
    assert sorted((*plan.bystanders, *plan.victims)) == list(range(count))
    assert len(plan.subscribers) == TOPICS
    assert plan.fresh
    if kind is not Kind.INTERIOR:
        assert {len(of_topic) for of_topic in plan.subscribers[1:]} == {OTHER_SUBSCRIBERS}


def test_victims_are_the_owners_of_the_topic() -> None:
    nearest = owners("kill/3/0", IDS)
    assert list(draw_plan(3, Kind.COORDINATOR, IDS, DIRECT, 2, 1).victims) == nearest[:1]
    assert list(draw_plan(3, Kind.OWNERS, IDS, DIRECT, 2, 1).victims) == nearest[:2]
    assert list(draw_plan(3, Kind.OWNERS, IDS, DIRECT, 4, 1).victims) == nearest[:4]


@pytest.mark.parametrize("run", range(20))
def test_interior_victim_relays_and_owns_no_key_of_the_topic(run: int) -> None:
    plan = draw_plan(run, Kind.INTERIOR, IDS, GUIDED, 2, 1)
    (victim,) = plan.victims
    assert victim not in owners(plan.topic(0), IDS)[:3]
    tree = sorted({victim, *plan.subscribers[0], *plan.wildcards}, key=lambda peer: IDS[peer])
    assert any(victim in relays(IDS, origin, tree, GUIDED, plan.topic(0)) for origin in plan.publishers)


def test_the_same_seed_gives_the_same_plan() -> None:
    assert draw_plan(1, Kind.OWNERS, IDS, DIRECT, 2, 1) == draw_plan(1, Kind.OWNERS, IDS, DIRECT, 2, 1)
    assert draw_plan(1, Kind.OWNERS, IDS, DIRECT, 2, 1) != draw_plan(1, Kind.OWNERS, IDS, DIRECT, 2, 2)


def test_no_subscriber_relays_without_a_tree() -> None:
    assert relays(IDS, 0, list(range(13)), DIRECT, "a") == set()
    assert relays(IDS, 0, [1, 2], GUIDED, "a") == set()
    assert relays(IDS, 0, [1, 2], Choice("guided", 1), "a") in ({1}, {2})
    with pytest.raises(BenchError, match="no subscriber relays messages with direct"):
        draw_plan(1, Kind.INTERIOR, IDS, DIRECT, 2, 1)


def test_relays_are_the_inner_peers_of_a_tree() -> None:
    subscribers = sorted(range(1, 13), key=lambda peer: IDS[peer])
    assert len(relays(IDS, 0, subscribers, GUIDED, "a")) in (5, 6)
    assert len(relays(IDS, 0, subscribers, Choice("guided", 1), "a")) == 11
