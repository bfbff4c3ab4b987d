"""The broker: who gets what of a message, wills and sessions and when they end, retained messages, shared ones."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.access.access import Decision
from ringmq.mqtt_front.access.acl import ALL_RIGHTS, Rights
from ringmq.mqtt_front.access.passwords import Cost, Entry
from ringmq.mqtt_front.broker import MOST_STALE, MOST_WITHDRAWN
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Properties,
    Puback,
    Publish,
    Pubrec,
    RetainHandling,
    Subscription,
    Version,
    Will,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import NEVER_EXPIRES_S, FrontConfig
from ringmq.mqtt_front.message import Message

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, QuickPorts, SlowPorts, World

V31, V311, V5 = Version.V31, Version.V311, Version.V5


# Who gets what


# 3.1.1 [MQTT-3.8.4-6] · 5.0 [MQTT-3.8.4-8]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_the_lower_qos_holds(world: World, version: Version, published: int, granted: int) -> None:
    publisher, subscriber = world.pair(version)
    subscriber.subscribe("t", qos=granted)
    publisher.publish("t", b"x", published)
    assert subscriber.message().qos == min(published, granted)


# 3.1.1 [MQTT-3.3.5-1] · 5.0 [MQTT-3.3.4-2]
@pytest.mark.parametrize("version", Version)
def test_overlapping_filters_give_one_copy_at_the_highest_qos(world: World, version: Version) -> None:
    publisher, subscriber = world.pair(version)
    subscriber.subscribe(Subscription("a/#", 0), Subscription("a/+", 2), Subscription("a/b", 1))
    publisher.publish("a/b", b"x", 2)
    assert subscriber.message().qos == 2


# 5.0 [MQTT-3.8.3-3]
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_ones_own_message_comes_by_the_subscriptions_that_want_it(world: World, qos: int) -> None:
    client, other = world.connect("c"), world.connect("other")
    client.subscribe(Subscription("t", 2, no_local=True, retain_as_published=True), ids=(1,))
    client.subscribe(Subscription("+", 0), ids=(2,))
    client.publish("t", b"own", qos, retain=True)
    own = [one for one in client.take() if isinstance(one, Publish)]
    assert [(one.qos, one.retain, one.properties.subscription_ids) for one in own] == [(0, False, (2,))]
    other.publish("t", b"other", qos, retain=True)
    message = client.message()
    assert (message.qos, message.retain, sorted(message.properties.subscription_ids)) == (qos, True, [1, 2])


# 3.1.1 [MQTT-4.5.0-1] · 5.0 [MQTT-4.5.0-1]
def test_all_who_match_get_it_connected_or_not(world: World) -> None:
    clients = [world.connect(f"c{number}", session_expiry_s=100) for number in range(6)]
    for client in clients:
        client.subscribe("t", qos=1)
    for client in clients[::2]:
        client.drop()
    world.connect("p").publish("t", b"x", 1)
    assert [len(client.messages()) for client in clients] == [0, 1, 0, 1, 0, 1]
    for number in (0, 2, 4):
        again = world.client()
        again.connect(f"c{number}", clean=False)
        assert [type(packet) for packet in again.take()] == [Connack, Publish]


# 3.1.1 [MQTT-4.7.2-1] · 5.0 [MQTT-4.7.2-1]
def test_wildcards_do_not_match_topics_with_a_dollar(world: World) -> None:
    publisher, subscriber = world.pair()
    publisher.publish("$app/kept", retain=True)
    subscriber.subscribe("#", "+/x", "+/kept")
    publisher.publish("$app/x")
    assert subscriber.messages() == []
    subscriber.subscribe("$app/#")
    publisher.publish("$app/x")
    assert [message.topic for message in subscriber.messages()] == ["$app/kept", "$app/x"]


# 3.1.1 [MQTT-4.6.0-5] [MQTT-4.6.0-6] · 5.0 [MQTT-4.6.0-5] [MQTT-4.6.0-6]
@pytest.mark.parametrize("version", Version)
def test_messages_of_a_topic_and_qos_keep_their_order(world: World, version: Version) -> None:
    publisher, subscriber = world.pair(version)
    subscriber.subscribe("t", qos=2)
    sent = [(number * 7 % 3, b"%d" % number) for number in range(60)]
    for number, (qos, payload) in enumerate(sent):
        if number == 20:
            subscriber.connection.block()
        if number == 40:
            subscriber.connection.unblock()
            world.session("subscriber").pump(world.now)
        publisher.publish("t", payload, qos)
    got = subscriber.messages()
    for qos in (1, 2):
        assert [m.payload for m in got if m.qos == qos] == [payload for level, payload in sent if level == qos]
    zeros = [int(message.payload) for message in got if message.qos == 0]
    assert zeros == sorted(zeros)


# 5.0 [MQTT-3.8.3-3]
def test_no_local(world: World) -> None:
    client, other = world.connect("c"), world.connect("other")
    client.subscribe(Subscription("t", 1, no_local=True))
    client.publish("t", b"own", 1)
    assert client.take() == [Puback(2, Reason.NO_MATCHING_SUBSCRIBERS)]
    other.publish("t", b"other", 1)
    assert client.message().payload == b"other"
    client.publish("t", b"own", 0, retain=True)
    client.subscribe(Subscription("t", 1, no_local=True), Subscription("+", 1, no_local=True))
    assert client.messages() == []
    client.subscribe("t")
    assert client.message().payload == b"own"


@pytest.mark.parametrize("version", [V31, V311])
def test_clients_of_mqtt_3_get_their_own_messages(world: World, version: Version) -> None:
    client = world.connect("c", version)
    client.subscribe("t")
    client.publish("t", b"own")
    assert client.message().payload == b"own"


# 5.0 [MQTT-3.3.1-12] [MQTT-3.3.1-13]
@pytest.mark.parametrize("as_published", [False, True])
@pytest.mark.parametrize("retain", [False, True])
def test_retain_as_published(world: World, as_published: bool, retain: bool) -> None:
    publisher, subscriber = world.pair()
    subscriber.subscribe(Subscription("t", 1, retain_as_published=as_published))
    for qos in (0, 1):
        publisher.publish("t", b"x", qos, retain=retain)
    assert [message.retain for message in subscriber.messages()] == [as_published and retain] * 2


@pytest.mark.parametrize(("subscribed", "reason"), [(True, Reason.SUCCESS), (False, Reason.NO_MATCHING_SUBSCRIBERS)])
def test_the_publisher_is_told_whether_anybody_got_it(world: World, subscribed: bool, reason: Reason) -> None:
    publisher, subscriber = world.pair()
    if subscribed:
        subscriber.subscribe("t")
    publisher.publish("t", b"x", 1, packet_id=1)
    publisher.publish("t", b"x", 2, packet_id=2)
    assert publisher.take() == [Puback(1, reason), Pubrec(2, reason)]


def test_the_layer_above_gets_each_message(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    client = world.connect("c")
    client.send_subscribe("t")
    client.publish("t", b"0")
    client.publish("t", b"1", 1, retain=True, message_expiry_s=5, content_type="x")
    assert [(message.payload, here) for message, here in slow_ports.messages] == [(b"0", 1), (b"1", 1)]
    message = slow_ports.messages[1][0]
    assert (message.topic, message.qos, message.retain, message.origin) == ("t", 1, True, "c")
    assert (message.expires_at, message.properties) == (5.0, b"\x03\0\1x")
    assert [done is None for done in slow_ports.dones] == [True, False]


def test_what_comes_from_elsewhere_goes_to_the_clients_here(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    client = world.connect("c")
    client.send_subscribe(Subscription("t", 2, no_local=True))
    assert world.broker.distribute(Message("t", b"x", 1)) == 1
    assert world.broker.distribute(Message("other", b"x", 1)) == 0
    assert (client.message().qos, slow_ports.messages) == (1, [])


# Rights


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("qos", [0, 1])
def test_what_a_client_may_not_read_does_not_reach_it(world: World, version: Version, qos: int) -> None:
    world.rights["c"] = Rights(read=["a/#"], denied=["a/secret"])
    publisher = world.connect("p")
    for topic in ("a/secret", "a/open"):
        publisher.publish(topic, b"kept", qos, retain=True)
    client = world.connect("c", version)
    client.subscribe("a/#", qos=1)
    assert client.message().topic == "a/open"
    for topic in ("a/secret", "a/open"):
        publisher.publish(topic, b"new", qos)
    assert client.message().topic == "a/open"


def test_a_shared_subscription_must_be_readable_as_a_whole(world: World) -> None:
    world.rights["c"] = Rights(read=["a/#"], denied=["a/secret"])
    client = world.connect("c")
    suback = client.subscribe("$share/g/a/#", "$share/g/a/open", "a/#")
    assert suback.reasons == (Reason.NOT_AUTHORIZED, Reason.SUCCESS, Reason.SUCCESS)


def test_a_session_comes_back_with_the_rights_of_now(world: World) -> None:
    world.rights["c"] = Rights(read=["#"])
    client = world.connect("c", session_expiry_s=100)
    client.subscribe("a", "b", "#")
    client.drop()
    world.rights["c"] = Rights(read=["a"])
    client = world.connect("c", clean=False)
    for topic in ("a", "b"):
        world.connect("p").publish(topic)
    assert [message.topic for message in client.messages()] == ["a"]
    assert list(world.broker.router.filters(world.session("c"))) == ["a"]


def test_a_will_is_asked_about_again_when_it_is_sent(world: World) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe("#")
    client = world.connect("c", will=Will("t", b"x", 0, False))
    world.session("c").rights = Rights(write=["other"])
    client.drop()
    assert watcher.messages() == []
    assert world.broker.counters.unauthorized == 1


def test_a_session_belongs_to_its_user(make_world: type[World]) -> None:
    world = make_world(defer=True)

    def connected(user: str | None) -> bool:
        client = world.client()
        client.connect("c", clean=False, session_expiry_s=100)
        entry = None if user is None else Entry(user, Cost(14, 8, 1), b"", b"")
        client.connection.admitted(Decision(Reason.SUCCESS, ALL_RIGHTS, "c", entry))
        connack, *rest = client.take()
        assert isinstance(connack, Connack)
        assert bool(rest) is connack.session_present
        client.subscribe("t", qos=1)
        world.broker.publish(Message("t", b"x", 1), None)
        client.drop()
        return connack.session_present

    assert [connected(user) for user in ("ann", "ann", "bob", "bob", None, None, "ann")] == [
        *(False, True, False, True),
        *(False, True, False),
    ]


# Retained messages


# 3.1.1 [MQTT-3.3.1-5] [MQTT-3.3.1-6] [MQTT-3.3.1-8] [MQTT-3.3.1-9] [MQTT-3.3.1-7]
# 5.0 [MQTT-3.3.1-5] [MQTT-3.3.1-9]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_last_retained_message_comes_with_a_subscription(world: World, version: Version, qos: int) -> None:
    publisher, subscriber = world.pair(version)
    for payload in (b"old", b"new"):
        publisher.publish("a/b", payload, qos, retain=True)
    publisher.publish("a/c", b"other", qos, retain=True)
    subscriber.subscribe("a/#", qos=1)
    got = {message.topic: message for message in subscriber.messages()}
    assert {topic: message.payload for topic, message in got.items()} == {"a/b": b"new", "a/c": b"other"}
    assert {(message.retain, message.qos, message.dup) for message in got.values()} == {(True, min(1, qos), False)}
    publisher.publish("a/b", b"newer", qos, retain=True)
    assert not subscriber.message().retain


# 3.1.1 [MQTT-3.3.1-10] [MQTT-3.3.1-11] · 5.0 [MQTT-3.3.1-6] [MQTT-3.3.1-7]
@pytest.mark.parametrize("version", Version)
def test_an_empty_one_is_delivered_and_clears(world: World, version: Version) -> None:
    publisher, subscriber = world.pair(version)
    publisher.publish("t", b"kept", retain=True)
    subscriber.subscribe("t")
    assert subscriber.message().payload == b"kept"
    publisher.publish("t", b"", retain=True)
    assert (subscriber.message().payload, len(world.broker.retained)) == (b"", 0)
    subscriber.subscribe("t")
    assert subscriber.messages() == []


# 3.1.1 [MQTT-3.3.1-12] · 5.0 [MQTT-3.3.1-8]
@pytest.mark.parametrize("payload", [b"", b"other"])
def test_other_messages_leave_the_retained_one(world: World, payload: bytes) -> None:
    publisher, subscriber = world.pair()
    publisher.publish("t", b"kept", retain=True)
    publisher.publish("t", payload)
    publisher.publish("u", payload)
    subscriber.subscribe("#")
    assert subscriber.payloads() == [b"kept"]


# 5.0 [MQTT-3.3.1-9] [MQTT-3.3.1-10] [MQTT-3.3.1-11]
@pytest.mark.parametrize(
    ("handling", "at_first", "again"),
    [(RetainHandling.ALWAYS, 1, 1), (RetainHandling.IF_NEW, 1, 0), (RetainHandling.NEVER, 0, 0)],
)
def test_retain_handling(world: World, handling: RetainHandling, at_first: int, again: int) -> None:
    publisher, subscriber = world.pair()
    publisher.publish("t", b"kept", retain=True)
    for wanted in (at_first, again):
        subscriber.subscribe(Subscription("t", 0, retain_handling=handling))
        assert len(subscriber.messages()) == wanted
    subscriber.unsubscribe("t")
    subscriber.subscribe(Subscription("t", 0, retain_handling=handling))
    assert len(subscriber.messages()) == at_first


# 3.1.1 [MQTT-3.1.2-7]
@pytest.mark.parametrize("version", Version)
def test_retained_messages_outlive_their_session(world: World, version: Version) -> None:
    publisher = world.connect("p", version)
    publisher.publish("t", b"kept", retain=True)
    publisher.leave()
    subscriber = world.connect("s", version)
    subscriber.subscribe("t")
    assert subscriber.payloads() == [b"kept"]


# 5.0 [MQTT-3.3.2-5] [MQTT-3.3.2-6]
def test_retained_messages_expire(world: World) -> None:
    publisher = world.connect("p")
    publisher.publish("t", b"kept", retain=True, message_expiry_s=10)
    world.pass_time(4)
    subscriber = world.connect("s")
    subscriber.subscribe("t")
    assert subscriber.message().properties.message_expiry_s == 6
    world.pass_time(6)
    subscriber.subscribe("t")
    assert subscriber.messages() == []


def test_one_topic_too_many_is_not_retained(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_retained=1))
    publisher, subscriber = world.pair()
    for topic in ("a", "b"):
        publisher.publish(topic, retain=True)
    subscriber.subscribe("#")
    assert [message.topic for message in subscriber.messages()] == ["a"]
    assert world.broker.counters.not_retained == 1


def test_shared_subscriptions_get_no_retained_messages(world: World) -> None:
    publisher, subscriber = world.pair()
    publisher.publish("t", b"kept", retain=True)
    subscriber.subscribe(*[Subscription("$share/g/t", 1, retain_handling=handling) for handling in RetainHandling])
    assert subscriber.messages() == []


# Shared subscriptions


def members(world: World, count: int, filter_: str = "$share/g/t", qos: int = 1) -> list[Client]:
    clients = [world.connect(f"m{number}", session_expiry_s=100) for number in range(count)]
    for client in clients:
        client.subscribe(filter_, qos=qos)
    return clients


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_members_take_turns(world: World, qos: int) -> None:
    clients, publisher = members(world, 3, qos=2), world.connect("p")
    for number in range(9):
        publisher.publish("t", b"%d" % number, qos)
    got = [client.payloads() for client in clients]
    assert [len(payloads) for payloads in got] == [3, 3, 3]
    assert sorted(chain(*got)) == [b"%d" % number for number in range(9)]


def test_each_group_and_each_plain_subscription_gets_a_copy(world: World) -> None:
    clients = [*members(world, 2), world.connect("x"), world.connect("y")]
    clients[2].subscribe("$share/other/t")
    clients[3].subscribe("t", "$share/g2/#")
    world.connect("p").publish("t", b"x", 1)
    assert Counter(len(client.messages()) for client in clients) == Counter({1: 2, 2: 1, 0: 1})


# 5.0 [MQTT-4.8.2-3]
def test_each_member_has_the_qos_it_was_granted(world: World) -> None:
    one, two = world.connect("1"), world.connect("2")
    one.subscribe("$share/g/t", qos=0)
    two.subscribe("$share/g/t", qos=2)
    for _ in range(2):
        world.connect("p").publish("t", b"x", 1)
    assert (one.message().qos, two.message().qos) == (0, 1)


def test_who_is_away_gets_nothing_while_others_are_there(world: World) -> None:
    clients, publisher = members(world, 3), world.connect("p")
    clients[0].drop()
    clients[1].connection.block()
    for _ in range(4):
        publisher.publish("t", b"x", 1)
    assert len(clients[2].messages()) == 4
    clients[2].connection.block()
    publisher.publish("t", b"waits for who is there", 1)
    assert sum(len(world.session(name).queue) for name in ("m1", "m2")) == 1
    for client in clients[1:]:
        client.drop()
    publisher.publish("t", b"waits for anybody", 1)
    assert sum(len(world.session(name).queue) for name in ("m0", "m1", "m2")) == 2


# 5.0 [MQTT-4.8.2-4] [MQTT-4.8.2-5] [MQTT-4.8.2-6]
def test_a_shared_message_stays_with_whom_it_was_given(world: World) -> None:
    clients, publisher = members(world, 2, qos=2), world.connect("p")
    publisher.publish("t", b"1", 2)
    publisher.publish("t", b"2", 2)
    clients[0].drop()
    assert clients[1].payloads() == [b"2"]
    again = world.client()
    again.connect("m0", clean=False)
    _, repeated = again.take()
    assert isinstance(repeated, Publish)
    assert (repeated.payload, repeated.dup) == (b"1", True)
    again.leave(session_expiry_s=0)
    assert "m0" not in world.broker.sessions
    clients[1].send(Pubrec(1, Reason.UNSPECIFIED_ERROR))
    assert clients[1].messages() == []
    world.pass_time(1000)
    assert clients[1].messages() == []


# Wills


WILL = Will("will", b"gone", 1, False)


# 3.1.1 [MQTT-3.1.2-8] [MQTT-3.1.2-10] [MQTT-3.1.2-12] [MQTT-3.1.2-16] [MQTT-3.1.2-17]
# 5.0 [MQTT-3.1.2-7] [MQTT-3.1.2-8] [MQTT-3.1.2-10] [MQTT-3.1.2-14] [MQTT-3.1.2-15]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_will_of_who_goes_without_a_word(world: World, version: Version, retain: bool, qos: int) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe(Subscription("will", 2, retain_as_published=True))
    client = world.connect("c", version, will=Will("will", b"gone", qos, retain))
    world.connect("without", version).drop()
    assert watcher.messages() == []
    client.drop()
    message = watcher.message()
    assert (message.payload, message.qos, message.retain) == (b"gone", qos, retain)
    assert len(world.broker.retained) == retain
    client.drop()
    world.connect("c", version).drop()
    world.pass_time(1000)
    assert watcher.messages() == []


@pytest.mark.parametrize("version", Version)
def test_the_will_of_who_breaks_the_protocol(world: World, version: Version) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe("will")
    world.connect("c", version, will=WILL).feed(b"\0\0")
    assert watcher.payloads() == [b"gone"]


# 5.0 [MQTT-3.1.2-8]
@pytest.mark.parametrize(
    ("expiry_s", "delay_s", "after_s"),
    [(100, 0, 0), (100, 30, 30), (100, 200, 100), (0, 30, 0), (NEVER_EXPIRES_S, 30, 30)],
)
def test_a_will_waits_no_longer_than_its_session(world: World, expiry_s: int, delay_s: int, after_s: int) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe("will")
    will = Will("will", b"gone", 0, False, Properties(will_delay_s=delay_s))
    world.connect("c", will=will, session_expiry_s=expiry_s).drop()
    if after_s:
        assert world.broker.deadline() == world.now + after_s
        world.pass_time(after_s - 0.5)
        assert watcher.messages() == []
        world.pass_time(0.5)
    assert watcher.payloads() == [b"gone"]
    world.pass_time(1000)
    assert watcher.messages() == []


# 5.0 [MQTT-3.1.3-9]
def test_who_is_back_in_time_has_not_gone(world: World) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe("will")
    will = Will("will", b"gone", 0, False, Properties(will_delay_s=10))
    world.connect("c", will=will, session_expiry_s=100).drop()
    world.pass_time(9)
    client = world.connect("c", clean=False, session_expiry_s=100)
    world.pass_time(50)
    assert watcher.messages() == []
    client.drop()
    world.pass_time(50)
    assert watcher.messages() == []  # The new connection had no will.


# 5.0 [MQTT-3.1.3-10] [MQTT-3.3.2-4] [MQTT-3.3.2-17] [MQTT-3.3.2-18]
def test_a_will_has_its_properties_but_for_the_delay(world: World) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe("will")
    passed_on = {
        "payload_format": 1,
        "content_type": "t",
        "response_topic": "r",
        "correlation_data": b"c",
        "user_properties": (("b", "1"), ("a", "2"), ("b", "0")),
        "message_expiry_s": 7,
    }
    properties = Properties(will_delay_s=5, **passed_on)  # type: ignore[arg-type]
    world.connect("c", will=Will("will", b"gone", 0, False, properties), session_expiry_s=100).drop()
    world.pass_time(5)
    assert watcher.message().properties == Properties(**passed_on)  # type: ignore[arg-type]


def test_a_will_reaches_the_session_of_its_client(world: World) -> None:
    client = world.connect("c", session_expiry_s=100, will=WILL)
    client.subscribe("will", qos=1)
    client.drop()
    again = world.client()
    again.connect("c", clean=False)
    assert [packet.payload for packet in again.take() if isinstance(packet, Publish)] == [b"gone"]


# The end of sessions


# 3.1.1 [MQTT-4.1.0-1] [MQTT-4.1.0-2] · 5.0 [MQTT-3.1.2-23] [MQTT-4.1.0-1] [MQTT-4.1.0-2]
def test_a_session_ends_when_its_time_is_over(world: World) -> None:
    client = world.connect("c", session_expiry_s=10)
    client.subscribe("t")
    world.pass_time(1000)
    assert "c" in world.broker.sessions
    client.drop()
    world.pass_time(9.9)
    client = world.connect("c", clean=False, session_expiry_s=20)
    assert client.connack.session_present
    client.drop()
    world.pass_time(10)
    assert "c" in world.broker.sessions
    world.pass_time(10)
    assert world.broker.sessions == {}
    assert world.broker.router.statistics().subscriptions == 0
    assert not world.connect("c", clean=False).connack.session_present


def test_a_crowd_that_leaves_is_withdrawn_in_turns(make_world: type[World], quick_ports: QuickPorts) -> None:
    """Everybody else would wait until the cluster has heard of all their filters."""
    world = make_world(cluster=quick_ports)
    clients = [world.connect(f"c{number}") for number in range(4)]
    names = [[f"c{number}/{place}" for place in range(MOST_WITHDRAWN // 2)] for number in range(4)]
    for client, theirs in zip(clients, names, strict=True):
        client.subscribe(*theirs)
    for client in clients:
        client.drop()
    removed = quick_ports.removed
    assert len(removed) == MOST_WITHDRAWN
    # A filter that is wanted again meanwhile is announced behind its withdrawal.
    again = names[3][0]
    world.connect("again").subscribe(again)
    assert removed[-1] == again
    while world.broker.withdrawing:
        before = len(removed)
        world.broker.withdraw()
        assert before < len(removed) <= before + MOST_WITHDRAWN
    assert sorted(removed) == sorted(chain.from_iterable(names))


@pytest.mark.parametrize("version", Version)
def test_a_session_can_be_kept_for_ever(world: World, version: Version) -> None:
    fields = {"session_expiry_s": NEVER_EXPIRES_S} if version is V5 else {}
    world.connect("c", version, clean=False, **fields).drop()
    world.pass_time(1e9)
    assert "c" in world.broker.sessions


def test_sessions_of_mqtt_3_have_a_bound(make_world: type[World]) -> None:
    world = make_world(FrontConfig(session_expiry_3_s=60))
    world.connect("c", V311, clean=False).drop()
    world.pass_time(60)
    assert world.broker.sessions == {}


def test_clients_that_come_and_go_leave_no_list_behind(world: World) -> None:
    world.connect("kept", session_expiry_s=50, will=Will("t", b"x", 0, True, Properties(will_delay_s=40))).drop()
    for number in range(2 * MOST_STALE):
        world.connect(f"c{number % 5}", session_expiry_s=10_000).drop()
    assert len(world.broker._due) <= MOST_STALE + 20
    world.pass_time(40)
    assert len(world.broker.retained) == 1
    world.pass_time(10)
    assert "kept" not in world.broker.sessions
    world.pass_time(10_000)
    assert world.broker.sessions == {}
    assert world.broker._due == []
