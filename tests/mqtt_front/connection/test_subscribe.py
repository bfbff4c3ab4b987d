"""SUBSCRIBE and UNSUBSCRIBE: the answers, what they wait for, and what of them is told to the layer above."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.access.acl import Rights
from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Disconnect,
    Pingreq,
    Pingresp,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.matching.topics import MAX_LEVELS

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import SlowPorts, World

V31, V311, V5 = Version.V31, Version.V311, Version.V5

FAILURE_3 = Reason.UNSPECIFIED_ERROR


# 3.1.1 [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-4] [MQTT-3.8.4-5] [MQTT-3.9.3-1] [MQTT-3.9.3-2] [MQTT-2.3.1-7]
# 5.0 [MQTT-3.8.4-1] [MQTT-3.8.4-2] [MQTT-3.8.4-5] [MQTT-3.8.4-6] [MQTT-3.8.4-7] [MQTT-3.9.3-1] [MQTT-3.9.3-2]
# 5.0 [MQTT-2.2.1-6]
@pytest.mark.parametrize("version", Version)
def test_each_filter_has_its_reason_in_order(make_world: type[World], version: Version) -> None:
    world = make_world(FrontConfig(max_subscriptions=4))
    world.rights["c"] = Rights(read=["a/#", "b", "$SYS/#"])
    client = world.connect("c", version)
    lines = [("a/b", 2), ("a/#", 0), ("secret", 1), ("b", 1), ("a/b", 1), ("$share/g/a/#", 1), ("a/x", 1)]
    suback = client.subscribe(*[Subscription(*line) for line in lines])
    wanted = [2, 0, Reason.NOT_AUTHORIZED, 1, 1, 1, Reason.QUOTA_EXCEEDED]
    if version is not V5:
        wanted = [reason if reason <= 2 else FAILURE_3 for reason in wanted]
    assert list(suback.reasons) == wanted
    assert world.broker.counters.unauthorized == 1
    assert {name: receiver.qos for name, receiver in world.broker.router.filters(world.session("c")).items()} == {
        "a/b": 1,
        "a/#": 0,
        "b": 1,
        "$share/g/a/#": 1,
    }


@pytest.mark.parametrize("version", Version)
def test_a_shared_filter_that_the_layer_above_does_not_serve(
    make_world: type[World], quick_ports: SlowPorts, version: Version
) -> None:
    world = make_world(cluster=quick_ports)
    quick_ports.unserved = {"$share/g/a"}
    suback = world.connect("c", version).subscribe("a", "$share/g/a", "$share/g/b", qos=1)
    assert list(suback.reasons) == [1, Reason.SHARED_SUBSCRIPTIONS_NOT_SUPPORTED if version is V5 else FAILURE_3, 1]
    assert set(world.broker.router.filters(world.session("c"))) == {"a", "$share/g/b"}


# 3.1.1 [MQTT-4.7.1-2] [MQTT-4.7.1-3] [MQTT-4.7.3-1] [MQTT-4.8.0-1]
# 5.0 [MQTT-4.7.0-1] [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.13.1-1]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("wrong", ["a/#/b", "ab/+e", "a+", "#a", "", "$share/g/a#"])
@pytest.mark.parametrize("unsubscribing", [False, True])
def test_what_is_no_filter_closes(world: World, version: Version, wrong: str, unsubscribing: bool) -> None:
    client = world.connect("c", version, clean=False, **({"session_expiry_s": 60} if version is V5 else {}))
    client.subscribe("kept", qos=1)
    if unsubscribing:
        client.send(Unsubscribe(9, ("kept", wrong)))
    else:
        client.send_subscribe("a", wrong, "b", qos=1)
    answer = client.take()
    assert client.closed
    assert "topic filter" in client.connection.why
    assert answer == (
        [Disconnect(Reason.MALFORMED_PACKET, Properties(reason_string=client.connection.why))] if version is V5 else []
    )
    # Nothing of the packet was done.
    assert set(world.broker.router.filters(world.session("c"))) == {"kept"}


# 5.0 [MQTT-4.8.2-1] [MQTT-4.8.2-2]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("wrong", ["$share/g", "$share//t", "$share/+/t", "$share/g/"])
def test_what_is_no_shared_filter_closes_in_5_0_alone(
    make_world: type[World], quick_ports: SlowPorts, version: Version, wrong: str
) -> None:
    world = make_world(cluster=quick_ports)
    client = world.connect("c", version)
    if version is V5:
        client.send_subscribe("a", wrong, "b", qos=1)
        assert client.closed_with(Reason.MALFORMED_PACKET)
    else:
        assert list(client.subscribe("a", wrong, "b", qos=1).reasons) == [1, FAILURE_3, 1]
        client.unsubscribe(wrong)
        assert not client.closed


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("unwanted", ["/" * MAX_LEVELS, "$share/g/" + "/" * MAX_LEVELS])
def test_a_filter_that_is_not_accepted_fails_alone(world: World, version: Version, unwanted: str) -> None:
    client = world.connect("c", version)
    suback = client.subscribe("a", unwanted, "b", qos=1)
    assert list(suback.reasons) == [1, Reason.TOPIC_FILTER_INVALID if version is V5 else FAILURE_3, 1]
    assert not client.closed


# 3.1.1 [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.10.4-6] [MQTT-2.3.1-7]
# 5.0 [MQTT-3.10.4-4] [MQTT-3.10.4-5] [MQTT-3.10.4-6] [MQTT-3.11.3-1] [MQTT-3.11.3-2] [MQTT-2.2.1-6]
@pytest.mark.parametrize("version", Version)
def test_unsubscribing_is_answered_whatever_was_there(world: World, version: Version) -> None:
    client = world.connect("c", version)
    client.subscribe("a", "b", "$share/g/a")
    answer = client.unsubscribe("none", "a", "a", "$share/g/a", "$share/other/a")
    none = Reason.NO_SUBSCRIPTION_EXISTED
    done = (none, Reason.SUCCESS, none, Reason.SUCCESS, none)
    assert answer.reasons == (done if version is V5 else ())
    world.connect("p").publish("a")
    world.connect("p").publish("b")
    assert [message.topic for message in client.messages()] == ["b"]


# 3.1.1 [MQTT-3.10.4-3] · 5.0 [MQTT-3.10.4-3]
@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_on_its_way_is_completed_after_unsubscribing(world: World, qos: int) -> None:
    client = world.connect("c", session_expiry_s=100)
    client.subscribe("t", qos=2)
    world.connect("p").publish("t", b"x", qos)
    client.message()
    client.unsubscribe("t")
    client.drop()
    client = world.client()
    client.connect("c", clean=False)
    _, message = client.take()
    assert isinstance(message, Publish)
    assert message.dup


# 3.1.1 [MQTT-3.8.4-3] · 5.0 [MQTT-3.8.4-3] [MQTT-3.8.4-4]
@pytest.mark.parametrize("version", Version)
def test_an_identical_filter_replaces_the_subscription(world: World, version: Version) -> None:
    client, publisher = world.connect("c", version), world.connect("p")
    publisher.publish("t", b"kept", 2, retain=True)
    for qos in (0, 2, 1):
        client.subscribe("t", qos=qos)
        message = client.message()
        assert (message.payload, message.qos, message.retain) == (b"kept", qos, True)
        publisher.publish("t", b"new", 2)
        assert client.message().qos == qos
    assert world.broker.router.statistics().subscriptions == 1


# What the SUBACK waits for


@pytest.mark.parametrize("version", Version)
def test_the_suback_waits_until_first_filters_are_in_force(
    make_world: type[World], slow_ports: SlowPorts, version: Version
) -> None:
    world = make_world(cluster=slow_ports)
    world.connect("p").publish("a", b"kept", retain=True)
    client = world.connect("c", version)
    client.send_subscribe("a", "b", "a", "/" * 128)
    client.send(Pingreq())
    client.only(Pingresp)
    assert [topic_filter for topic_filter, _ in slow_ports.added] == ["a", "b"]
    slow_ports.added[1][1](Reason.SUCCESS)
    assert client.take() == []
    slow_ports.added[0][1](Reason.SUCCESS)
    suback, *retained = client.take()
    assert isinstance(suback, Suback)
    assert len(suback.reasons) == 4
    assert [message.payload for message in retained if isinstance(message, Publish)] == [b"kept"]


def test_the_layer_above_hears_of_the_first_and_the_last(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    one, two = world.connect("1"), world.connect("2", session_expiry_s=10)
    one.send_subscribe("t", "$share/g/t")
    for _, done in list(slow_ports.added):
        done(Reason.SUCCESS)
    one.only(Suback)
    two.subscribe("t", "$share/g/t")
    one.subscribe("t", qos=1)
    assert [topic_filter for topic_filter, _ in slow_ports.added] == ["t", "$share/g/t"]
    one.unsubscribe("t")
    one.drop()
    two.drop()
    assert slow_ports.removed == []
    world.pass_time(10)
    assert slow_ports.removed == ["t", "$share/g/t"]
    one = world.connect("1")
    one.send_subscribe("t")
    assert slow_ports.added[2][0] == "t"
    one.unsubscribe("t")
    assert slow_ports.removed[2:] == ["t"]


def test_who_comes_second_waits_as_well(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    one, two = world.connect("1"), world.connect("2")
    one.send_subscribe("t")
    two.send_subscribe("t")
    assert two.take() == []
    one.unsubscribe("t")
    slow_ports.added[0][1](Reason.SUCCESS)
    assert two.only(Suback).reasons == (Reason.SUCCESS,)
    assert one.only(Suback).reasons == (Reason.SUCCESS,)
    two.subscribe("t")


def test_an_old_announcement_does_not_stand_for_a_new_one(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    one, two, three = (world.connect(name) for name in "123")
    one.send_subscribe("t")
    one.unsubscribe("t")
    two.send_subscribe("t")
    three.send_subscribe("t")
    slow_ports.added[0][1](Reason.SUCCESS)
    assert (two.take(), three.take()) == ([], [])
    slow_ports.added[1][1](Reason.SUCCESS)
    two.only(Suback)
    three.only(Suback)


def test_nobody_is_answered_who_has_gone(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    world.connect("p").publish("t", b"kept", 1, retain=True)
    client = world.connect("c", session_expiry_s=100)
    client.send_subscribe("t", qos=1)
    client.drop()
    again = world.connect("c", clean=False)
    slow_ports.added[0][1](Reason.SUCCESS)
    assert (client.take(), again.take()) == ([], [])
    world.connect("p").publish("t", b"new", 1)
    assert again.payloads() == [b"new"]


# What the layer above has no room for


@pytest.mark.parametrize(("version", "code"), [(Version.V5, 0x97), (Version.V311, 0x80)])
def test_a_filter_without_room_is_refused_and_gone(
    make_world: type[World], slow_ports: SlowPorts, version: Version, code: int
) -> None:
    world = make_world(cluster=slow_ports)
    world.connect("p").publish("a", b"kept", retain=True)
    one, two = world.connect("1", version), world.connect("2", version)
    one.send_subscribe("a", "b", "a")
    two.send_subscribe("a")
    dones = dict(slow_ports.added)
    dones["a"](Reason.QUOTA_EXCEEDED)
    dones["b"](Reason.SUCCESS)
    assert one.only(Suback).reasons == (code, 0, code)
    assert two.only(Suback).reasons == (code,)
    assert slow_ports.removed == ["a"]
    world.connect("p").publish("a")
    assert (one.payloads(), two.payloads()) == ([], [])
    one.send_subscribe("a")
    assert slow_ports.added[-1][0] == "a"
    slow_ports.added[-1][1](Reason.SUCCESS)
    world.turn()
    suback, retained = one.take()
    assert isinstance(suback, Suback)
    assert suback.reasons == (0,)
    assert isinstance(retained, Publish)


def test_a_session_whose_client_has_gone_keeps_no_refused_filter(
    make_world: type[World], slow_ports: SlowPorts
) -> None:
    world = make_world(cluster=slow_ports)
    client = world.connect("c", session_expiry_s=100)
    client.send_subscribe("t")
    client.drop()
    slow_ports.added[0][1](Reason.QUOTA_EXCEEDED)
    assert slow_ports.removed == ["t"]


def test_a_client_asks_again_for_a_filter_that_another_session_keeps_in_vain(
    make_world: type[World], slow_ports: SlowPorts
) -> None:
    world = make_world(cluster=slow_ports)
    keeper, other = world.connect("k", session_expiry_s=100), world.connect("c")
    keeper.send_subscribe("t")
    slow_ports.added[0][1](Reason.SUCCESS)
    slow_ports.refused.add("t")
    other.send_subscribe("t")
    assert other.take() == []
    slow_ports.added[1][1](Reason.QUOTA_EXCEEDED)
    assert other.only(Suback).reasons == (Reason.QUOTA_EXCEEDED,)
    assert slow_ports.removed == []


# Identifiers of subscriptions


# 5.0 [MQTT-3.3.4-3] [MQTT-3.3.4-4]
def test_identifiers_come_with_the_messages(world: World) -> None:
    client, publisher = world.connect("c"), world.connect("p")
    client.subscribe("a/#", ids=(1,), qos=1)
    client.subscribe("a/b", ids=(268_435_455,))
    client.subscribe("+/b")
    for topic, wanted in (("a/b", [1, 268_435_455]), ("a/c", [1]), ("x/b", [])):
        publisher.publish(topic, b"x", 1)
        assert sorted(client.message().properties.subscription_ids) == wanted


def test_an_identifier_is_replaced_with_its_subscription(world: World) -> None:
    client, publisher = world.connect("c"), world.connect("p")
    publisher.publish("t", b"kept", retain=True)
    for ids in ((1,), (2,), ()):
        client.subscribe("t", ids=ids)
        assert client.message().properties.subscription_ids == ids
        publisher.publish("t")
        assert client.message().properties.subscription_ids == ids


def test_identifiers_are_kept_with_the_session_and_with_what_waits(world: World) -> None:
    client = world.connect("c", session_expiry_s=100)
    client.subscribe("t", ids=(7,), qos=1)
    client.drop()
    world.connect("p").publish("t", b"1", 1)
    client = world.client()
    client.connect("c", clean=False)
    world.connect("p").publish("t", b"2", 1)
    _, *messages = client.take()
    assert [packet.properties.subscription_ids for packet in messages if isinstance(packet, Publish)] == [(7,), (7,)]


# 5.0 [MQTT-3.3.4-5]
def test_a_copy_for_a_shared_subscription_has_an_identifier_of_its_own(world: World) -> None:
    client = world.connect("c")
    client.subscribe("$share/g/t", ids=(7,))
    client.subscribe("t", ids=(1,))
    client.subscribe("#", ids=(2,))
    world.connect("p").publish("t")
    assert {message.properties.subscription_ids for message in client.messages()} == {(7,), (1, 2)}


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("filters", [["a"] * 3, ["a", "b", "c", "d"], ["a" * 50] * 5, ["a"] * 300])
def test_filters_beyond_those_of_one_packet_are_refused(
    make_world: type[World], version: Version, filters: list[str]
) -> None:
    world = make_world(FrontConfig(max_filters_per_packet=3))
    client = world.connect("c", version)
    suback = client.subscribe(*filters, ids=(5,) if version is V5 else ())
    refused = Reason.QUOTA_EXCEEDED if version is V5 else FAILURE_3
    assert list(suback.reasons) == [0] * 3 + [refused] * (len(filters) - 3)
    assert set(world.broker.router.filters(world.session("c"))) == set(filters[:3])
    client.send(Pingreq())
    client.only(Pingresp)


@pytest.mark.parametrize("version", Version)
def test_an_unsubscribe_with_too_many_filters_closes(make_world: type[World], version: Version) -> None:
    world = make_world(FrontConfig(max_filters_per_packet=3))
    client = world.connect("c", version)
    assert client.unsubscribe("a", "b", "c").packet_id == 1
    client.send(Unsubscribe(2, ("a", "b", "c", "d")))
    assert client.closed
    assert version is not V5 or client.closed_with(Reason.QUOTA_EXCEEDED)


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("cut", [1, 2, 3])
def test_filters_that_do_not_end_where_the_packet_does(make_world: type[World], version: Version, cut: int) -> None:
    world = make_world(FrontConfig(max_filters_per_packet=3))
    client = world.connect("c", version)
    whole = encode(version, Subscribe(1, (Subscription("ab", 0),) * 9))
    client.feed(whole[:1] + bytes([whole[1] - cut]) + whole[2:-cut])
    assert client.closed
    assert version is not V5 or client.closed_with(Reason.MALFORMED_PACKET)
