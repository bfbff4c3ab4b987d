"""The cluster knows at any time which filters a session on the disk has with QoS 1 or 2."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.access.acl import ALL_RIGHTS
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.cluster import Standalone
from ringmq.mqtt_front.codec.packets import Subscription
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.sessions.journal import Journal, NoJournal
from ringmq.mqtt_front.sessions.lasting_filters import LastingFilters

CLIENTS = ("one", "two")
FILTERS = ("a", "$share/g/a")


class NotingCluster(Standalone):
    """The filters that it was told of, each with whether it is lasting."""

    def __init__(self) -> None:
        self.filters: dict[str, bool] = {}
        self.calls = 0

    def filter_added(self, topic_filter: str, done: Callable[[], None], lasting: bool = False) -> None:
        assert self.filters.get(topic_filter) is not lasting, "only changes are announced"
        self.filters[topic_filter] = lasting
        self.calls += 1
        done()

    def filter_removed(self, topic_filter: str) -> None:
        del self.filters[topic_filter]


class Front:
    """A broker whose clients come, go and subscribe."""

    def __init__(self, journal: Journal | None) -> None:
        self.cluster = NotingCluster()
        self.broker = Broker(FrontConfig(), self.cluster, journal)

    def connect(self, client: str, expiry_s: int, clean: bool) -> None:
        self.broker.begin(client, clean, ALL_RIGHTS, None, expiry_s, None)

    def leave(self, client: str) -> None:
        if client in self.broker.sessions:
            self.broker.gone(self.broker.sessions[client], will=False)

    def subscribe(self, client: str, topic_filter: str, qos: int) -> None:
        session = self.broker.sessions.get(client)
        if session is not None:
            _, announced = self.broker.subscribe(session, Subscription(topic_filter, qos), None)
            if announced:
                self.broker.announce(topic_filter, lambda: None)

    def unsubscribe(self, client: str, topic_filter: str) -> None:
        if client in self.broker.sessions:
            self.broker.unsubscribe(self.broker.sessions[client], topic_filter)

    def end(self, client: str) -> None:
        if client in self.broker.sessions:
            self.broker.end(self.broker.sessions[client])

    def expected(self) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for session in self.broker.sessions.values():
            for name, receiver in self.broker.router.filters(session).items():
                counts = self.broker.journal.__class__ is OnDisk and session.expiry_s > 0 and receiver.qos > 0
                found[name] = found.get(name, False) or counts
        return found


class OnDisk(NoJournal):
    """A journal that keeps sessions, as far as anybody asks."""


CLIENT, FILTER = st.sampled_from(CLIENTS), st.sampled_from(FILTERS)
STEPS = st.one_of(
    st.tuples(st.just("connect"), CLIENT, st.sampled_from([0, 100]), st.booleans()),
    st.tuples(st.just("leave"), CLIENT),
    st.tuples(st.just("subscribe"), CLIENT, FILTER, st.integers(0, 2)),
    st.tuples(st.just("subscribe"), CLIENT, FILTER, st.integers(0, 2)),
    st.tuples(st.just("unsubscribe"), CLIENT, FILTER),
    st.tuples(st.just("end"), CLIENT),
)


@settings(max_examples=300)
@given(st.lists(STEPS, min_size=20, max_size=40), st.booleans())
def test_cluster_follows_any_history_of_sessions(steps: list[tuple[str, str]], disk: bool) -> None:
    front = Front(OnDisk() if disk else None)
    for name, *arguments in steps:
        getattr(front, name)(*arguments)
        assert front.cluster.filters == front.expected()
    for client in CLIENTS:
        front.end(client)
    assert front.cluster.filters == {}
    assert front.broker.deadline() == inf or front.broker.sessions == {}


def test_further_kept_sessions_announce_nothing() -> None:
    front = Front(OnDisk())
    for client in CLIENTS:
        front.connect(client, 100, True)
        front.subscribe(client, "a", 1)
    front.end("one")
    assert front.cluster.calls == 1


def test_filter_changes_with_its_first_and_its_last_session() -> None:
    lasting = LastingFilters()
    assert lasting.change("a", False, True)
    assert not lasting.change("a", False, True)
    assert not lasting.change("a", True, True)
    assert not lasting.change("a", True, False)
    assert "a" in lasting
    assert lasting.change("a", True, False)
    assert "a" not in lasting
