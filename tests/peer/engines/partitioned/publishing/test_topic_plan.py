"""Plans of topics: shared by topics with the same receivers, and never used when they are old."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringmq.dispatching.algorithms import Choice
from ringmq.peer.engines.partitioned.names import NameHash, fingerprint_of
from ringmq.peer.engines.partitioned.publishing import topic_plan
from ringmq.peer.engines.partitioned.publishing.route_table import RouteChanges, RouteRows, RouteTable
from ringmq.peer.engines.partitioned.publishing.topic_plan import MAX_TOPICS, CachedTopic, TopicPlans
from ringmq.peer.messaging.config import LAN
from ringmq.peer.replication.space import PARTITIONS
from tests.peer.engines.partitioned.routes_of import CAME, GONE, Change, peer_of, routes_of

ME, A, B = peer_of(1), peer_of(2), peer_of(3)
GUIDED = Choice("guided", 1)


class Plans:
    """A table and the plans made by it."""

    def __init__(self, rules: tuple[tuple[str, Choice], ...] = ()) -> None:
        self.table = RouteTable()
        self.plans = TopicPlans(self.table.home_sets, lambda: ME, replace(LAN, rules=rules))

    def change(self, *changes: Change) -> None:
        self.table.apply(RouteRows(routes_of(changes)), range(PARTITIONS))
        self.plans.change(self.table.settle())

    def open(self, name: str, now: float = 0.0) -> CachedTopic:
        matched = self.table.match(name)
        assert matched is not None
        return self.plans.put(name, matched, now)


def test_topics_with_the_same_homes_and_dispatching_share_a_plan() -> None:
    world = Plans(rules=(("video/#", GUIDED),))
    world.change(("#", A, CAME), ("b", B, CAME), ("$share/g/c", A, CAME))
    first, second = world.open("x"), world.open("y")
    assert first.plan is second.plan
    assert first.peers == (A,)
    assert world.open("b").peers == (A, B)
    assert world.open("c").plan.groups == (("$share/g/c", (A,)),)
    assert world.open("video/b").plan is not first.plan
    assert world.open("video/b").plan.choice == GUIDED


def test_this_peer_is_no_receiver_but_a_member_of_its_groups() -> None:
    world = Plans()
    world.change(("a", ME, CAME), ("a", A, CAME), ("$share/g/a", ME, CAME))
    plan = world.open("a").plan
    assert plan.peers == (A,)
    assert plan.groups == (("$share/g/a", (ME,)),)


def test_receivers_are_sorted_by_id() -> None:
    world = Plans()
    world.change(("a", B, CAME), ("a", A, CAME), ("$share/g/a", B, CAME), ("$share/g/a", A, CAME))
    plan = world.open("a").plan
    assert plan.peers == (A, B)
    assert plan.groups[0][1] == (A, B)


def test_the_fast_path_is_for_direct_sends_to_each_peer() -> None:
    world = Plans(rules=(("tree/#", GUIDED),))
    world.change(("tree/a", A, CAME), ("tree/b", A, CAME), ("tree/b", B, CAME), ("$share/g/s", A, CAME))
    assert world.open("tree/a").plan.is_fast
    assert world.open("tree/b").plan.through_tree
    world.open("s")
    assert list(world.plans.fast) == ["tree/a"]
    topic = world.open("x")
    world.plans.allow_fast("x", topic, False)
    assert "x" not in world.plans.fast
    world.plans.allow_fast("x", topic, True)
    assert world.plans.fast["x"] is topic


def test_an_exact_filter_makes_its_own_topic_alone_plan_again() -> None:
    world = Plans()
    world.open("a")
    world.open("b")
    world.change(("a", A, CAME))
    assert world.plans.current("a", 0.0) is None
    assert list(world.plans.fast) == ["b"]
    assert world.plans.current("b", 0.0) is not None
    assert world.open("a").peers == (A,)


def test_a_wildcard_filter_makes_all_topics_plan_again() -> None:
    world = Plans()
    before = world.open("a/b")
    world.change(("a/+", A, CAME))
    assert world.plans.current("a/b", 0.0) is None
    assert world.plans.fast == {}
    assert world.open("a/b") is before
    assert before.peers == (A,)
    assert world.plans.fast == {"a/b": before}
    world.plans.distrust()
    assert world.plans.current("a/b", 0.0) is None


def test_a_plan_never_has_the_peer_that_had_the_slot_before() -> None:
    world = Plans()
    world.change(("a", A, CAME))
    assert world.open("a").peers == (A,)
    world.change(("a", A, GONE))
    world.change(("b", B, CAME))
    assert world.open("b").peers == (B,)
    world.change(("b", peer_of(3, boot=2), CAME))
    assert world.open("b").peers == (peer_of(3, boot=2),)


def test_the_oldest_topic_is_forgotten_first() -> None:
    world = Plans()
    for number in range(MAX_TOPICS + 2):
        world.open(f"t/{number}")
    assert len(world.plans) == MAX_TOPICS
    assert "t/1" not in world.plans
    assert "t/2" in world.plans
    assert list(world.plans.since(0.0))[-1] == "t/2"


def test_of_two_topics_with_one_fingerprint_the_later_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NameHash, "fingerprint_of", lambda _, name: 7)
    world = Plans()
    world.open("a")
    world.open("b")
    assert "a" not in world.plans
    world.plans.change(RouteChanges([7], False, []))
    assert "b" not in world.plans


def test_idle_topics_are_forgotten() -> None:
    world = Plans()
    world.open("a", now=1.0)
    world.open("b", now=2.0)
    world.plans.current("a", now=3.0)
    world.plans.forget(since=2.5)
    assert "a" in world.plans
    assert "b" not in world.plans
    world.plans.change(RouteChanges([fingerprint_of("a")], False, []))
    assert len(world.plans) == 0


def test_equal_plans_are_not_kept_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_plan, "MAX_PLANS", 2)
    world = Plans()
    for number in range(2, 9):
        world.change((f"t/{number}", peer_of(number), CAME))
    for number in range(2, 9):
        assert world.open(f"t/{number}").peers == (peer_of(number),)
    assert len(world.plans._plans) <= 2
