"""Delivery plans: the receivers that they name, and when a plan is made again."""

from __future__ import annotations

import pytest

from ringmq.logger.recorder import is_of_the_log
from ringmq.mqtt_front.access.acl import ALL_RIGHTS, NO_RIGHTS, Rights
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection import delivery_plans as plans
from ringmq.mqtt_front.connection.budget import FAST_BYTES, NEW_TOPIC_BYTES
from ringmq.mqtt_front.connection.delivery_plans import LONGEST_TOPIC, Plan, Plans, TopicNames
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.router import Router
from ringmq.mqtt_front.sessions.session import Session
from tests.mqtt_front.front_bench import by_counts_alone


def a_session(name: str, rights: Rights = ALL_RIGHTS) -> Session:
    return Session(name, FrontConfig(), rights)


@pytest.fixture
def router() -> Router[Session]:
    return Router(apart=is_of_the_log)


def names(plan: Plan) -> tuple[list[str], bool, bool]:
    return [session.client_id for session in plan.sessions], plan.special, plan.fast


@pytest.mark.parametrize("serves", [False, True])
def test_groups_take_the_fast_path_only_if_the_cluster_serves_them(router: Router[Session], serves: bool) -> None:
    router.subscribe(a_session("ordinary"), "a/#", 2)
    router.subscribe(a_session("shared"), "$share/g/a/b", 0)
    assert names(Plans(router, serves_groups=serves).of("a/b")) == (["ordinary"], False, serves)


@pytest.mark.parametrize("special", ["no-local", "identifier", "rights"])
def test_a_receiver_with_wishes_makes_the_plan_special(router: Router[Session], special: str) -> None:
    session = a_session("special", NO_RIGHTS if special == "rights" else ALL_RIGHTS)
    identifier = 3 if special == "identifier" else None
    router.subscribe(a_session("ordinary"), "a/#", 2)
    router.subscribe(session, "a/b", 0, no_local=special == "no-local", subscription_id=identifier)
    assert names(Plans(router).of("a/b")) == (["ordinary"], True, False)


def test_records_take_the_general_path(router: Router[Session]) -> None:
    router.subscribe(a_session("ordinary"), "#", 2)
    special = [topic for topic in ("ringmq/log", "ringmq/log/a", "ringmq/logs") if Plans(router).of(topic).special]
    assert special == ["ringmq/log", "ringmq/log/a"]


def test_a_plan_has_the_lowest_qos_of_its_receivers(router: Router[Session]) -> None:
    made = Plans(router)
    assert made.of("a").least_qos == 2
    for name, qos, least in (("2", 2, 2), ("0", 0, 0), ("1", 1, 0)):
        router.subscribe(a_session(name), "a", qos)
        assert made.of("a").least_qos == least


def test_a_plan_holds_until_a_subscription_changes(router: Router[Session]) -> None:
    made = Plans(router)
    session = a_session("c")
    assert made.of("a").cost == NEW_TOPIC_BYTES
    plan = made.of("a")
    assert plan.cost == FAST_BYTES
    router.subscribe(session, "b", 0)
    assert made.of("a") is plan
    router.subscribe(session, "a", 0)
    assert names(made.of("a")) == (["c"], False, True)
    router.unsubscribe(session, "a")
    assert names(made.of("a")) == ([], False, True)


def test_a_change_of_rights_makes_a_new_plan(router: Router[Session]) -> None:
    made = Plans(router)
    session = a_session("c")
    router.subscribe(session, "a", 0)
    assert made.of("a").sessions == [session]
    session.rights = NO_RIGHTS
    made.forget()
    assert names(made.of("a")) == ([], True, False)


@pytest.mark.parametrize("topic", ["", "a/#", "+"])
def test_a_wrong_topic_name_has_no_plan(router: Router[Session], topic: str) -> None:
    with pytest.raises(PacketError):
        Plans(router).of(topic)


@pytest.mark.parametrize("topic", [b"a\0", b"\xff"])
def test_bytes_that_are_no_text_name_no_topic(topic: bytes) -> None:
    with pytest.raises(PacketError):
        TopicNames()[topic]


def test_topics_with_the_same_receivers_share_a_plan(router: Router[Session]) -> None:
    made = Plans(router)
    router.subscribe(a_session("c"), "a/#", 0)
    assert made.of("a/1").cost == made.of("a/2").cost == NEW_TOPIC_BYTES
    assert made.of("a/1") is made.of("a/2")
    assert made.of("b") is not made.of("a/1")


def test_long_names_are_not_remembered() -> None:
    names = TopicNames()
    for length in (LONGEST_TOPIC, LONGEST_TOPIC + 1):
        assert names[b"x" * length] == "x" * length
    assert list(names) == [b"x" * LONGEST_TOPIC]


def test_the_number_of_remembered_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_NAMES", 10)
    names = TopicNames()
    for number in range(25):
        assert names[b"%d" % number] == str(number)
        assert len(names) <= 10


def test_a_plan_keeps_no_session_that_is_gone(router: Router[Session]) -> None:
    made = Plans(router)
    with by_counts_alone() as ours:
        session = a_session("c")
        router.subscribe(session, "a", 0)
        assert made.of("a").sessions == made.of("a").sessions == [session]
        router.forget(session)
        assert ours()
        del session
        assert ours() == []
