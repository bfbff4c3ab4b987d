"""Retained messages in turns: all of them arrive, nobody waits for them who has not asked, and nothing piles up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from mqtt_front.acl import Rights
from mqtt_front.config import FrontConfig
from mqtt_front.connection import Connection
from mqtt_front.packets import Packet, Puback, Publish, Suback, Subscription, Unsubscribe, Version
from mqtt_front.replay import LEAST_STEPS, STEPS_A_TURN
from mqtt_front.session import Session
from tests.mqtt_front.front_bench import by_counts_alone

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, World

MANY = 3 * STEPS_A_TURN


def filled(world: World, number: int = MANY, qos: int = 0, size: int = 1) -> Client:
    """`r/0`, `r/1` …"""
    publisher = world.connect("publisher")
    for place in range(number):
        publisher.publish(f"r/{place}", b"x" * size, qos, retain=True)
    publisher.take()
    return publisher


def all_packets(world: World, client: Client, acknowledge: bool = True) -> list[Packet]:
    """Whatever comes until nothing does any more."""
    packets: list[Packet] = []
    while True:
        got = client.take()
        if not got and not world.broker.dirty:
            return packets
        packets += got
        for packet in got:
            if isinstance(packet, Publish) and packet.qos and acknowledge:
                client.send(Puback(packet.packet_id))


def topics_of(packets: list[Packet]) -> list[str]:
    return [packet.topic for packet in packets if isinstance(packet, Publish)]


def numbers(packets: list[Packet]) -> list[int]:
    return [int(topic.removeprefix("r/")) for topic in topics_of(packets)]


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("topic_filter", ["#", "r/#", "r/+", "+/+"])
def test_all_of_them_arrive(make_world: type[World], version: Version, qos: int, topic_filter: str) -> None:
    """Though they are more than fit into an outbox, into the queue, or into one turn."""
    world = make_world(FrontConfig(max_buffer_bytes=20_000, max_queued=100, max_inflight=10))
    filled(world, qos=1, size=50)
    client = world.connect("c", version)
    client.send_subscribe(topic_filter, qos=qos)
    suback, *messages = all_packets(world, client)
    assert isinstance(suback, Suback)
    assert numbers(messages) == list(range(MANY))
    assert all(isinstance(message, Publish) and message.retain for message in messages)
    assert world.broker.counters.publish_dropped == 0


def test_one_turn_looks_at_some_and_others_come_between(world: World) -> None:
    filled(world)
    client, other = world.connect("c"), world.connect("other")
    other.subscribe("t")
    client.send_subscribe("#", "r/#")
    turns = seen = 0
    while world.broker.dirty:
        other.publish("t")
        got = len(client.take())
        assert got <= 2 * (STEPS_A_TURN + 1)  # of two turns
        assert other.payloads() == [b"x"]
        turns, seen = turns + 1, seen + got
        if seen > 2 * MANY:
            break
    assert turns >= MANY // STEPS_A_TURN


def test_looking_in_vain_takes_turns_too(world: World) -> None:
    filled(world)
    client = world.connect("c")
    client.send_subscribe("+/+/none")
    turns = 0
    while world.broker.dirty:
        world.turn()
        turns += 1
    assert turns >= MANY // STEPS_A_TURN


def test_a_storm_of_subscriptions_is_answered_by_one_more_round(world: World) -> None:
    filled(world)
    client = world.connect("c")
    for _ in range(1000):
        client.send_subscribe("#", "r/+")
    assert sum(len(part) for part in client.connection.out) < 100_000
    packets = all_packets(world, client)
    assert len([packet for packet in packets if isinstance(packet, Suback)]) == 1000
    assert MANY * 3 <= len(topics_of(packets)) <= MANY * 4


def test_a_second_subscription_is_served_after_the_first(world: World) -> None:
    filled(world)
    client = world.connect("c")
    client.send_subscribe("r/+")
    client.send_subscribe("r/7")
    client.send_subscribe("r/8")
    assert numbers(all_packets(world, client)) == [*range(MANY), 7, 8]
    client.send_subscribe("r/9")
    assert numbers(all_packets(world, client)) == [9]


def test_who_unsubscribes_gets_no_more_of_it(world: World) -> None:
    filled(world)
    client = world.connect("c")
    client.send_subscribe("r/+", "r/7", "r/8")
    client.send(Unsubscribe(1, ("r/+", "r/7")))
    got = numbers(all_packets(world, client))
    assert got[-1] == 8
    assert got[:-1] == list(range(len(got) - 1))
    assert len(got) <= STEPS_A_TURN + 1


def test_what_waits_is_no_more_than_what_is_subscribed(world: World) -> None:
    """A client that acknowledges nothing, and comes up with ever new filters."""
    filled(world, qos=1)
    client = world.connect("c")
    client.send_subscribe("#", qos=1)
    for number in range(100):
        client.send_subscribe(f"r/{number}")
        client.send(Unsubscribe(1, (f"r/{number}",)))
        client.take()
    client.send_subscribe("r/0", "r/1")
    replay = client.connection._replay
    assert replay is not None
    assert len(replay._waiting) == 2


@pytest.mark.parametrize("max_queued", [0, 1, 100])
def test_it_waits_for_acknowledgements(make_world: type[World], max_queued: int) -> None:
    world = make_world(FrontConfig(max_queued=max_queued, max_inflight=10))
    filled(world, 50, qos=1)
    client = world.connect("c", session_expiry_s=100)
    client.subscribe("r/+", qos=1)
    first = all_packets(world, client, acknowledge=False)
    assert numbers(first) == list(range(10))
    session = world.session("c")
    assert len(session.queue) == min(max_queued // 2, 40)
    for packet in first:
        assert isinstance(packet, Publish)
        client.send(Puback(packet.packet_id))
    assert numbers(all_packets(world, client)) == list(range(10, 50))
    assert session.dropped == 0


def test_it_waits_for_a_client_that_does_not_read(world: World) -> None:
    filled(world)
    client = world.connect("c")
    client.connection.block()
    client.send_subscribe("r/+")
    assert topics_of(all_packets(world, client)) == []
    client.connection.unblock()
    client.connection.go_on()
    assert numbers(all_packets(world, client)) == list(range(MANY))


def test_it_sends_what_there_is_by_then(world: World) -> None:
    publisher = filled(world)
    publisher.publish(f"r/{MANY - 2}", b"mortal", retain=True, message_expiry_s=5)
    client = world.connect("c")
    client.send_subscribe(Subscription("r/+", 0))
    world.pass_time(6)
    publisher.publish(f"r/{MANY - 1}", b"new", retain=True)
    publisher.publish("r/0", b"", retain=True)
    publisher.publish(f"r/{MANY - 3}", b"", retain=True)
    retained = [packet for packet in all_packets(world, client) if isinstance(packet, Publish) and packet.retain]
    assert numbers(list(retained)) == [*range(MANY - 3), MANY - 1]
    assert retained[-1].payload == b"new"


def test_it_has_the_rights_and_the_options_of_the_moment(world: World) -> None:
    filled(world, qos=1)
    world.rights["c"] = Rights(read=["#"])
    client = world.connect("c")
    client.send_subscribe("r/+", qos=1, ids=(7,))
    first = [packet for packet in client.take() if isinstance(packet, Publish)]
    assert {(packet.qos, packet.properties.subscription_ids) for packet in first} == {(1, (7,))}
    client.subscribe("r/+", qos=0)
    for packet in first:
        client.send(Puback(packet.packet_id))
    world.broker.restrict(world.session("c"), Rights(read=["r/+"], denied=[f"r/{MANY - 1}"]))
    last = all_packets(world, client)[-1]
    assert isinstance(last, Publish)
    assert (last.topic, last.qos, last.properties.subscription_ids) == (f"r/{MANY - 2}", 0, ())


# 5.0 [MQTT-3.8.3-3]
def test_own_ones_are_left_out_if_so_wanted(world: World) -> None:
    publisher = filled(world, 3)
    world.connect("other").publish("r/9", retain=True)
    publisher.subscribe(Subscription("r/#", 0, no_local=True))
    assert topics_of(list(publisher.messages())) == ["r/9"]


def test_it_ends_with_the_connection(world: World) -> None:
    filled(world)
    client = world.connect("c", session_expiry_s=100)
    client.send_subscribe("r/+")
    client.drop()
    assert len(all_packets(world, client)) <= STEPS_A_TURN + 1
    again = world.connect("c", clean=False)
    assert all_packets(world, again) == []


def test_a_full_turn_has_a_little_of_it_all_the_same(world: World) -> None:
    filled(world)
    client = world.connect("c")
    world.broker.work.begin(world.broker.turn)
    world.broker.work.left = 0
    client.send_subscribe("r/+")
    assert len(topics_of(client.take())) in range(1, LEAST_STEPS + 1)


def test_it_keeps_nothing_of_who_has_gone(make_world: type[World]) -> None:
    with by_counts_alone() as ours:
        world = make_world()
        filled(world)
        client = world.connect("c")
        client.send_subscribe("r/+", qos=1)
        world.turn()
        assert client.connection._replay is not None
        client.drop()
        world.turn()
        assert "c" not in world.broker.sessions
        del client
        world._inboxes.clear()
        assert [one for one in ours() if isinstance(one, Session)] == [world.session("publisher")]
        assert [one for one in ours() if isinstance(one, Connection)] == [world.session("publisher").line]
