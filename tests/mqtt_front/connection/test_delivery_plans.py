"""Plans for plain messages: whom they name, and when a new one is made."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.access.acl import ALL_RIGHTS, NO_RIGHTS, Rights
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection import delivery_plans as plans
from ringmq.mqtt_front.connection.budget import NEW_TOPIC_BYTES, PLAIN_BYTES
from ringmq.mqtt_front.connection.delivery_plans import LONGEST_TOPIC, Plan, Plans
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.router import Router
from ringmq.mqtt_front.sessions.session import Session
from tests.mqtt_front.front_bench import by_counts_alone


def a_session(name: str, rights: Rights = ALL_RIGHTS) -> Session:
    return Session(name, FrontConfig(), rights)


@pytest.fixture
def router() -> Router[Session]:
    return Router()


def names(plan: Plan) -> tuple[list[str], bool, int]:
    return [session.client_id for session in plan.quick], plan.slow, len(plan.groups)


def test_who_wants_nothing_special_is_quick(router: Router[Session]) -> None:
    plans = Plans(router)
    router.subscribe(a_session("plain"), "a/#", 2)
    router.subscribe(a_session("shared"), "$share/g/a/b", 0)
    assert names(plans.of(b"a/b")) == (["plain"], False, 1)


@pytest.mark.parametrize("special", ["no-local", "identifier", "rights"])
def test_who_wants_something_special_is_not(router: Router[Session], special: str) -> None:
    session = a_session("special", NO_RIGHTS if special == "rights" else ALL_RIGHTS)
    identifier = 3 if special == "identifier" else None
    router.subscribe(a_session("plain"), "a/#", 2)
    router.subscribe(session, "a/b", 0, no_local=special == "no-local", subscription_id=identifier)
    assert names(Plans(router).of(b"a/b")) == (["plain"], True, 0)


def test_records_are_not_for_the_quick_way(router: Router[Session]) -> None:
    router.subscribe(a_session("plain"), "#", 2)
    slow = [topic for topic in (b"ringmq/log", b"ringmq/log/a", b"ringmq/logs") if Plans(router).of(topic).slow]
    assert slow == [b"ringmq/log", b"ringmq/log/a"]


def test_it_says_with_how_little_one_is_content(router: Router[Session]) -> None:
    made = Plans(router)
    assert made.of(b"a").least_qos == 2
    for name, qos, least in (("2", 2, 2), ("0", 0, 0), ("1", 1, 0)):
        router.subscribe(a_session(name), "a", qos)
        assert made.of(b"a").least_qos == least


def test_a_plan_holds_until_a_subscription_changes(router: Router[Session]) -> None:
    made = Plans(router)
    session = a_session("c")
    assert made.of(b"a").cost == NEW_TOPIC_BYTES
    plan = made.of(b"a")
    assert plan.cost == PLAIN_BYTES
    router.subscribe(session, "b", 0)
    assert made.of(b"a") is plan
    router.subscribe(session, "a", 0)
    assert names(made.of(b"a")) == (["c"], False, 0)
    router.unsubscribe(session, "a")
    assert names(made.of(b"a")) == ([], False, 0)


def test_other_rights_make_other_plans(router: Router[Session]) -> None:
    made = Plans(router)
    session = a_session("c")
    router.subscribe(session, "a", 0)
    assert made.of(b"a").quick == [session]
    session.rights = NO_RIGHTS
    made.forget()
    assert names(made.of(b"a")) == ([], True, 0)


@pytest.mark.parametrize("topic", [b"", b"a/#", b"+", b"a\0", b"\xff"])
def test_what_is_no_topic_has_no_plan(router: Router[Session], topic: bytes) -> None:
    with pytest.raises((PacketError, UnicodeDecodeError)):
        Plans(router).of(topic)


def test_long_topics_are_not_remembered(router: Router[Session]) -> None:
    made = Plans(router)
    for length, same in ((LONGEST_TOPIC, True), (LONGEST_TOPIC + 1, False)):
        topic = b"x" * length
        made.of(topic)
        assert (made.of(topic) is made.of(topic)) is same


def test_so_many_and_no_more(router: Router[Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "MAX_NAMES", 10)
    made = Plans(router)
    for number in range(25):
        made.of(b"%d" % number)
        assert len(made._names) <= 10


def test_a_plan_keeps_no_session_that_is_gone(router: Router[Session]) -> None:
    made = Plans(router)
    with by_counts_alone() as ours:
        session = a_session("c")
        router.subscribe(session, "a", 0)
        assert made.of(b"a").quick == made.of(b"a").quick == [session]
        router.forget(session)
        assert ours()
        del session
        assert ours() == []
