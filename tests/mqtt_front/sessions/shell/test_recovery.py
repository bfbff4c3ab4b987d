"""A front that dies and comes back: whatever happened, the new one knows what the old one had told its clients."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.access.access import Access
from ringmq.mqtt_front.access.passwords import Cost, new_entry
from ringmq.mqtt_front.codec.packets import (
    Properties,
    Puback,
    Pubcomp,
    Pubrec,
    Pubrel,
    RetainHandling,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.journal import SavedSession
from ringmq.mqtt_front.sessions.queue import Delivery
from ringmq.mqtt_front.sessions.session import Session
from ringmq.mqtt_front.sessions.shell.recovery import restore
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store
from tests.mqtt_front.access.accesses import access_from

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, SlowPorts, World

V311, V5 = Version.V311, Version.V5


class Lives:
    """One front after the other, over one file."""

    def __init__(self, make_world: type[World], folder: Path) -> None:
        self._make_world = make_world
        self._path = folder / "clients.sqlite"
        self._store: Store | None = None
        self.access = Access()
        self.config = FrontConfig()

    def begin(self, wall_s: float = 0.0, cluster: SlowPorts | None = None) -> World:
        """A front that starts at this time of the wall clock, when the one before has been killed."""
        self.end()
        self._store = Store(self._path, wall_s)
        world = self._make_world(self.config, cluster)
        restore(world.broker, self._store, self.access)
        return world

    def end(self) -> None:
        if self._store is not None:
            self._store.close()


@pytest.fixture
def lives(make_world: type[World], tmp_path: Path) -> Iterator[Lives]:
    lives = Lives(make_world, tmp_path)
    yield lives
    lives.end()


def back(world: World, client_id: str = "c", version: Version = V5) -> Client:
    """A client that had a session; its CONNACK must say that it still has."""
    kept = {"session_expiry_s": 1000} if version is V5 else {}
    client = world.client(version)
    client.connect(client_id, clean=False, **kept)
    client.connack = client.pop()  # type: ignore[assignment]
    assert client.connack.session_present
    return client


def kept_subscriber(world: World, *subscriptions: Subscription, version: Version = V5) -> Client:
    kept = {"session_expiry_s": 1000} if version is V5 else {}
    client = world.connect("c", version, clean=False, **kept)
    client.subscribe(*(subscriptions or (Subscription("t", 2),)))
    return client


@pytest.mark.parametrize("version", Version)
def test_messages_for_a_client_that_is_away(lives: Lives, version: Version) -> None:
    world = lives.begin()
    kept_subscriber(world, version=version).drop()
    publisher = world.connect("p")
    for qos in (1, 2):
        publisher.publish("t", b"%d" % qos, qos)
    world.turn()
    world = lives.begin()
    client = back(world, version=version) if version is not Version.V31 else world.client(version)
    if version is Version.V31:
        client.connect("c", clean=False)
        client.pop()
    messages = client.messages()
    assert [(one.payload, one.qos, one.dup) for one in messages] == [(b"1", 1, False), (b"2", 2, False)]


def test_a_message_that_was_on_its_way_is_repeated_under_its_identifier(lives: Lives) -> None:
    world = lives.begin()
    client = kept_subscriber(world)
    world.connect("p").publish("t", b"x", 2)
    sent = client.message()
    (again,) = back(lives.begin()).messages()
    assert (again.packet_id, again.payload, again.dup) == (sent.packet_id, b"x", True)


def test_a_message_that_the_client_has_is_released_and_not_repeated(lives: Lives) -> None:
    world = lives.begin()
    client = kept_subscriber(world)
    world.connect("p").publish("t", b"x", 2)
    sent = client.message()
    client.send(Pubrec(sent.packet_id))
    world.turn()
    world = lives.begin()
    client = back(world)
    assert client.only(Pubrel).packet_id == sent.packet_id
    client.send(Pubcomp(sent.packet_id))
    world.turn()
    assert back(lives.begin()).take() == []


def test_a_qos_2_message_of_a_client_is_taken_once(lives: Lives) -> None:
    world = lives.begin()
    kept_subscriber(world).drop()
    publisher = world.connect("p", session_expiry_s=1000)
    publisher.publish("t", b"x", 2, packet_id=7)
    assert publisher.only(Pubrec).packet_id == 7
    world = lives.begin()
    publisher = back(world, "p")
    publisher.publish("t", b"x", 2, packet_id=7, dup=True)
    assert publisher.only(Pubrec).packet_id == 7
    publisher.send(Pubrel(7))
    assert publisher.only(Pubcomp).reason == 0
    assert back(world).payloads() == [b"x"]
    publisher = back(lives.begin(), "p")
    publisher.send(Pubrel(7))
    assert publisher.only(Pubcomp).reason == 0x92


def test_a_qos_2_message_that_was_not_answered_is_taken_again(lives: Lives, slow_ports: SlowPorts) -> None:
    """Whether the layer above had it is not known: it must not be lost."""
    world = lives.begin(cluster=slow_ports)
    publisher = world.connect("p", session_expiry_s=1000)
    publisher.publish("t", b"x", 2, packet_id=7)
    assert publisher.take() == []
    world = lives.begin(cluster=slow_ports)
    back(world, "p").publish("t", b"x", 2, packet_id=7, dup=True)
    assert len(slow_ports.messages) == 2


def test_subscriptions_hold_and_the_layer_above_is_told(lives: Lives, slow_ports: SlowPorts) -> None:
    world = lives.begin()
    client = kept_subscriber(world, Subscription("a/+", 1, True, True), Subscription("$share/g/b", 1))
    client.subscribe(Subscription("c", 2), ids=(9,))
    world = lives.begin(cluster=slow_ports)
    assert sorted(name for name, _ in slow_ports.added) == ["$share/g/b", "a/+", "c"]
    client, publisher = back(world), world.connect("p")
    client.publish("a/b", b"own")
    for topic in ("a/b", "b", "c"):
        publisher.publish(topic, b"x", 2, retain=True)
    messages = client.messages()
    assert [(one.topic, one.qos, one.retain, one.properties.subscription_ids) for one in messages] == [
        ("a/b", 1, True, ()),
        ("b", 1, False, ()),
        ("c", 2, False, (9,)),
    ]


def test_retained_messages_hold(lives: Lives) -> None:
    world = lives.begin()
    publisher = world.connect("p")
    publisher.publish("a", b"kept", 1, retain=True, user_properties=(("k", "v"),))
    publisher.publish("b", b"taken back", retain=True)
    publisher.publish("b", b"", retain=True)
    publisher.publish("c", b"too old", retain=True, message_expiry_s=5)
    publisher.publish("d", b"not yet", retain=True, message_expiry_s=50)
    world.turn()
    world = lives.begin(wall_s=10)
    client = world.connect("c")
    client.subscribe("#")
    kept, old = sorted(client.messages(), key=lambda one: one.topic)
    assert (kept.topic, kept.payload, kept.properties.user_properties) == ("a", b"kept", (("k", "v"),))
    assert (old.topic, old.properties.message_expiry_s) == ("d", 40)
    client = lives.begin(wall_s=100).connect("c")
    client.subscribe("#")
    assert [one.topic for one in client.messages()] == ["a"]


def test_sessions_go_on_to_expire(lives: Lives) -> None:
    world = lives.begin()
    world.connect("away", session_expiry_s=100).drop()
    world.connect("here", session_expiry_s=100)
    world.connect("short", session_expiry_s=0)
    world.connect("ever", V311, clean=False).drop()
    world.turn()
    world = lives.begin(wall_s=60)
    assert sorted(world.broker.sessions) == ["away", "ever", "here"]
    world.pass_time(40)
    assert sorted(world.broker.sessions) == ["ever", "here"]
    world.pass_time(60)
    assert sorted(world.broker.sessions) == ["ever"]
    world.turn()
    assert sorted(lives.begin(wall_s=300).broker.sessions) == ["ever"]


def test_a_session_that_expired_meanwhile_is_gone(lives: Lives) -> None:
    world = lives.begin()
    kept_subscriber(world).leave()
    world.turn()
    world = lives.begin(wall_s=2000)
    assert world.broker.sessions == {}
    assert world.broker.router.statistics().subscriptions == 0
    assert lives.begin(wall_s=0).broker.sessions == {}, "for good"


def test_the_will_of_a_client_that_the_crash_cut_off(lives: Lives) -> None:
    """Its connection ended without a DISCONNECT: also those who want the will are there again when it comes."""
    world = lives.begin()
    world.connect("d", session_expiry_s=1000, will=Will("t", b"at once", 1, False))
    late = Will("t", b"later", 1, True, Properties(will_delay_s=30))
    world.connect("e", session_expiry_s=1000, will=late)
    world.connect("f", session_expiry_s=1000, will=late).drop()
    world.connect("g", session_expiry_s=1000, will=late).leave()
    kept_subscriber(world)
    world.turn()
    world = lives.begin(wall_s=10)
    client = back(world)
    assert client.payloads() == [b"at once"]
    world.pass_time(20)
    assert client.payloads() == [b"later"], "that of f"
    world.turn()
    world = lives.begin(wall_s=40)
    client = back(world)
    client.take()
    world.pass_time(30)
    assert client.payloads() == [], "that of e was published while the front was away"


def test_a_user_has_the_rights_of_now(lives: Lives) -> None:
    world = lives.begin()
    kept_subscriber(world, Subscription("t", 1), Subscription("u", 1)).drop()
    world.turn()
    lives.access = access_from(None, "topic readwrite t\n")
    world = lives.begin()
    for topic in ("t", "u"):
        world.connect("p").publish(topic, b"x", 1)
    assert [delivery.message.topic for delivery in world.session("c").queue] == ["t"]


def test_the_session_of_a_user_who_is_no_more_has_ended(lives: Lives) -> None:
    ann = new_entry("ann", b"secret", b"s" * 16, Cost(14, 8, 1)).line + "\n"
    world = lives.begin()
    kept_subscriber(world)
    world.session("c").user = "ann"
    world.session("c").will = Will("t", b"gone", 1, True)
    world.session("c").journal.session(world.session("c"))
    world.connect("p").publish("t", b"x", 1)
    world.turn()
    lives.access = access_from(ann, None)
    assert len(lives.begin().session("c").inflight) == 1
    lives.access = access_from("", None)
    world = lives.begin()
    assert world.broker.sessions == {}
    assert world.broker.router.statistics().subscriptions == 0
    lives.access = access_from(ann, None)
    assert lives.begin().broker.sessions == {}, "for good"


def test_a_subscription_over_a_lowered_limit_is_given_up(lives: Lives) -> None:
    world = lives.begin()
    kept_subscriber(world, Subscription("a", 1), Subscription("b", 1))
    lives.config = FrontConfig(max_subscriptions=1)
    for _ in range(2):
        world = lives.begin()
        assert list(world.broker.router.filters(world.session("c"))) == ["a"]
    lives.config = FrontConfig()
    world = lives.begin()
    assert list(world.broker.router.filters(world.session("c"))) == ["a"], "for good"


# Whatever happens

IDS = ("a", "b", "c")
FILTERS = ("t", "t/+", "#", "$share/g/t")
TOPICS = ("t", "t/1")
EXPIRIES = (0, 3, 1000)

steps = st.lists(
    st.one_of(
        st.tuples(st.just("connect"), st.sampled_from(IDS), st.booleans(), st.sampled_from(EXPIRIES), st.booleans()),
        st.tuples(st.just("drop"), st.sampled_from(IDS)),
        st.tuples(st.just("leave"), st.sampled_from(IDS), st.sampled_from((None, 0, 1000))),
        st.tuples(st.just("subscribe"), st.sampled_from(IDS), st.sampled_from(FILTERS), st.integers(0, 2)),
        st.tuples(st.just("unsubscribe"), st.sampled_from(IDS), st.sampled_from(FILTERS)),
        st.tuples(st.just("publish"), st.sampled_from(IDS), st.sampled_from(TOPICS), st.just(2), st.booleans()),
        st.tuples(st.just("publish"), st.sampled_from(IDS), st.sampled_from(TOPICS), st.integers(0, 2), st.booleans()),
        st.tuples(st.just("answer"), st.sampled_from(IDS), st.sampled_from((Puback, Pubrec, Pubcomp, Pubrel))),
        st.tuples(st.just("time"), st.sampled_from((1, 5))),
        st.tuples(st.just("turn")),
    ),
    min_size=10,
    max_size=60,
)

PROLOGUE = (
    *(("connect", "a", False, 1000, False), ("subscribe", "a", "#", 2)),
    *(("connect", "b", False, 1000, True), ("subscribe", "b", "t", 2)),
)
"""Without it, few of the plays would have a message that is kept for somebody."""


class Play:
    """Clients that do what the steps say, some of it against the rules."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clients: dict[str, Client] = {}
        self._payloads = count()

    def do(self, step: tuple[object, ...]) -> None:
        name, *rest = step
        getattr(self, f"_{name}")(*rest)

    def _connect(self, client_id: str, clean: bool, expiry_s: int, has_will: bool) -> None:
        client = self.world.client(V5)
        will = Will("t", b"will of " + client_id.encode(), 1, False, Properties(will_delay_s=2)) if has_will else None
        client.connect(client_id, clean=clean, will=will, session_expiry_s=expiry_s, receive_maximum=2)
        self.clients[client_id] = client

    def _open(self, client_id: str) -> Client | None:
        client = self.clients.get(client_id)
        return client if client is not None and not client.closed else None

    def _drop(self, client_id: str) -> None:
        if client := self._open(client_id):
            client.drop()

    def _leave(self, client_id: str, expiry_s: int | None) -> None:
        if client := self._open(client_id):
            client.leave(session_expiry_s=expiry_s)

    def _subscribe(self, client_id: str, name: str, qos: int) -> None:
        if client := self._open(client_id):
            client.send_subscribe(Subscription(name, qos, retain_handling=RetainHandling.IF_NEW))

    def _unsubscribe(self, client_id: str, name: str) -> None:
        if client := self._open(client_id):
            client.send(Unsubscribe(client.next_id(), (name,)))

    def _publish(self, client_id: str, topic: str, qos: int, retain: bool) -> None:
        if client := self._open(client_id):
            client.publish(topic, b"%d" % next(self._payloads), qos, retain=retain, message_expiry_s=4)

    def _answer(self, client_id: str, kind: Callable[[int], Puback | Pubrec | Pubcomp | Pubrel]) -> None:
        if client := self._open(client_id):
            for packet_id in (1, 2, 3, 4):
                client.send(kind(packet_id))

    def _time(self, seconds: int) -> None:
        self.world.pass_time(seconds)

    def _turn(self) -> None:
        self.world.turn()


def facts(delivery: Delivery) -> tuple[object, ...]:
    return delivery.message, delivery.qos, delivery.retain, delivery.ids, delivery.packet_id, delivery.received


def had(session: Session, world: World) -> tuple[object, ...]:
    subscriptions = {
        name: (one.qos, one.no_local, one.retain_as_published)
        for name, one in world.broker.router.filters(session).items()
    }
    return (
        *(session.expiry_s, session.expires_at, session.will, session.will_at, subscriptions),
        *(list(map(facts, session.queue)), list(map(facts, session.inflight.values())), session.incoming),
    )


def saved_as(saved: SavedSession) -> tuple[object, ...]:
    subscriptions = {one.filter: (one.qos, one.no_local, one.retain_as_published) for one, _ in saved.subscriptions}
    return (
        *(saved.expiry_s, saved.expires_at, saved.will, saved.will_at, subscriptions),
        *(list(map(facts, saved.queue)), list(map(facts, saved.inflight)), set(saved.incoming)),
    )


def on_the_disk(store: Store, folder: Path) -> tuple[dict[str, tuple[object, ...]], dict[str, Message]]:
    """What a new process would find, looked at through a copy."""
    copy = folder / "copy.sqlite"
    copy.unlink(missing_ok=True)
    target = sqlite3.connect(copy)
    store._database.backup(target)
    target.close()
    found = Store(copy, 0.0)
    sessions = {saved.client_id: saved_as(saved) for saved in found.saved()}
    retained = {message.topic: message for message in found.retained_messages()}
    found.close()
    return sessions, retained


@given(steps)
@settings(max_examples=150)
def test_the_disk_has_what_the_memory_has(make_world: type[World], steps: list[tuple[object, ...]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = Store(folder / "clients.sqlite", 0.0)
        store._database.execute("PRAGMA synchronous = OFF")
        world = make_world()
        restore(world.broker, store, Access())
        play = Play(world)
        for step in (*PROLOGUE, *steps):
            play.do(step)
        while world.broker.dirty or store.pending:
            world.turn()
        sessions, retained = on_the_disk(store, folder)
        kept = {name: had(one, world) for name, one in world.broker.sessions.items() if one.expiry_s}
        for client_id, facts in kept.items():
            assert sessions[client_id] == facts
        assert sessions.keys() == kept.keys()
        assert retained == {message.topic: message for message in world.broker.retained}
        store.close()


@pytest.mark.parametrize("takes", [True, False])
def test_what_is_retained_goes_to_who_keeps_it_now(
    lives: Lives, slow_ports: SlowPorts, takes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def take_over(messages: list[Message]) -> bool:
        taken.extend(message.topic for message in messages)
        return takes

    monkeypatch.setattr(slow_ports, "keeps_retained", True)
    monkeypatch.setattr(slow_ports, "take_over", take_over)
    world = lives.begin()
    client = world.connect("c")
    client.publish("kept", b"x", retain=True)
    client.publish("short", b"x", retain=True, message_expiry_s=10)
    world.turn()
    for times in (1, 1 if takes else 2):
        assert len(lives.begin(20.0, slow_ports).broker.retained) == 0
        assert taken == ["kept"] * times
    assert len(lives.begin(20.0).broker.retained) == (0 if takes else 1), "it is still there"
