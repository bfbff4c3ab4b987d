"""Admission: SUBSCRIBEs and CONNECTs of a crowd wait, and nobody else does."""

from __future__ import annotations

import pytest

from ringmq.mqtt_front.codec.encode import encode
from ringmq.mqtt_front.codec.packets import Pingreq, Pingresp, Puback, Publish, Suback, Subscribe, Subscription
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.connection.admission import MOST_UNANSWERED, SHARE_BYTES, SHORT_BYTES, Admission
from ringmq.mqtt_front.connection.budget import ALL_BYTES, CONNECT_BYTES, Work
from ringmq.mqtt_front.connection.reader import WAITING_BYTES
from ringmq.mqtt_front.sessions.session import SessionWriter
from tests.mqtt_front.conftest import Client, SlowPorts, World

LONG = SHORT_BYTES + 1


class Door:
    """An admission, with the calls that it makes."""

    def __init__(self) -> None:
        self.work = Work()
        self.admission = Admission(self.work)
        self.admission.on_room = self._rings
        self.rung = 0

    def _rings(self) -> None:
        self.rung += 1


def writers(count: int) -> list[SessionWriter]:
    """Clients, which are only told apart here."""
    return [object() for _ in range(count)]  # type: ignore[misc]


def test_subscribes_wait_while_too_many_filters_are_unanswered() -> None:
    door = Door()
    first, second, third = writers(3)
    assert not door.admission.holds_subscribe(first, LONG)
    door.admission.unanswered += MOST_UNANSWERED
    assert door.admission.holds_subscribe(second, LONG)
    assert door.admission.holds_subscribe(third, LONG)
    assert door.rung == 0, "an iteration makes no room"
    assert door.admission.next_subscribe() is None
    door.admission.answered()
    assert door.rung == 1
    assert door.admission.next_subscribe() is second
    assert not door.admission.holds_subscribe(second, LONG)
    door.admission.unanswered += 1
    assert door.admission.next_subscribe() is None
    assert door.admission.waiting == 1
    door.admission.answered()
    assert door.admission.next_subscribe() is third


def test_a_short_subscribe_goes_ahead_of_long_ones_up_to_a_bound() -> None:
    door = Door()
    first, second, third = writers(3)
    door.admission.unanswered = MOST_UNANSWERED
    assert door.admission.holds_subscribe(first, LONG)
    assert not door.admission.holds_subscribe(second, SHORT_BYTES)
    door.admission.unanswered = 2 * MOST_UNANSWERED
    assert door.admission.holds_subscribe(third, SHORT_BYTES)


def test_long_subscribes_have_a_share_of_an_iteration() -> None:
    door = Door()
    first, second = writers(2)
    door.work.left = ALL_BYTES - SHARE_BYTES
    assert door.admission.holds_subscribe(first, LONG)
    assert door.rung == 1, "the next iteration makes room"
    assert door.admission.next_subscribe() is None
    door.work.left = ALL_BYTES
    assert door.admission.holds_subscribe(second, LONG), "the other one came first"
    assert door.admission.next_subscribe() is first
    assert door.admission.next_subscribe() is second


def test_connects_wait_for_the_work_of_an_iteration() -> None:
    door = Door()
    many = writers(ALL_BYTES // CONNECT_BYTES + 10)
    held = [writer for writer in many if door.admission.holds_connect(writer)]
    assert 0 < len(held) <= 10
    assert door.rung
    assert door.admission.next_connect() is None
    door.work.left = ALL_BYTES
    admitted = []
    while (writer := door.admission.next_connect()) is not None:
        assert not door.admission.holds_connect(writer)
        admitted.append(writer)
    assert admitted == held


# With a broker


def crowd(world: World, size: int) -> list[Client]:
    """Clients that have subscribed to many filters each."""
    clients = [world.connect(f"crowd-{number}") for number in range(size)]
    for number, client in enumerate(clients):
        filters = tuple(Subscription(f"f/{number}/{place}", 1) for place in range(MOST_UNANSWERED))
        client.send(Subscribe(1, filters))
    return clients


@pytest.mark.parametrize("whole", [True, False], ids=["in one read", "in pieces"])
def test_a_subscribe_that_waits_is_handled_later_with_all_that_follows_it(whole: bool) -> None:
    ports = SlowPorts()
    world = World(cluster=ports)
    world.broker.admission.unanswered = 2 * MOST_UNANSWERED
    client = world.connect("c")
    filters = tuple(Subscription(f"f/{place}", 1) for place in range(40 if whole else 4000))
    packets = (Subscribe(1, filters), Publish("t", b"x", 1, packet_id=2))
    data = b"".join([encode(client.version, packet) for packet in packets])
    piece = len(data) if whole else 5000
    for at in range(0, len(data), piece):
        client.feed(data[at : at + piece])
    assert client.connection.reader.behind
    assert ports.added == []
    assert ports.messages == [], "the order of a client's packets stays"
    world.broker.admission.unanswered = 0
    world.broker.end_iteration()
    world.broker.work.begin(world.broker.iteration)
    assert world.broker.admission.next_subscribe() is client.connection.writer
    client.connection.go_on()
    for _ in range(20):
        world.turn()
    assert not client.connection.reader.behind
    assert len(ports.added) == len(filters)
    assert len(ports.messages) == 1


@pytest.mark.parametrize("filters", [40, 4000])
def test_a_ping_is_answered_while_a_subscribe_waits(filters: int) -> None:
    """A client that gets no PINGRESP takes the server for dead, comes back, and subscribes again."""
    world = World(cluster=SlowPorts())
    client = world.connect("c", keep_alive_s=10)
    world.broker.admission.unanswered = 2 * MOST_UNANSWERED
    client.send(Subscribe(1, tuple(Subscription(f"f/{place}", 1) for place in range(filters))))
    assert not client.connection.pausing, "some packets may still come"
    world.pass_time(9.0)
    client.send(Pingreq())
    client.only(Pingresp)
    assert client.connection.reader.heard_at == world.now
    # What looks like a PINGREQ may be the end of a message.
    data = encode(client.version, Publish("t", b"..\xc0\x00"))
    client.feed(data[:-2])
    client.feed(data[-2:])
    assert client.take() == []
    client.send(Pingreq())
    client.only(Pingresp)
    client.feed(b"0" * 2 * WAITING_BYTES)
    assert client.connection.pausing, "it is not read any more"


def test_other_clients_publish_while_a_crowd_waits() -> None:
    ports = SlowPorts()
    world = World(cluster=ports)
    first, second = crowd(world, 2)
    assert len(ports.added) == MOST_UNANSWERED
    for _ in range(20):
        world.turn()
    assert not first.connection.reader.behind
    assert second.connection.reader.behind
    other = world.connect("other")
    other.publish("t", qos=1, packet_id=7)
    ports.settle(0)
    assert other.only(Puback).packet_id == 7
    added, ports.added = ports.added, []
    for _, done in added:
        done(Reason.SUCCESS)
    assert len(first.only(Suback).reasons) == MOST_UNANSWERED
    assert world.broker.admission.unanswered == 0
    world.broker.work.begin(world.broker.iteration)
    assert world.broker.admission.next_subscribe() is second.connection.writer
