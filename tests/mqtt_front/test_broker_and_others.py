"""The broker beside its sessions' queues and the layer above: who of a group gets a message, and what has to wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringmq.mqtt_front.codec.packets import Puback, Publish
from ringmq.mqtt_front.config import FrontConfig

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import QuickPorts, World


# What waits


def test_expired_messages_make_room_for_new_ones(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_queued=3))
    client = world.connect("c", session_expiry_s=60)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = world.connect("p")
    for number in range(3):
        publisher.publish("t", b"old %d" % number, 1, message_expiry_s=1 if number else 30)
    world.pass_time(2)
    for number in range(3):
        publisher.publish("t", b"new %d" % number, 1)
    assert [one.message.payload for one in world.session("c").queue] == [b"old 0", b"new 0", b"new 1"]
    assert world.broker.counters.expired_messages == 2
    assert world.broker.counters.publish_dropped == 1


def test_what_waits_for_one_client_has_a_bound_in_bytes(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_queued_bytes=1000))
    client = world.connect("c", session_expiry_s=60)
    client.subscribe("t", qos=1)
    client.drop()
    publisher = world.connect("p")
    for _ in range(5):
        publisher.publish("t", b"x" * 400, 1)
    assert len(world.session("c").queue) == 2
    assert world.broker.counters.publish_dropped == 3


def test_a_group_feeds_who_takes_it(world: World) -> None:
    stuck, away = world.connect("stuck", receive_maximum=1), world.connect("away", session_expiry_s=60)
    ready, publisher = world.connect("ready"), world.connect("p")
    for client in (stuck, away, ready):
        client.subscribe("$share/g/t", qos=1)
    away.drop()
    for number in range(10):
        publisher.publish("t", b"%d" % number, 1)
        for packet in ready.take():
            assert isinstance(packet, Publish)
            ready.send(Puback(packet.packet_id))
    assert stuck.payloads() == [b"0"]
    assert not world.session("stuck").queue
    assert not world.session("away").queue


def test_a_group_fills_its_queues_before_anything_is_dropped(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_queued=10, max_inflight=1))
    stuck, away = world.connect("stuck"), world.connect("away", session_expiry_s=60)
    for client in (stuck, away):
        client.subscribe("$share/g/t", qos=1)
    away.drop()
    publisher = world.connect("p")
    for number in range(22):
        publisher.publish("t", b"%d" % number, 1)
    assert len(world.session("stuck").queue) == len(world.session("away").queue) == 10
    assert world.broker.counters.publish_dropped == 1


# With a layer above that says who of a group gets a message


def test_groups_are_served_when_the_layer_above_says_so(make_world: type[World], quick_ports: QuickPorts) -> None:
    quick_ports.serves_groups = True
    world = make_world(cluster=quick_ports)
    publisher, first, second = world.connect("p"), world.connect("1"), world.connect("2")
    first.subscribe("$share/g/a", "a")
    second.subscribe("$share/g/a", "$share/h/+")
    for qos in (0, 1):
        publisher.publish("a", b"%d" % qos, qos)
        assert first.payloads() == [b"%d" % qos]
        assert second.payloads() == []
    assert quick_ports.payloads == [(b"0", 1), (b"1", 1)]
    message = quick_ports.messages[1][0]
    assert world.broker.distribute_shared(message, {"$share/h/+"}) == 1
    assert second.payloads() == [b"1"]
    for _ in range(2):
        assert world.broker.distribute_shared(message, {"$share/g/a", "$share/g/b"}) == 1
    assert (first.payloads(), second.payloads()) == ([b"1"], [b"1"])


def test_the_layer_above_hears_of_every_message_once(make_world: type[World], quick_ports: QuickPorts) -> None:
    world = make_world(cluster=quick_ports)
    publisher, subscriber = world.pair()
    subscriber.subscribe("a")
    for number, fields in enumerate(({}, {"retain": True}, {"message_expiry_s": 9}, {"qos": 1})):
        publisher.publish("a", b"%d" % number, **fields)
    assert quick_ports.payloads == [(b"%d" % one, 1) for one in range(4)]
    assert subscriber.payloads() == [b"0", b"1", b"2", b"3"]
