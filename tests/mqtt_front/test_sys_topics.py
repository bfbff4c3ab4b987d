"""`$SYS`: which values there are, when they are told, and to whom alone."""

from __future__ import annotations

import re
from typing import Any

import pytest

from ringmq.mqtt_front.access.acl import NO_RIGHTS
from ringmq.mqtt_front.codec.packets import Subscription
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.sys_topics import PREFIX, SysTopics
from ringmq.peer.iteration import Iteration

World = Any
Client = Any


@pytest.fixture
def topics(world: World) -> SysTopics:
    return SysTopics("ringmq version 1.2.3", 10.0, world.now)


def told(client: Client) -> dict[str, str]:
    """What has come, by names without the prefix."""
    return {message.topic.removeprefix(PREFIX): message.payload.decode() for message in client.messages()}


def refreshed(topics: SysTopics, world: World, after_s: float = 10.0) -> dict[str, str]:
    """What is kept for those who subscribe, once the next time has come."""
    world.pass_time(after_s)
    topics.refresh(world.broker)
    reader = world.connect("reader")
    reader.subscribe("$SYS/#")
    found = told(reader)
    reader.leave()
    return found


NAMES = {
    "version",
    "uptime",
    "clients/total",
    "clients/connected",
    "clients/disconnected",
    "clients/maximum",
    "clients/expired",
    "messages/received",
    "messages/sent",
    "messages/inflight",
    "messages/stored",
    "publish/messages/received",
    "publish/messages/sent",
    "publish/messages/dropped",
    "bytes/received",
    "bytes/sent",
    "retained messages/count",
    "subscriptions/count",
    "shared_subscriptions/count",
}


def test_all_of_them_are_there(world: World, topics: SysTopics) -> None:
    found = refreshed(topics, world, 0)
    assert set(found) == NAMES
    assert found.pop("version") == "ringmq version 1.2.3"
    assert found.pop("uptime") == "0 seconds"
    assert all(re.fullmatch(r"\d+", value) for value in found.values())


def test_they_are_retained_and_told_with_qos_0(world: World, topics: SysTopics) -> None:
    early, late = world.connect("early"), world.connect("late")
    early.subscribe(PREFIX + "version", qos=2)
    topics.refresh(world.broker)
    message = early.message()
    assert (message.qos, message.retain, message.payload) == (0, False, b"ringmq version 1.2.3")
    late.subscribe(PREFIX + "version", qos=2)
    message = late.message()
    assert (message.qos, message.retain, message.payload) == (0, True, b"ringmq version 1.2.3")


def test_who_asks_for_it_sees_that_they_are_retained(world: World, topics: SysTopics) -> None:
    client = world.connect()
    client.subscribe(Subscription(PREFIX + "version", 0, retain_as_published=True))
    topics.refresh(world.broker)
    assert client.message().retain


def test_only_what_has_changed_is_told_and_not_too_often(world: World, topics: SysTopics) -> None:
    client = world.connect()
    client.subscribe("$SYS/#")
    topics.refresh(world.broker)
    assert set(told(client)) == NAMES
    world.pass_time(9.9)
    topics.refresh(world.broker)
    assert told(client) == {}
    world.pass_time(0.1)
    topics.refresh(world.broker)
    found = told(client)
    assert found["uptime"] == "10 seconds"
    assert found["publish/messages/sent"] == str(len(NAMES))
    assert not found.keys() & {"version", "clients/total", "subscriptions/count", "retained messages/count"}


def test_clients(world: World, topics: SysTopics) -> None:
    stays, sleeps, goes = (
        world.connect("stays"),
        world.connect("sleeps", session_expiry_s=15),
        world.connect("goes"),
    )
    topics.refresh(world.broker)
    goes.leave()
    sleeps.leave()
    found = refreshed(topics, world)
    clients = {name.removeprefix("clients/"): value for name, value in found.items() if name.startswith("clients/")}
    assert clients == {"total": "2", "connected": "1", "disconnected": "1", "maximum": "3", "expired": "0"}
    found = refreshed(topics, world)
    assert (found["clients/total"], found["clients/expired"]) == ("1", "1")
    stays.leave()


def test_messages(world: World, topics: SysTopics) -> None:
    """The retained ones of `$SYS` itself do not count."""
    topics.refresh(world.broker)
    sender, reader, sleeper = world.connect("sender"), world.connect("r2"), world.connect("s", session_expiry_s=99)
    for client in (reader, sleeper):
        client.subscribe("a/#", "$share/g/b", qos=1)
    sleeper.leave()
    sender.publish("a/1", qos=1, retain=True)
    sender.publish("a/2", qos=1)
    found = refreshed(topics, world)
    assert found["retained messages/count"] == "1"
    assert found["messages/inflight"] == "2", "not acknowledged by the reader"
    assert found["messages/stored"] == "5", "those, two that wait for the sleeper, and a retained one"
    assert found["subscriptions/count"] == "4"
    assert found["shared_subscriptions/count"] == "2"
    assert found["publish/messages/received"] == "2"
    assert refreshed(topics, world)["retained messages/count"] == "1"


@pytest.mark.parametrize(
    "name",
    [
        "messages_received",
        "messages_sent",
        "publish_received",
        "publish_sent",
        "publish_dropped",
        "bytes_received",
        "bytes_sent",
    ],
)
def test_what_is_counted_is_told(world: World, topics: SysTopics, name: str) -> None:
    setattr(world.broker.counters, name, 12345)
    shown = name.replace("publish_", "publish/messages/").replace("bytes_", "bytes/").replace("messages_", "messages/")
    assert topics.readings(world.broker)[shown] == 12345


def test_no_interval_no_topics(world: World) -> None:
    topics = SysTopics("x", 0, world.now)
    world.pass_time(1e9)
    topics.refresh(world.broker)
    assert len(world.broker.retained) == 0


def test_the_ports_are_told_nothing(make_world: type[World], slow_ports: Any) -> None:
    world = make_world(cluster=slow_ports)
    SysTopics("x", 10, world.now).refresh(world.broker)
    assert len(world.broker.retained) == len(NAMES)
    assert slow_ports.messages == []


def test_nothing_waits_for_who_is_away(world: World, topics: SysTopics) -> None:
    """So nothing of it comes into a journal."""
    client = world.connect("away", session_expiry_s=99)
    client.subscribe("$SYS/#", qos=2)
    client.leave()
    topics.refresh(world.broker)
    assert not world.session("away").queue
    assert world.broker.counters.publish_sent == 0


def test_who_asks_for_everything_does_not_get_it(world: World, topics: SysTopics) -> None:
    """[MQTT-4.7.2-1]"""
    client = world.connect()
    client.subscribe("#", "+/broker/version", qos=1)
    topics.refresh(world.broker)
    assert client.messages() == []


def test_only_who_may_read_them(world: World, topics: SysTopics) -> None:
    world.rights["poor"] = NO_RIGHTS
    client = world.connect("poor")
    client.subscribe("$SYS/#")
    topics.refresh(world.broker)
    assert client.messages() == []


def test_where_there_is_no_room_they_are_told_but_not_kept(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_retained=3))
    topics = SysTopics("x", 10, world.now)
    client = world.connect()
    client.subscribe("$SYS/#")
    topics.refresh(world.broker)
    assert set(told(client)) == NAMES
    assert len(world.broker.retained) == 3
    world.pass_time(10)
    topics.refresh(world.broker)
    assert topics.readings(world.broker)["retained messages/count"] == 0


async def test_a_front_tells_when_it_sweeps() -> None:
    front = MqttServer(Iteration(), FrontConfig(sys_interval_s=10))
    try:
        kept = front.broker.retained.matching(f"{PREFIX}uptime", 0)
        assert [message.payload for message in kept] == [b"0 seconds"]
        front.iteration._end()
        later = front.iteration.time() + 10
        front.iteration.time = lambda: later
        front._sweep()
        kept = front.broker.retained.matching(f"{PREFIX}uptime", 0)
        assert [message.payload for message in kept] == [b"10 seconds"]
    finally:
        await front.stop()
