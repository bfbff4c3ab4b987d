"""The router against a model that scans all subscriptions, and its limits. Sessions are plain objects."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.receivers import Receiver, merged
from ringmq.mqtt_front.matching.router import Added, Removed, Router, RouterLimits, SubscriptionRefusedError
from ringmq.mqtt_front.matching.topics import matches, parse_shared


class Session:
    """Known by its identity alone."""


A, B, C = SESSIONS = Session(), Session(), Session()


def router_of(*subscriptions: tuple[Session, str]) -> Router[Session]:
    router: Router[Session] = Router()
    for session, topic_filter in subscriptions:
        router.subscribe(session, topic_filter, 1)
    return router


def reached(router: Router[Session], topic: str) -> list[Session]:
    return [receiver.session for receiver in router.receivers(topic).each]


def test_replaced_subscription_is_reported_as_replaced() -> None:
    """[MQTT-3.8.4-3] an identical filter replaces the subscription."""
    router = router_of()
    assert router.subscribe(A, "a/+", 0) == Added(replaced=False, first=True)
    assert router.subscribe(B, "a/+", 1) == Added(replaced=False, first=False)
    assert router.receivers("a/b").each == (Receiver(A, 0), Receiver(B, 1))
    assert router.subscribe(A, "a/+", 2, True, True, 5) == Added(replaced=True, first=False)
    assert router.receivers("a/b").each == (Receiver(A, 2, True, True, (5,)), Receiver(B, 1))
    assert router.filters(A) == {"a/+": Receiver(A, 2, True, True, (5,))}
    assert router.statistics().subscriptions == 2


def test_unsubscribe() -> None:
    """[MQTT-3.10.4-1] filters are compared character by character."""
    router = router_of((A, "a/+"), (B, "a/+"))
    assert router.unsubscribe(A, "a/b") == Removed(existed=False, last=False)
    assert router.unsubscribe(C, "a/+") == Removed(existed=False, last=False)
    assert router.unsubscribe(A, "a/+") == Removed(existed=True, last=False)
    assert reached(router, "a/b") == [B]
    assert router.unsubscribe(B, "a/+") == Removed(existed=True, last=True)
    assert reached(router, "a/b") == []
    assert router.filters(B) == {}
    assert router.statistics().sessions == 0


def test_forget() -> None:
    router = router_of((A, "a"), (A, "b/#"), (A, "$share/g/c"), (A, "d"), (B, "d"), (B, "c"))
    assert router.forget(A) == ["a", "b/#", "$share/g/c"]
    assert router.forget(A) == []
    assert reached(router, "d") == [B]
    assert router.receivers("c").groups == ()
    assert router.statistics().sessions == 1


def test_overlapping_subscriptions_give_one_receiver() -> None:
    """[MQTT-3.3.4-2], [MQTT-3.3.4-4]."""
    router = router_of((B, "a/b"))
    router.subscribe(A, "a/b", 0, True, False, 1)
    router.subscribe(A, "a/#", 2, True, True)
    router.subscribe(A, "+/b", 1, False, False, 2)
    (b, a) = router.receivers("a/b").each
    assert b == Receiver(B, 1)
    assert (a.session, a.qos, a.no_local, a.retain_as_published) == (A, 2, False, True)
    assert sorted(a.subscription_ids) == [1, 2]
    assert router.receivers("a/c").each == (Receiver(A, 2, True, True),)


def test_shared_groups() -> None:
    """[MQTT-4.8.2-1]: groups of one name and one filter; a session may have the filter shared and for itself."""
    router = router_of((A, "$share/g/a/+"), (B, "$share/g/a/+"), (A, "a/+"))
    assert router.subscribe(C, "$share/h/a/+", 2) == Added(replaced=False, first=True)
    assert router.subscribe(C, "$share/g/a/+", 0, subscription_id=3) == Added(replaced=False, first=False)
    assert router.subscribe(C, "$share/g/#", 0) == Added(replaced=False, first=True)
    receivers = router.receivers("a/b")
    assert receivers.each == (Receiver(A, 1),)
    groups = {(group.name, group.filter): group for group in receivers.groups}
    assert set(groups) == {("g", "a/+"), ("h", "a/+"), ("g", "#")}
    assert groups["g", "a/+"].members == (Receiver(A, 1), Receiver(B, 1), Receiver(C, 0, subscription_ids=(3,)))
    assert router.unsubscribe(C, "$share/h/a/+") == Removed(existed=True, last=True)
    assert [(group.name, group.filter) for group in router.receivers("a/b").groups] == [("g", "#"), ("g", "a/+")]
    assert router.receivers("$a/b").groups == ()


def test_rotation_continues_after_changes() -> None:
    router = router_of((A, "$share/g/a"), (B, "$share/g/a"), (C, "$share/g/a"))
    order = []
    for _ in range(6):
        (group,) = router.receivers("a").groups
        member = group.next_member(lambda session: True)
        assert member is not None
        order.append(member.session)
        router.subscribe(A, "+", len(order) % 3)
    assert order == [A, B, C, A, B, C]


def test_change_drops_only_the_answers_that_it_matches() -> None:
    router = router_of((A, "a/b"))
    topics = ["a/b", "a/c", "b/c", "$SYS/a"]
    for topic_filter, stale in [
        ("a/b", {"a/b"}),
        ("a/+", {"a/b", "a/c"}),
        ("#", {"a/b", "a/c", "b/c"}),
        ("$share/g/+/c", {"a/c", "b/c"}),
        ("$SYS/#", {"$SYS/a"}),
        ("x/#", set()),
    ]:
        for change in (lambda name: router.subscribe(B, name, 1), lambda name: router.unsubscribe(B, name)):
            before = {topic: router.receivers(topic) for topic in topics}
            change(topic_filter)
            assert {topic for topic in topics if router.receivers(topic) is not before[topic]} == stale
            assert not any(router.receivers(topic).ended for topic in topics)


def test_the_same_again_changes_nothing() -> None:
    router = router_of((A, "a"))
    before = router.receivers("a")
    assert router.subscribe(A, "a", 1) == Added(replaced=True, first=False)
    assert router.receivers("a") is before


def test_client_with_new_topics_only_stays_within_the_cache() -> None:
    router: Router[Session] = Router(RouterLimits(cached_topics=100))
    router.subscribe(A, "#", 0)
    for number in range(1000):
        assert reached(router, f"new/{number}") == [A]
    statistics = router.statistics()
    assert statistics.cached_topics <= 100
    assert statistics.evictions + statistics.cached_topics == 1000


@pytest.mark.parametrize("topic", ["", "a/+", "#"])
def test_an_invalid_topic_is_refused(topic: str) -> None:
    router = router_of((A, "#"))
    with pytest.raises(PacketError) as caught:
        router.receivers(topic)
    assert caught.value.reason is Reason.TOPIC_NAME_INVALID
    assert router.statistics().cached_topics == 0


def test_an_invalid_filter_is_refused() -> None:
    router = router_of()
    with pytest.raises(PacketError) as caught:
        router.subscribe(A, "a/#/b", 0)
    assert caught.value.reason is Reason.MALFORMED_PACKET
    assert router.statistics().sessions == 0


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param(RouterLimits(subscriptions=2), id="of all"),
        pytest.param(RouterLimits(subscriptions_per_session=2), id="of a session"),
        pytest.param(RouterLimits(placements=1), id="placements"),
        pytest.param(RouterLimits(placements_per_session=1), id="placements of a session"),
    ],
)
def test_a_refused_subscription_changes_nothing(limits: RouterLimits) -> None:
    router: Router[Session] = Router(limits)
    router.subscribe(A, "a", 0)
    router.subscribe(A, "+/a", 0)
    before = router.statistics()
    with pytest.raises(SubscriptionRefusedError) as caught:
        router.subscribe(A, "a/+", 0)
    assert caught.value.reason is Reason.QUOTA_EXCEEDED
    assert router.statistics().refusals == 1
    assert router.statistics().subscriptions == before.subscriptions
    assert list(router.filters(A)) == ["a", "+/a"]
    assert router.subscribe(A, "+/a", 1).replaced, "what is there may still change"
    router.unsubscribe(A, "+/a")
    assert router.subscribe(A, "a/+", 0) == Added(replaced=False, first=True)


def test_a_client_cannot_use_up_the_placements_of_all() -> None:
    router: Router[Session] = Router(RouterLimits(placements_per_session=8))
    wild = ["/".join(levels) for levels in product("a+", repeat=6)]
    refused = 0
    for topic_filter in wild:
        try:
            router.subscribe(A, topic_filter, 0)
        except SubscriptionRefusedError:
            refused += 1
    assert refused == len(wild) - 1 - 8
    assert router.statistics().placements == 8
    assert router.subscribe(B, wild[-1], 0).first
    assert router.forget(A)
    assert router.statistics().placements == 1


LEVEL = st.sampled_from(["a", "b", "$s", ""])
TOPICS = st.lists(LEVEL, min_size=1, max_size=3).map("/".join).filter(bool)
PLAIN = st.tuples(st.lists(st.one_of(LEVEL, st.just("+")), max_size=2), st.sampled_from(["#", "+", "a", "b"])).map(
    lambda parts: "/".join([*parts[0], parts[1]])
)
FILTERS = st.one_of(PLAIN, PLAIN, st.tuples(st.sampled_from("gh"), PLAIN).map(lambda p: f"$share/{p[0]}/{p[1]}"))
OPTIONS = st.tuples(st.integers(0, 2), st.booleans(), st.booleans(), st.one_of(st.none(), st.integers(1, 3)))
KINDS = ["subscribe"] * 5 + ["unsubscribe"] * 5 + ["forget"]
# A few filters for all steps of an example, or hardly one would be subscribed to twice or unsubscribed from.
STEPS = st.lists(FILTERS, min_size=1, max_size=5).flatmap(
    lambda few: st.lists(
        st.tuples(st.sampled_from(KINDS), st.sampled_from(SESSIONS), st.sampled_from(few), OPTIONS), max_size=25
    )
)


@dataclass
class Model:
    """All subscriptions in a list; every question is a scan."""

    all: dict[tuple[Session, str], Receiver[Session]] = field(default_factory=dict)

    def having(self, topic_filter: str) -> list[Receiver[Session]]:
        return [receiver for (_, name), receiver in self.all.items() if name == topic_filter]

    def of(self, session: Session) -> dict[str, Receiver[Session]]:
        return {name: receiver for (owner, name), receiver in self.all.items() if owner is session}

    def each(self, topic: str) -> set[tuple[object, ...]]:
        found = (
            (session, merged([{session: receiver} for name, receiver in self.of(session).items() if hits(name, topic)]))
            for session in SESSIONS
        )
        return {_comparable(receivers[0]) for _, receivers in found if receivers}

    def groups(self, topic: str) -> dict[tuple[str, str], tuple[Receiver[Session], ...]]:
        shared = {name: parse_shared(name) for _, name in self.all}
        return {key: tuple(self.having(name)) for name, key in shared.items() if key and matches(key[1], topic)}


def hits(topic_filter: str, topic: str) -> bool:
    return not topic_filter.startswith("$share/") and matches(topic_filter, topic)


def _comparable(receiver: Receiver[Session]) -> tuple[object, ...]:
    """The order of the identifiers is nobody's promise."""
    ids = tuple(sorted(receiver.subscription_ids))
    return receiver.session, receiver.qos, receiver.no_local, receiver.retain_as_published, ids


def apply(router: Router[Session], model: Model, step: str, session: Session, name: str, options: object) -> None:
    assert isinstance(options, tuple)
    *flags, identifier = options
    if step == "subscribe":
        added = router.subscribe(session, name, *flags, identifier)
        assert added == Added(replaced=name in model.of(session), first=not model.having(name))
        model.all[session, name] = Receiver(session, *flags, () if identifier is None else (identifier,))
    elif step == "unsubscribe":
        existed = model.all.pop((session, name), None) is not None
        assert router.unsubscribe(session, name) == Removed(existed, existed and not model.having(name))
    else:
        names = model.of(session)
        for name in names:
            del model.all[session, name]
        assert router.forget(session) == [name for name in names if not model.having(name)]


@settings(max_examples=300)
@given(STEPS, st.lists(TOPICS, min_size=1, max_size=4, unique=True), st.sampled_from([1, 2, 1000]))
def test_as_a_scan_of_all_subscriptions_would(
    steps: list[tuple[str, Session, str, object]], topics: list[str], cached: int
) -> None:
    """The same topics are asked for after every change, so that a stale answer would show."""
    router: Router[Session] = Router(RouterLimits(cached_topics=cached))
    model = Model()
    for step, session, topic_filter, options in steps:
        apply(router, model, step, session, topic_filter, options)
        for topic in topics:
            receivers = router.receivers(topic)
            assert {_comparable(receiver) for receiver in receivers.each} == model.each(topic)
            assert len(receivers.each) == len({receiver.session for receiver in receivers.each})
            assert {(group.name, group.filter): group.members for group in receivers.groups} == model.groups(topic)
            if cached >= len(topics):
                assert router.receivers(topic) is receivers
        for each in SESSIONS:
            assert list(router.filters(each).items()) == list(model.of(each).items())
        statistics = router.statistics()
        assert statistics.subscriptions == len(model.all)
        assert statistics.shared_subscriptions == sum(name.startswith("$share/") for _, name in model.all)
        assert statistics.filters == len({name for _, name in model.all})
        assert statistics.sessions == len({session for session, _ in model.all})
    for session in SESSIONS:
        router.forget(session)
    assert router._unshared._root.empty
    assert router._shared._root.empty
    assert router.statistics().placements == router.statistics().filters == 0
