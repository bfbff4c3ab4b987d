"""The fast path has the outcome of the general path, whatever comes, and the packets that may take it do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.codec.codec import decode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Puback, Publish, Subscription, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.budget import DELIVERY_BYTES, FAST_BYTES, NEW_TOPIC_BYTES, PACKET_BYTES
from ringmq.mqtt_front.connection.fast_path import FastPath, distribute_fast
from ringmq.mqtt_front.connection.handlers import Handlers
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.journal import NoJournal
from ringmq.mqtt_front.sessions.queue import Delivery
from ringmq.mqtt_front.sessions.session import PACKET_IDS, Session

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, SlowPorts, World

V311, V5 = Version.V311, Version.V5
Op = tuple[Any, ...]
METHODS = ("publish_0", "publish_1", "puback")


@contextmanager
def general_path_only() -> Iterator[None]:
    with ExitStack() as stack:
        for method in METHODS:
            stack.enter_context(patch.object(FastPath, method, lambda *arguments: -1))
        yield


@contextmanager
def fast_path_only() -> Iterator[None]:
    with patch.object(Handlers, "handle", side_effect=AssertionError("the general path")):
        yield


# Both paths have the same outcome

SUBSCRIBERS: dict[str, tuple[Version, str | Subscription, dict[str, Any]]] = {
    "no wishes": (V311, Subscription("t/+", 1), {}),
    "no wishes, 5.0": (V5, Subscription("#", 2), {}),
    "few at a time": (V5, Subscription("t/1", 1), {"receive_maximum": 2}),
    "stays": (V5, Subscription("t/1", 1), {"session_expiry_s": 100}),
    "QoS 0": (V311, Subscription("t/2", 0), {}),
    "with an alias": (V5, Subscription("t/2", 1), {"topic_alias_maximum": 1}),
    "small packets": (V5, Subscription("t/1", 1), {"maximum_packet_size": 60}),
    "no local": (V5, Subscription("t/3", 1, no_local=True), {}),
    "of a group": (V5, Subscription("$share/g/t/3", 1), {}),
}
ODD = (
    b"\x32\x07\0\3t/1\0\0",  # no identifier
    b"\x32\x05\0\3t/1",
    b"\x32\x06\0\3t/1\1",
    b"\x32\x04\0\0\0\1",
    b"\x32\x05\0\0\0\1\0",
    b"\x32\x07\0\1\xff\0\1\0x",
    b"\x32\x07\0\1+\0\1\0x",
    b"\x32\x09\0\5$SYS/\0\1",
    b"\x32\x0a\0\5$SYS/\0\1\0",
    b"\x32\x09\0\1t\0\1\2\1\1x",  # a property in 5.0
    b"\x32\x00",
    b"\x32\x01\0",
    b"\x40\x02\0\0",
    b"\x40\x02\0\x63",
    b"\x40\x03\0\1\0",
    b"\x62\x02\0\7",
)


class Play:
    """Publishers and subscribers of one broker, and all that happens to them."""

    def __init__(self, make_world: type[World], names: list[str]) -> None:
        self.world = make_world(FrontConfig(max_queued=3, max_inflight=4, receive_maximum=5))
        self.publishers = [self.world.connect("3", V311), self.world.connect("5", V5)]
        self.subscribers = [self._subscriber(name) for name in names]
        self.log: list[object] = []
        self._unacknowledged: dict[int, list[int]] = {}

    def _subscriber(self, name: str) -> Client:
        version, subscription, properties = SUBSCRIBERS[name]
        client = self.world.connect(name, version, **properties)
        client.subscribe(subscription)
        return client

    def publish(self, who: int, topic: int, qos: int, special: int, burst: int) -> None:
        client = self.publishers[who]
        properties = {"message_expiry_s": 10} if special == 1 and client.version is V5 else {}
        for number in range(burst):
            client.publish(f"t/{topic}", b"%d" % number * 20, qos, retain=special == 2, dup=special == 3, **properties)

    def feed(self, who: int, odd: int) -> None:
        self.publishers[who].feed(ODD[odd])

    def acknowledge(self, who: int, most: int) -> None:
        number = who % len(self.subscribers)
        waiting = self._unacknowledged.get(number, [])
        for packet_id in waiting[:most]:
            self.subscribers[number].send(Puback(packet_id))
        del waiting[:most]

    def block(self, who: int) -> None:
        self.subscribers[who % len(self.subscribers)].connection.block()

    def unblock(self, who: int) -> None:
        connection = self.subscribers[who % len(self.subscribers)].connection
        connection.unblock()
        connection.go_on()

    def drop(self, who: int) -> None:
        self.subscribers[who % len(self.subscribers)].drop()

    def turn(self) -> None:
        self.world.turn()
        for number, client in enumerate(self.subscribers):
            for first, body in PacketReader().feed(client.inbox):
                packet = decode(client.version, first, body)
                if isinstance(packet, Publish) and packet.qos == 1:
                    self._unacknowledged.setdefault(number, []).append(packet.packet_id)
        for client in (*self.publishers, *self.subscribers):
            self.log.append(client.inbox)
            client.inbox = b""

    def outcome_of(self, ops: list[Op]) -> list[object]:
        for name, *arguments in ops:
            getattr(self, name)(*arguments)
        self.turn()
        for session in self.world.broker.sessions.values():
            inflight = [(number, one.packet_id, one.qos, one.message) for number, one in session.inflight.items()]
            self.log += [session.client_id, inflight, [one.message for one in session.queue], session.dropped]
        return [*self.log, self.world.broker.counters]


def compare(make_world: type[World], names: list[str], ops: list[Op]) -> None:
    fast = Play(make_world, names).outcome_of(ops)
    with general_path_only():
        assert Play(make_world, names).outcome_of(ops) == fast


OPS = st.one_of(
    st.tuples(
        st.just("publish"),
        st.integers(0, 1),
        st.integers(1, 3),
        st.sampled_from([1, 1, 1, 0, 2]),
        st.sampled_from([0, 0, 0, 1, 2, 3]),
        st.integers(1, 5),
    ),
    st.tuples(st.just("acknowledge"), st.integers(0, 4), st.integers(1, 5)),
    st.tuples(st.just("turn")),
    st.tuples(st.sampled_from(["block", "unblock", "drop"]), st.integers(0, 4)),
    st.tuples(st.just("feed"), st.integers(0, 1), st.integers(0, len(ODD) - 1)),
)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.sampled_from(sorted(SUBSCRIBERS)), min_size=1, max_size=4, unique=True), st.lists(OPS, max_size=25))
@example(["no wishes"], [("publish", 1, 1, 1, 0, 5), ("turn",), ("acknowledge", 0, 2), ("publish", 0, 1, 1, 0, 2)])
@example(["few at a time"], [("publish", 0, 1, 1, 0, 5), ("turn",), ("acknowledge", 0, 1), ("acknowledge", 0, 5)])
@example(["no wishes, 5.0"], [("publish", 1, 1, 2, 0, 5), ("publish", 1, 1, 1, 0, 2), ("turn",)])
@example(["stays"], [("publish", 1, 1, 1, 0, 2), ("drop", 0), ("publish", 1, 1, 1, 0, 5)])
@example(["no wishes"], [("block", 0), ("publish", 1, 1, 1, 0, 5), ("unblock", 0), ("turn",)])
def test_both_paths_have_the_same_outcome(make_world: type[World], names: list[str], ops: list[Op]) -> None:
    compare(make_world, names, ops)


@pytest.mark.parametrize("name", SUBSCRIBERS)
def test_each_kind_of_receiver_gets_the_same_on_both_paths(make_world: type[World], name: str) -> None:
    everywhere = [("publish", who, topic, 1, 0, 2) for topic in (1, 2, 3) for who in (0, 1)]
    compare(make_world, [name], [*everywhere, ("turn",), ("acknowledge", 0, 3), *everywhere])


@pytest.mark.parametrize("who", [0, 1])
@pytest.mark.parametrize("odd", range(len(ODD)))
def test_odd_packets_have_the_same_outcome_on_both_paths(make_world: type[World], who: int, odd: int) -> None:
    compare(make_world, ["no wishes"], [("feed", who, odd)])


# The packets that take the fast path


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("version", [V311, V5])
def test_messages_and_their_acknowledgements_take_the_fast_path(world: World, version: Version, qos: int) -> None:
    publisher, client = world.pair(version)
    client.subscribe("t", qos=1)
    with fast_path_only():
        for payload in (b"", b"1", b"2" * 1000):
            publisher.publish("t", payload, qos)
            message = client.message()
            assert (message.payload, message.qos, message.retain, message.dup) == (payload, qos, False, False)
            if qos:
                assert publisher.only(Puback).reason is Reason.SUCCESS
                client.send(Puback(message.packet_id))
                assert not world.session("subscriber").inflight


@pytest.mark.parametrize("version", [V311, V5])
def test_messages_without_receivers_take_the_fast_path(world: World, version: Version) -> None:
    publisher = world.connect("publisher", version)
    with fast_path_only():
        publisher.publish("t", b"x", 1, packet_id=7)
    answer = publisher.only(Puback)
    assert answer.packet_id == 7
    assert answer.reason is (Reason.NO_MATCHING_SUBSCRIBERS if version is V5 else Reason.SUCCESS)


@pytest.mark.parametrize("version", [V311, V5])
def test_a_longer_acknowledgement_is_looked_at(world: World, version: Version) -> None:
    publisher, client = world.pair(version)
    client.subscribe("t", qos=1)
    publisher.publish("t", b"x", 1, packet_id=1)
    client.feed(b"\x40\x03\0\1\x07")  # no reason of 5.0, and too long for 3.1.1
    assert client.closed


def test_an_identifier_in_use_is_passed_over(world: World) -> None:
    publisher, client = world.pair(V311)
    client.subscribe("t", qos=1)
    session = world.session("subscriber")
    publisher.publish("t", b"kept", 1)
    session._next_id = PACKET_IDS - 1
    for _ in range(2):
        publisher.publish("t", b"x", 1)
    assert [message.packet_id for message in client.messages()] == [1, PACKET_IDS, 2]


# The fast path waits for the cluster, and notifies the journal


@pytest.mark.parametrize("version", [V311, V5])
def test_acknowledgements_wait_for_the_layer_above(
    make_world: type[World], quick_ports: SlowPorts, version: Version
) -> None:
    world = make_world(cluster=quick_ports)
    publisher, client = world.pair(version)
    client.subscribe("t", qos=1)
    with fast_path_only():
        for packet_id in (5, 6, 7):
            publisher.publish("t", b"%d" % packet_id, 1, packet_id=packet_id)
    assert len(client.messages()) == 3
    assert quick_ports.payloads == [(b"5", 1), (b"6", 1), (b"7", 1)]
    assert [(message.topic, message.origin, message.qos) for message, _ in quick_ports.messages] == [
        ("t", "publisher", 1)
    ] * 3
    quick_ports.settle(1)
    assert publisher.take() == []
    quick_ports.settle(0)
    assert [packet.packet_id for packet in publisher.take() if isinstance(packet, Puback)] == [5, 6]


def test_no_more_is_taken_than_may_be_unanswered(make_world: type[World], quick_ports: SlowPorts) -> None:
    world = make_world(FrontConfig(receive_maximum=2), cluster=quick_ports)
    old, new = world.connect("3", V311), world.connect("5", V5)
    with fast_path_only():
        for client in (old, new):
            for _ in range(3):
                client.publish("t", b"x", 1)
    assert old.connection.pausing
    assert not old.closed
    assert new.closed_with(Reason.RECEIVE_MAXIMUM_EXCEEDED)


class Told(NoJournal):
    def __init__(self) -> None:
        self.told: list[tuple[str, int]] = []

    def sent(self, session: Session, delivery: Delivery) -> None:
        self.told.append(("sent", delivery.packet_id))

    def done(self, session: Session, delivery: Delivery) -> None:
        self.told.append(("done", delivery.packet_id))


def test_the_journal_is_told_of_who_stays(world: World) -> None:
    journal = Told()
    world.broker.journal = journal
    publisher, client = world.connect("publisher"), world.connect("c", session_expiry_s=100)
    client.subscribe("t", qos=1)
    publisher.publish("t", b"x", 1)
    client.send(Puback(client.message().packet_id))
    assert journal.told == [("sent", 1), ("done", 1)]


def test_one_turn_gathers_no_more_than_half_of_what_may_wait(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_buffer_bytes=1000))
    publisher, client = world.pair(V311)
    client.subscribe("t", qos=1)
    session = world.session("subscriber")
    for _ in range(2):
        for _ in range(8):
            publisher.publish("t", bytes(95), 1)
        assert (len(session.inflight), len(session.queue)) == (5, 3)
        assert world.broker.dirty.count(client.connection.writer) == 1
        messages = client.messages() + client.messages()
        assert len(messages) == 8
        client.send(*[Puback(message.packet_id) for message in messages])


@pytest.mark.parametrize("version", [V311, V5])
def test_a_topic_that_is_new_takes_more_of_the_turn(world: World, version: Version) -> None:
    publisher, client = world.pair(version)
    client.subscribe("#", qos=1)
    spent, work = [], world.broker.work
    with fast_path_only():
        for _ in range(3):
            left = work.left
            publisher.publish("t", b"x", 1)
            spent.append(left - work.left)
    assert spent[0] - spent[1] == NEW_TOPIC_BYTES - FAST_BYTES
    assert spent[1] == spent[2] > PACKET_BYTES + DELIVERY_BYTES


def test_what_has_expired_makes_room(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_queued=1))
    publisher, client = world.connect("publisher"), world.connect("c", session_expiry_s=100)
    client.subscribe("t", qos=1)
    client.drop()
    publisher.publish("t", b"mortal", 1, message_expiry_s=5)
    world.pass_time(6)
    publisher.publish("t", b"kept", 1)
    assert [one.message.payload for one in world.session("c").queue] == [b"kept"]


def test_retained_messages_go_on_when_there_is_room_for_them(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_inflight=1, max_queued=0))
    publisher, client = world.pair(V311)
    for topic in "ab":
        publisher.publish(topic, b"x", 1, retain=True)
    client.subscribe("+", qos=1)
    client.send(Puback(client.message().packet_id))
    world.turn()
    assert client.message().topic == "b"


# Messages from other peers


def audience(world: World) -> dict[str, Client]:
    """One client of each kind that the fast path must distinguish."""
    clients = {version.name: world.connect(version.name, version) for version in Version}
    for client in clients.values():
        client.subscribe("a/#", qos=1)
    clients["narrow"] = world.connect("narrow", maximum_packet_size=100)
    clients["narrow"].subscribe("a/b")
    clients["away"] = world.connect("away", session_expiry_s=60)
    clients["away"].subscribe("a/b", qos=2)
    clients["away"].drop()
    clients["shared"] = world.connect("shared")
    clients["shared"].subscribe("$share/g/a/b")
    clients["elsewhere"] = world.connect("elsewhere")
    clients["elsewhere"].subscribe("c")
    return clients


@pytest.mark.parametrize("special", [False, True])
def test_messages_from_other_peers_have_the_same_outcome_on_both_paths(make_world: type[World], special: bool) -> None:
    got = []
    for fast in (True, False):
        world = make_world()
        clients = audience(world)
        if special:  # then all of them take the general path
            clients["numbered"] = world.connect("numbered")
            clients["numbered"].subscribe(Subscription("a/b", 0), ids=(7,))
        if fast:
            count = distribute_fast(world.broker, b"a/b", b"\xffx")
        else:
            count = world.broker.distribute_unshared(Message("a/b", b"\xffx"))
        sent = {name: client.take() for name, client in clients.items() if name != "away"}
        got.append((count, sent, world.broker.counters.publish_sent, world.broker.counters.messages_sent))
    assert got[0] == got[1]
    assert [len(packets) for packets in got[0][1].values()] == [1, 1, 1, 1, 0, 0] + [1] * special


def test_distributing_to_no_topic_name_raises(world: World) -> None:
    with pytest.raises(PacketError):
        distribute_fast(world.broker, b"a/#", b"x")
