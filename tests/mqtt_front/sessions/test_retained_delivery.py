"""Retained messages in turns: all of them arrive, nobody waits for them who has not asked, and nothing piles up."""

from __future__ import annotations

import random
from itertools import count
from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.access.acl import Rights
from ringmq.mqtt_front.codec.packets import (
    Packet,
    Puback,
    Publish,
    RetainHandling,
    Suback,
    Subscription,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection import handlers
from ringmq.mqtt_front.connection.writer import Writer
from ringmq.mqtt_front.sessions.retained_delivery import LEAST_STEPS, STEPS_A_TURN
from ringmq.mqtt_front.sessions.session import Session
from tests.mqtt_front.front_bench import by_counts_alone

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, SlowPorts, World

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


def test_a_storm_of_subscriptions_is_answered_by_one_more_round(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # Those of one iteration share a round: all are read in few.
    monkeypatch.setattr(handlers, "FILTER_BYTES", 50_000)
    filled(world)
    client = world.connect("c")
    for _ in range(1000):
        client.send_subscribe("#", "r/+")
    assert sum(len(part) for part in client.connection.writer.out) < 100_000
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
    replay = client.connection.handlers.replay
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
    publisher.publish("r/0", b"", retain=True)
    publisher.publish(f"r/{MANY - 3}", b"", retain=True)
    retained = [packet for packet in all_packets(world, client) if isinstance(packet, Publish) and packet.retain]
    assert numbers(list(retained)) == [*range(MANY - 3), MANY - 1]


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
    world.broker.work.begin(world.broker.iteration)
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
        assert client.connection.handlers.replay is not None
        client.drop()
        world.turn()
        assert "c" not in world.broker.sessions
        del client
        world._inboxes.clear()
        assert [one for one in ours() if isinstance(one, Session)] == [world.session("publisher")]
        assert [one for one in ours() if isinstance(one, Writer)] == [world.session("publisher").writer]


# What comes live meanwhile


def payloads_of(packets: list[Packet]) -> list[tuple[bytes, bool]]:
    """What messages say, and whether they came as retained ones."""
    return [(bytes(packet.payload), packet.retain) for packet in packets if isinstance(packet, Publish)]


def in_force(cluster: SlowPorts, topic_filter: str) -> None:
    """The layer above says so, of the first that waits for it."""
    place = next(place for place, (waiting, _) in enumerate(cluster.added) if waiting == topic_filter)
    cluster.added.pop(place)[1](Reason.SUCCESS)


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("qos", [0, 1])
def test_what_came_before_the_suback_does_not_come_again(
    make_world: type[World], slow_ports: SlowPorts, version: Version, qos: int
) -> None:
    world = make_world(cluster=slow_ports)
    publisher, client = world.connect("publisher"), world.connect("c", version)
    for topic in ("t/1", "t/2", "t/3"):
        publisher.publish(topic, b"before", retain=True)
    client.send_subscribe("t/+", qos=qos)
    publisher.publish("t/1", b"first", qos, retain=True)
    publisher.publish("t/1", b"live", qos, retain=True)
    publisher.publish("t/2", b"not retained", qos)
    publisher.publish("t/3", b"", retain=True)
    live = all_packets(world, client)
    assert payloads_of(live) == [(b"first", False), (b"live", False), (b"not retained", False), (b"", False)]
    noted = world.session("c").live
    assert noted is not None
    assert noted.mark == 2
    in_force(slow_ports, "t/+")
    suback, *rest = all_packets(world, client)
    assert isinstance(suback, Suback)
    assert payloads_of(rest) == [(b"before", True)]
    assert world.session("c").live is None
    client.subscribe("t/+")
    assert payloads_of(all_packets(world, client)) == [(b"live", True), (b"before", True)]


def test_what_came_while_others_were_sent_does_not_come_again(world: World) -> None:
    publisher = filled(world)
    client = world.connect("c")
    client.send_subscribe("r/+")
    publisher.publish("r/0", b"late", retain=True)
    publisher.publish(f"r/{MANY - 1}", b"early", retain=True)
    publisher.publish("r/new", b"early", retain=True)
    packets = [packet for packet in all_packets(world, client) if isinstance(packet, Publish)]
    assert [packet.topic for packet in packets if packet.retain] == [f"r/{number}" for number in range(MANY - 1)]
    assert [packet.topic for packet in packets if not packet.retain] == ["r/0", f"r/{MANY - 1}", "r/new"]


def test_a_newer_one_comes_after_the_older(make_world: type[World]) -> None:
    """Though the older still waits for an acknowledgement when the newer is published."""
    world = make_world(FrontConfig(max_inflight=2))
    publisher = filled(world, 10, qos=1)
    client = world.connect("c")
    client.subscribe("r/+", qos=1)
    for number in range(10):
        publisher.publish(f"r/{number}", b"new", 1, retain=True)
    packets = all_packets(world, client)
    assert len(packets) == 20
    for number in range(10):
        ours = [packet for packet in packets if isinstance(packet, Publish) and packet.topic == f"r/{number}"]
        assert payloads_of(list(ours)) == [(b"x", True), (b"new", False)]


def test_what_was_dropped_comes_as_a_retained_one(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    publisher, client = world.connect("publisher"), world.connect("c")
    client.send_subscribe("t")
    client.connection.block()
    publisher.publish("t", b"dropped", retain=True)
    assert world.broker.counters.publish_dropped == 1
    client.connection.unblock()
    in_force(slow_ports, "t")
    assert payloads_of(all_packets(world, client)) == [(b"dropped", True)]


@pytest.mark.parametrize("first_goes_on", [False, True])
def test_who_subscribes_again_is_sent_what_came_before(
    make_world: type[World], slow_ports: SlowPorts, first_goes_on: bool
) -> None:
    """But not what came after that, whichever of its packets is answered first."""
    world = make_world(cluster=slow_ports)
    publisher, client = world.connect("publisher"), world.connect("c")
    client.send_subscribe("t/+", "other")
    publisher.publish("t/1", b"between", retain=True)
    client.send_subscribe("t/+")
    publisher.publish("t/2", b"after", retain=True)
    assert payloads_of(all_packets(world, client)) == [(b"between", False), (b"after", False)]
    for topic_filter in ("other", "t/+") if first_goes_on else ("t/+", "other"):
        in_force(slow_ports, topic_filter)
        world.turn()
    assert payloads_of(all_packets(world, client)) == [(b"between", True)]


@pytest.mark.parametrize("order", [["t", "other"], ["other", "t"]])
def test_a_filter_that_is_told_twice_is_sent_for_the_later(
    make_world: type[World], slow_ports: SlowPorts, order: list[str]
) -> None:
    """As both wait for the client to read, it is sent once for both."""
    world = make_world(cluster=slow_ports)
    publisher, client = world.connect("publisher"), world.connect("c")
    client.send_subscribe("t", "other")
    publisher.publish("t", b"between", retain=True)
    client.send_subscribe("t")
    assert payloads_of(all_packets(world, client)) == [(b"between", False)]
    client.connection.block()
    for topic_filter in order:
        in_force(slow_ports, topic_filter)
    client.connection.unblock()
    client.connection.go_on()
    assert payloads_of(all_packets(world, client)) == [(b"between", True)]


def test_one_that_has_ended_goes_on_for_the_next_filter(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    world.connect("publisher").publish("b", b"kept", retain=True)
    client = world.connect("c")
    client.send_subscribe("$SYS/of/nobody/else")
    client.send_subscribe("b")
    client.connection.block()
    world.turn()
    client.connection.unblock()
    in_force(slow_ports, "b")
    assert payloads_of(all_packets(world, client)) == [(b"kept", True)]


def test_another_filter_leaves_alone_what_came_before_it(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    publisher, client = world.connect("publisher"), world.connect("c")
    client.send_subscribe("a/#")
    publisher.publish("a/b", b"1", retain=True)
    client.send_subscribe("+/b", "+/c")
    publisher.publish("a/c", b"2", retain=True)
    assert payloads_of(all_packets(world, client)) == [(b"1", False), (b"2", False)]
    in_force(slow_ports, "a/#")
    assert payloads_of(all_packets(world, client)) == []
    in_force(slow_ports, "+/b")
    in_force(slow_ports, "+/c")
    assert payloads_of(all_packets(world, client)) == [(b"1", True)]


# 5.0 [MQTT-3.8.3-3]
def test_own_ones_come_once_to_the_filter_that_wants_them(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    client = world.connect("c")
    client.send_subscribe(Subscription("t", 0, no_local=True))
    client.publish("t", b"1", retain=True)
    client.send_subscribe("+")
    client.publish("t", b"2", retain=True)
    client.publish("u", b"3", retain=True)
    for topic_filter in ("t", "+"):
        in_force(slow_ports, topic_filter)
    assert payloads_of(all_packets(world, client)) == [(b"2", False), (b"3", False)]


def test_a_copy_for_a_group_stands_for_no_other(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    publisher, client = world.connect("publisher"), world.connect("c")
    client.send_subscribe(Subscription("$share/g/t", 1), Subscription("t", 0))
    client.connection.block()
    publisher.publish("t", b"x", 1, retain=True)
    client.connection.unblock()
    client.connection.go_on()
    assert payloads_of(all_packets(world, client)) == [(b"x", False)]
    for topic_filter in ("$share/g/t", "t"):
        in_force(slow_ports, topic_filter)
    assert payloads_of(all_packets(world, client)) == [(b"x", True)]


def test_nothing_is_noted_once_no_retained_ones_can_follow(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    client = world.connect("c", session_expiry_s=100)
    session = world.session("c")
    never = Subscription("n", 0, retain_handling=RetainHandling.NEVER)
    for lines in ([never], ["$share/g/t"], ["/" * 128], ["a", "b"]):
        client.send_subscribe(*lines)
        assert session.live is not None
        while slow_ports.added:
            in_force(slow_ports, slow_ports.added[0][0])
        world.turn()
        assert (session.live, client.connection.handlers.replay) == (None, None)


def test_who_takes_a_session_over_is_sent_what_it_asks_for(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    publisher, client = world.connect("publisher"), world.connect("c", session_expiry_s=100)
    client.send_subscribe("t", qos=1)
    publisher.publish("t", b"1", 1, retain=True)
    assert payloads_of(all_packets(world, client)) == [(b"1", False)]
    again = world.connect("c", clean=False, session_expiry_s=100)
    assert world.session("c").live is None
    publisher.publish("t", b"2", 1, retain=True)
    again.send_subscribe("t", qos=1)
    in_force(slow_ports, "t")
    packets = all_packets(world, again)
    assert payloads_of(packets) == [(b"2", False), (b"2", True)]
    assert world.session("c").live is None


def test_a_suback_that_is_too_large_ends_it(world: World) -> None:
    client = world.connect("c", maximum_packet_size=40)
    client.send_subscribe(*[f"t/{number}" for number in range(50)])
    assert client.closed


@pytest.mark.parametrize("qos", [0, 1])
@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_each_comes_once_whatever_happens_when(
    make_world: type[World], slow_ports: SlowPorts, seed: int, above: bool, qos: int
) -> None:
    """What was kept when the client subscribed at most, then all that was published after that, in order.

    `above`: the layer above keeps it, after the clients here were given it.
    """
    chance, cluster = random.Random(seed), slow_ports
    cluster.keeps_retained = above
    world = make_world(FrontConfig(max_inflight=4), cluster=cluster)
    publisher, client = world.connect("publisher"), world.connect("c")
    topics = [f"r/{number}" for number in range(6)]
    published: dict[str, list[int]] = {topic: [] for topic in topics}
    since: dict[str, int] = {}
    packets: list[Packet] = []
    numbers_of = count()

    def publish() -> None:
        topic = chance.choice(topics)
        published[topic].append(next(numbers_of))
        publisher.publish(topic, str(published[topic][-1]).encode(), qos, retain=True)
        if above:
            world.broker.retained.set(cluster.messages[-1][0])

    def subscribe() -> None:
        fresh = [topic for topic in topics if topic not in since]
        if fresh:
            chosen = chance.sample(fresh, chance.randint(1, len(fresh)))
            since.update({topic: len(published[topic]) for topic in chosen})
            client.send_subscribe(*chosen, qos=qos)

    def answer() -> None:
        if cluster.added:
            in_force(cluster, chance.choice(cluster.added)[0])

    def take() -> None:
        for packet in client.take():
            packets.append(packet)
            if isinstance(packet, Publish) and packet.qos:
                client.send(Puback(packet.packet_id))

    for _ in range(100):
        chance.choice([publish, publish, subscribe, answer, take])()
    while cluster.added:
        answer()
    packets += all_packets(world, client)
    for topic, at in since.items():
        got = [int(packet.payload) for packet in packets if isinstance(packet, Publish) and packet.topic == topic]
        after = published[topic][at:]
        assert got[len(got) - len(after) :] == after
        before = got[: len(got) - len(after)]
        assert before == published[topic][max(0, at - 1) : at] or (after and not before)
