"""What a session keeps and repeats: messages to one client, their identifiers, their order, and how many at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.access.acl import ALL_RIGHTS, Rights
from ringmq.mqtt_front.codec.packets import Connack, Packet, Puback, Pubcomp, Publish, Pubrec, Pubrel, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.journal import NoJournal
from ringmq.mqtt_front.sessions.queue import Delivery
from ringmq.mqtt_front.sessions.session import PACKET_IDS, Session

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, World

V31, V311, V5 = Version.V31, Version.V311, Version.V5


def subscribed(world: World, version: Version = V5, qos: int = 2, **properties: object) -> Client:
    """A subscriber to t whose session is kept."""
    kept = {"session_expiry_s": 1000} if version is V5 else {}
    client = world.connect("c", version, clean=False, **kept, **properties)
    client.subscribe("t", qos=qos)
    return client


def back(world: World, version: Version = V5, **properties: object) -> tuple[Client, list[Packet]]:
    """The subscriber again, and what it gets after its CONNACK."""
    kept = {"session_expiry_s": 1000} if version is V5 else {}
    client = world.client(version)
    client.connect("c", clean=False, **kept, **properties)
    connack, *rest = client.take()
    assert isinstance(connack, Connack)
    return client, rest


def publish(world: World, *payloads: bytes, qos: int = 2, **properties: object) -> None:
    publisher = world.connect("p")
    for payload in payloads:
        publisher.publish("t", payload, qos, **properties)
    publisher.leave()


def seen(packets: list[Packet]) -> list[tuple[bytes, int, bool]]:
    """Payload, packet id and DUP of messages."""
    messages = [packet for packet in packets if isinstance(packet, Publish)]
    assert len(messages) == len(packets), packets
    return [(bytes(message.payload), message.packet_id, message.dup) for message in messages]


# QoS 0, 1 and 2


# 3.1.1 [MQTT-4.3.1-1] [MQTT-3.3.1-2] [MQTT-2.3.1-5] · 5.0 [MQTT-4.3.1-1] [MQTT-3.3.1-2] [MQTT-2.2.1-2]
@pytest.mark.parametrize("version", Version)
def test_qos_0_is_sent_and_forgotten(world: World, version: Version) -> None:
    client = subscribed(world, version)
    publish(world, b"1", qos=0)
    assert seen(client.take()) == [(b"1", 0, False)]
    client.drop()
    publish(world, b"2", qos=0)
    assert back(world, version)[1] == []


# 3.1.1 [MQTT-2.3.1-4] [MQTT-4.3.2-1] [MQTT-2.3.1-6] · 5.0 [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.2-2] [MQTT-4.3.2-3]
@pytest.mark.parametrize("version", Version)
def test_qos_1_until_its_puback(world: World, version: Version) -> None:
    client = subscribed(world, version, qos=1)
    publish(world, b"1", b"2")
    assert seen(client.take()) == [(b"1", 1, False), (b"2", 2, False)]
    client.send(Puback(1))
    assert list(world.session("c").inflight) == [2]
    client.drop()
    client, repeated = back(world, version)
    assert seen(repeated) == [(b"2", 2, True)]
    client.send(Puback(2))
    client.drop()
    assert back(world, version)[1] == []


# 3.1.1 [MQTT-4.3.3-1] [MQTT-4.4.0-1] [MQTT-3.3.1-1]
# 5.0 [MQTT-4.3.3-1] [MQTT-4.3.3-2] [MQTT-4.3.3-3] [MQTT-4.3.3-4] [MQTT-4.3.3-5] [MQTT-4.3.3-6] [MQTT-4.4.0-1]
# 5.0 [MQTT-3.3.1-1] [MQTT-4.4.0-2]
@pytest.mark.parametrize("version", Version)
def test_qos_2_until_its_pubcomp(world: World, version: Version) -> None:
    client = subscribed(world, version)
    publish(world, b"1")
    assert seen(client.take()) == [(b"1", 1, False)]
    client.drop()
    client, repeated = back(world, version)
    assert seen(repeated) == [(b"1", 1, True)]
    client.send(Pubrec(1))
    assert client.take() == [Pubrel(1)]
    client.drop()
    for _ in range(2):
        client, repeated = back(world, version)
        assert repeated == [Pubrel(1)]
        client.drop()
    client, _ = back(world, version)
    client.send(Pubcomp(1))
    client.drop()
    assert back(world, version)[1] == []
    assert world.session("c").inflight == {}


# 5.0 [MQTT-4.4.0-1]
@pytest.mark.parametrize("version", Version)
def test_nothing_is_repeated_while_the_client_stays(world: World, version: Version) -> None:
    client = subscribed(world, version)
    publish(world, b"1")
    client.take()
    world.pass_time(100_000)
    publish(world, b"2")
    assert seen(client.take()) == [(b"2", 2, False)]


# 5.0 [MQTT-4.4.0-2] [MQTT-4.8.2-6]
def test_a_pubrec_with_a_failure_ends_it(world: World) -> None:
    client = subscribed(world)
    publish(world, b"1")
    client.take()
    client.send(Pubrec(1, Reason.QUOTA_EXCEEDED))
    assert client.take() == []
    assert world.session("c").inflight == {}
    client.drop()
    assert back(world)[1] == []


@pytest.mark.parametrize("version", Version)
def test_unknown_identifiers_do_no_harm(world: World, version: Version) -> None:
    client = subscribed(world, version)
    publish(world, b"1", qos=2)
    publish(world, b"2", qos=1)
    client.take()
    client.send(Puback(9), Pubcomp(9))
    if version is V5:
        client.send(Pubrec(9, Reason.UNSPECIFIED_ERROR))
    assert client.take() == []
    assert list(world.session("c").inflight) == [1, 2]
    unknown = Reason.PACKET_IDENTIFIER_NOT_FOUND if version is V5 else Reason.SUCCESS
    client.send(Pubrec(9))
    assert client.take() == [Pubrel(9, unknown)]
    client.send(Pubrec(1), Pubrec(1))
    assert client.take() == [Pubrel(1), Pubrel(1)]
    client.send(Pubcomp(1), Puback(2))
    assert world.session("c").inflight == {}


# 3.1.1 [MQTT-4.3.2-1] · 5.0 [MQTT-2.2.1-4] [MQTT-4.3.2-1] [MQTT-4.3.3-1]
def test_identifiers_in_use_are_passed_over(world: World) -> None:
    client = subscribed(world, qos=1)
    publish(world, b"first")
    client.take()
    session = world.session("c")
    session._next_id = PACKET_IDS - 1
    publish(world, b"a", b"b", b"c")
    assert [packet_id for _, packet_id, _ in seen(client.take())] == [PACKET_IDS, 2, 3]


# While the client is away


# 3.1.1 [MQTT-3.1.2-5] [MQTT-4.6.0-6] [MQTT-4.5.0-1] · 5.0 [MQTT-3.1.2-5] [MQTT-4.5.0-1] [MQTT-4.6.0-5]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_published_meanwhile_comes_after_what_is_repeated(world: World, version: Version, qos: int) -> None:
    client = subscribed(world, version)
    publish(world, b"1", b"2", qos=qos)
    client.take()
    client.drop()
    publish(world, b"3", b"4", qos=qos)
    assert seen(back(world, version)[1]) == [(b"1", 1, True), (b"2", 2, True), (b"3", 3, False), (b"4", 4, False)]


def test_the_queue_is_bounded_and_keeps_the_oldest(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_queued=2, max_inflight=1))
    client = subscribed(world)
    publish(world, b"1", b"2", b"3", b"4")
    assert seen(client.take()) == [(b"1", 1, False)]
    assert world.broker.counters.publish_dropped == 1
    assert world.session("c").dropped == 1
    for packet_id, left in ((1, b"2"), (2, b"3")):
        client.send(Pubrec(packet_id), Pubcomp(packet_id))
        assert [packet.payload for packet in client.take() if isinstance(packet, Publish)] == [left]


# 5.0 [MQTT-3.3.2-5]
@pytest.mark.parametrize("version", Version)
def test_what_expires_meanwhile_does_not_come(world: World, version: Version) -> None:
    client = subscribed(world, version)
    client.drop()
    publish(world, b"short", message_expiry_s=5)
    publish(world, b"long", message_expiry_s=50)
    world.pass_time(5)
    client, packets = back(world, version)
    assert [payload for payload, _, _ in seen(packets)] == [b"long"]
    assert world.broker.counters.expired_messages == 1


# 5.0 [MQTT-3.3.2-6] [MQTT-4.3.3-7]
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_sent_once_is_repeated_though_expired(world: World, qos: int) -> None:
    client = subscribed(world)
    publish(world, b"1", qos=qos, message_expiry_s=10)
    left = [client.message()]
    for seconds in (4, 100):
        client.drop()
        world.pass_time(seconds)
        client, packets = back(world)
        left += [packet for packet in packets if isinstance(packet, Publish)]
    assert [message.properties.message_expiry_s for message in left] == [10, 6, 0]


def test_what_the_client_may_read_no_more_does_not_come(world: World) -> None:
    client = subscribed(world)
    client.subscribe("#", qos=1)
    client.drop()
    publish(world, b"secret")
    world.rights["c"] = Rights(read=["other"])
    assert back(world)[1] == []
    assert world.session("c").queue == type(world.session("c").queue)()
    publish(world, b"later")
    assert dict(world.broker.router.filters(world.session("c"))) == {}


# Receive maximum of the client


def ack(client: Client, message: Publish) -> None:
    if message.qos == 1:
        client.send(Puback(message.packet_id))
    else:
        client.send(Pubrec(message.packet_id), Pubcomp(message.packet_id))


# 5.0 [MQTT-3.3.4-9] [MQTT-3.3.4-10] [MQTT-4.9.0-1] [MQTT-4.9.0-2] [MQTT-4.9.0-3]
@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_at_a_time_than_the_client_takes(world: World, qos: int) -> None:
    client = subscribed(world, receive_maximum=2)
    payloads = [b"%d" % number for number in range(6)]
    publish(world, *payloads, qos=qos)
    publish(world, b"qos 0", qos=0)
    got = client.messages()
    assert [message.payload for message in got] == [b"0", b"1", b"qos 0"]
    del got[2]
    client.subscribe("other")
    for number in range(6):
        ack(client, got[number])
        got += [packet for packet in client.take() if isinstance(packet, Publish)]
        assert len(got) == min(6, number + 3)
    assert [message.payload for message in got] == payloads


@pytest.mark.parametrize("version", [V31, V311])
def test_clients_that_cannot_say_it_have_a_bound_too(make_world: type[World], version: Version) -> None:
    world = make_world(FrontConfig(max_inflight=3))
    client = subscribed(world, version)
    publish(world, *[b"x"] * 5)
    assert len(client.messages()) == 3


# 5.0 [MQTT-3.3.4-9] [MQTT-4.9.0-1]
def test_who_comes_back_with_a_smaller_receive_maximum(world: World) -> None:
    client = subscribed(world, receive_maximum=5)
    publish(world, b"1", b"2", b"3", b"4", b"5", b"6")
    assert len(client.messages()) == 5
    client.send(Pubrec(1))
    client.drop()
    client, packets = back(world, receive_maximum=2)
    assert packets[0] == Pubrel(1)
    assert seen(packets[1:]) == [(b"2", 2, True)]
    publish(world, b"7")
    assert client.take() == []
    client.send(Pubcomp(1))
    assert seen(client.take()) == [(b"3", 3, True)]
    client.send(Pubrec(4), Pubcomp(4))  # It had been sent before: the answer counts.
    assert client.take() == [Pubrel(4)]
    client.send(Pubrec(2), Pubcomp(2), Pubrec(3), Pubcomp(3))
    messages: list[Packet] = [packet for packet in client.take() if isinstance(packet, Publish)]
    assert seen(messages) == [(b"5", 5, True), (b"6", 6, False)]
    client.drop()
    _, packets = back(world, receive_maximum=1)
    assert seen(packets) == [(b"5", 5, True)]


# 5.0 [MQTT-3.1.2-24] [MQTT-3.1.2-25]
def test_who_comes_back_with_a_smaller_packet_size(world: World) -> None:
    client = subscribed(world)
    publish(world, b"x" * 200, b"small")
    client.take()
    client.drop()
    publish(world, b"y" * 200, b"tiny")
    client, packets = back(world, maximum_packet_size=100)
    assert seen(packets) == [(b"small", 2, True), (b"tiny", 4, False)]
    assert list(world.session("c").inflight) == [2, 4]


# A client that does not read


@pytest.mark.parametrize("version", Version)
def test_a_blocked_client_is_kept_waiting(make_world: type[World], version: Version) -> None:
    world = make_world(FrontConfig(max_queued=2))
    client = subscribed(world, version)
    client.connection.block()
    publish(world, b"lost", qos=0)
    publish(world, b"1", b"2", b"lost", qos=1)
    assert client.take() == []
    assert world.broker.counters.publish_dropped == 2
    client.connection.unblock()
    world.session("c").pump(world.now)
    publish(world, b"3", qos=0)
    assert seen(client.take()) == [(b"1", 1, False), (b"2", 2, False), (b"3", 0, False)]


@pytest.mark.parametrize("version", Version)
def test_a_blocked_client_is_still_answered(world: World, version: Version) -> None:
    client = subscribed(world, version)
    publish(world, b"1")
    client.take()
    client.connection.block()
    client.publish("other", qos=1)
    client.send(Pubrec(1), Pubcomp(1))
    assert [type(packet) for packet in client.take()] == [Puback, Pubrel]


# Any history

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 2)),
        st.tuples(st.just("answer"), st.integers(0, 3)),
        st.tuples(st.just("drop"), st.integers(1, 4)),
        st.tuples(st.sampled_from(["block", "unblock"]), st.just(0)),
    ),
    max_size=40,
)


class Subscriber:
    """A good client: answers in any order, remembers what it was to, and tells when the server breaks a rule."""

    def __init__(self, world: World, version: Version) -> None:
        self.world, self.version = world, version
        self.client = subscribed(world, version)
        self.limit = 100
        self.open: dict[int, Publish] = {}
        """Came over this connection and is not fully answered."""
        self.released: set[int] = set()
        self.known_2: set[int] = set()
        self.got: list[bytes] = []

    def look(self) -> None:
        self.take_in(self.client.take())

    def take_in(self, packets: list[Packet]) -> None:
        for packet in packets:
            if isinstance(packet, Publish):
                assert packet.packet_id not in self.open, "an identifier twice at a time"
                self.open[packet.packet_id] = packet
                if packet.qos == 1 or packet.packet_id not in self.known_2:
                    if packet.qos == 1 and packet.dup and bytes(packet.payload) in self.got:
                        continue
                    self.got.append(bytes(packet.payload))
                    if packet.qos == 2:
                        self.known_2.add(packet.packet_id)
            elif isinstance(packet, Pubrel):
                self.known_2.discard(packet.packet_id)
                self.released.add(packet.packet_id)
        assert len(self.open) <= self.limit, "more than the receive maximum"

    def answer(self, which: int) -> None:
        if self.released:
            packet_id = self.released.pop()
            self.open.pop(packet_id, None)
            self.client.send(Pubcomp(packet_id))
        elif self.open:
            message = list(self.open.values())[which % len(self.open)]
            if message.qos == 1:
                del self.open[message.packet_id]
                self.client.send(Puback(message.packet_id))
            else:
                self.client.send(Pubrec(message.packet_id))
        self.look()

    def come_back(self, limit: int) -> None:
        self.look()
        self.client.drop()
        self.open.clear()
        self.released.clear()
        limits = {"receive_maximum": limit} if self.version is V5 else {}
        self.limit = limit if self.version is V5 else 100
        self.client, packets = back(self.world, self.version, **limits)
        self.take_in(packets)


# 3.1.1 [MQTT-4.6.0-5] [MQTT-4.6.0-6] · 5.0 [MQTT-4.6.0-5] [MQTT-4.6.0-6]
@settings(deadline=None, max_examples=150)
@given(EVENTS, st.sampled_from(Version))
def test_whatever_happens_all_comes_once_and_in_order(
    make_world: type[World], events: list[tuple[str, int]], version: Version
) -> None:
    world = make_world()
    subscriber = Subscriber(world, version)
    sent: dict[int, list[bytes]] = {1: [], 2: []}
    for number, (event, value) in enumerate(events):
        connection = subscriber.client.connection
        if event == "publish":
            sent[value].append(b"%d,%d" % (value, number))
            publish(world, sent[value][-1], qos=value)
            subscriber.look()
        elif event == "answer":
            subscriber.answer(value)
        elif event == "drop":
            subscriber.come_back(value)
        elif event == "block":
            connection.block()
        else:
            connection.unblock()
            world.session("c").pump(world.now)
            subscriber.look()
    subscriber.come_back(4)
    for _ in range(300):
        subscriber.answer(0)
    for qos in (1, 2):
        assert [payload for payload in subscriber.got if payload.startswith(b"%d," % qos)] == sent[qos]
    assert world.session("c").inflight == {}


# The record of changes


class Diary(NoJournal):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def queued(self, session: Session, delivery: Delivery) -> None:
        self.lines.append("queued")

    def sent(self, session: Session, delivery: Delivery) -> None:
        self.lines.append(f"sent {delivery.packet_id}")

    def received(self, session: Session, delivery: Delivery) -> None:
        self.lines.append(f"received {delivery.packet_id}")

    def done(self, session: Session, delivery: Delivery) -> None:
        self.lines.append(f"done {delivery.packet_id}")

    def incoming(self, session: Session, packet_id: int, known: bool) -> None:
        self.lines.append(f"incoming {packet_id} {known}")


def test_a_journal_is_told_of_each_change(world: World) -> None:
    diary = Diary()
    world.broker.journal = diary
    client = subscribed(world, receive_maximum=1)
    publish(world, b"1", b"2")
    client.send(Pubrec(1), Pubrec(1), Pubcomp(1), Pubrec(2, Reason.UNSPECIFIED_ERROR))
    client.drop()
    publish(world, b"3", message_expiry_s=1)
    world.pass_time(1)
    client, _ = back(world)
    client.publish("t", qos=2, packet_id=7)
    client.publish("t", qos=2, packet_id=7, dup=True)
    client.send(Pubrel(7), Pubrel(7))
    assert diary.lines == [
        *("sent 1", "queued", "received 1", "done 1", "sent 2", "done 2"),
        *("queued", "done 0", "sent 3", "incoming 7 True", "incoming 7 False"),
    ]


def test_a_session_alone_keeps_what_it_cannot_send() -> None:
    session = Session("c", FrontConfig(max_queued=1), ALL_RIGHTS)
    assert not session.deliver(Message("t", b"x"), 0, False, ())
    assert session.deliver(Message("t", b"x", 1), 1, False, ())
    assert not session.deliver(Message("t", b"x", 1), 1, False, ())
    session.pump(0.0)
    assert len(session.queue) == 1
    assert not session.acknowledged(1, 0.0)
    assert not session.received(1)
    assert not session.completed(1, 0.0)
    assert not session.refused(1, 0.0)
    assert session.accept(1)
    assert not session.accept(1)
    assert session.release(1)
    assert not session.release(1)


# The fast path


def test_nothing_overtakes_what_waits(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_inflight=1))
    client = subscribed(world, qos=1)
    publish(world, b"1", b"2", qos=1)
    client.connection.block()
    client.send(Puback(1))
    client.connection.unblock()
    publish(world, b"3", qos=1)
    client.connection.go_on()
    assert seen(client.take()) == [(b"1", 1, False), (b"2", 2, False)]
    client.send(Puback(2))
    assert seen(client.take()) == [(b"3", 3, False)]


def test_nothing_overtakes_what_is_to_be_repeated(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_inflight=3))
    client = subscribed(world, qos=1)
    publish(world, b"1", b"2", b"3", qos=1)
    client.drop()
    client, repeated = back(world, receive_maximum=2)
    assert seen(repeated) == [(b"1", 1, True), (b"2", 2, True)]
    client.connection.block()
    client.send(Puback(1), Puback(2))
    client.connection.unblock()
    publish(world, b"4", qos=1)
    client.connection.go_on()
    assert seen(client.take()) == [(b"3", 3, True), (b"4", 4, False)]


def test_an_acknowledgement_makes_room_for_the_next_repetition(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_inflight=2))
    client = subscribed(world, qos=1)
    publish(world, b"1", b"2", qos=1)
    client.drop()
    client, repeated = back(world, receive_maximum=1)
    assert seen(repeated) == [(b"1", 1, True)]
    client.send(Puback(1))
    assert seen(client.take()) == [(b"2", 2, True)]
