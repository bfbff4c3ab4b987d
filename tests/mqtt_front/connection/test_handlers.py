"""What an open connection may be sent, what not, and how it answers: publications in, their order, the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.access.acl import Rights
from ringmq.mqtt_front.cluster import UNDELIVERED
from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Version,
    Will,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import SlowPorts, World

V31, V311, V5 = Version.V31, Version.V311, Version.V5

NOBODY = Reason.NO_MATCHING_SUBSCRIBERS


def acks(packets: list[Packet]) -> list[tuple[str, int]]:
    return [
        (type(packet).__name__, packet.packet_id)
        for packet in packets
        if isinstance(packet, (Puback, Pubrec, Pubrel, Pubcomp))
    ]


# Publications and their acknowledgements


# 3.1.1 [MQTT-3.3.4-1] [MQTT-4.3.2-2] [MQTT-4.3.3-2] [MQTT-2.3.1-5] [MQTT-2.3.1-6]
# 5.0 [MQTT-3.3.4-1] [MQTT-4.3.2-4] [MQTT-4.3.3-8] [MQTT-2.2.1-2] [MQTT-2.2.1-5]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("matching", [False, True])
def test_each_qos_has_its_answer(world: World, version: Version, matching: bool) -> None:
    publisher, subscriber = world.pair(version)
    if matching:
        subscriber.subscribe("t", qos=2)
    publisher.publish("t", qos=0)
    assert publisher.take() == []
    publisher.publish("t", qos=1, packet_id=7)
    publisher.publish("t", qos=2, packet_id=8)
    reason = Reason.SUCCESS if matching or version is not V5 else NOBODY
    assert publisher.take() == [Puback(7, reason), Pubrec(8, reason)]
    publisher.send(Pubrel(8))
    assert publisher.take() == [Pubcomp(8)]
    assert [message.qos for message in subscriber.messages()] == [0, 1, 2] * matching


# 3.1.1 [MQTT-4.3.3-2] [MQTT-4.3.2-2] · 5.0 [MQTT-4.3.3-10] [MQTT-4.3.3-11] [MQTT-4.3.3-12] [MQTT-4.3.2-5]
@pytest.mark.parametrize("version", Version)
def test_a_qos_2_message_is_taken_once_until_it_is_released(world: World, version: Version) -> None:
    publisher, subscriber = world.pair(version)
    subscriber.subscribe("t")
    for dup in (False, True, True):
        publisher.publish("t", qos=2, packet_id=1, dup=dup)
        assert acks(publisher.take()) == [("Pubrec", 1)]
    assert subscriber.payloads() == [b"x"]
    publisher.send(Pubrel(1))
    assert publisher.take() == [Pubcomp(1)]
    publisher.publish("t", b"new", qos=2, packet_id=1)
    assert subscriber.payloads() == [b"new"]
    for payload in (b"1", b"2"):
        publisher.publish("t", payload, qos=1, packet_id=5)
    assert subscriber.payloads() == [b"1", b"2"]


# 3.1.1 [MQTT-4.1.0-1] [MQTT-4.3.3-2] · 5.0 [MQTT-3.1.2-23] [MQTT-4.1.0-1] [MQTT-4.3.3-10]
@pytest.mark.parametrize("version", Version)
def test_it_is_still_known_when_the_client_is_back(world: World, version: Version) -> None:
    subscriber = world.connect("subscriber")
    subscriber.subscribe("t")
    fields = {"session_expiry_s": 100} if version is V5 else {}
    first = world.connect("c", version, clean=False, **fields)
    first.publish("t", qos=2, packet_id=1)
    first.drop()
    again = world.connect("c", version, clean=False, **fields)
    again.publish("t", qos=2, packet_id=1, dup=True)
    assert acks(again.take()) == [("Pubrec", 1)]
    again.send(Pubrel(1))
    assert again.take() == [Pubcomp(1)]
    assert subscriber.payloads() == [b"x"]


@pytest.mark.parametrize(
    ("version", "answer"), [(V311, Pubcomp(9)), (V5, Pubcomp(9, Reason.PACKET_IDENTIFIER_NOT_FOUND))]
)
def test_an_unknown_identifier_is_released_all_the_same(world: World, version: Version, answer: Pubcomp) -> None:
    client = world.connect("c", version)
    client.send(Pubrel(9))
    assert client.take() == [answer]


# 5.0 [MQTT-4.3.3-13]
def test_an_expired_message_is_acknowledged_to_its_end(world: World) -> None:
    client = world.connect()
    client.publish("t", qos=2, packet_id=1, message_expiry_s=1)
    world.pass_time(10)
    client.publish("t", qos=2, packet_id=1, message_expiry_s=1, dup=True)
    client.send(Pubrel(1))
    assert acks(client.take()) == [("Pubrec", 1), ("Pubrec", 1), ("Pubcomp", 1)]


# Acknowledgements that come later


@pytest.mark.parametrize("version", Version)
def test_answers_keep_the_order_of_the_publications(
    make_world: type[World], slow_ports: SlowPorts, version: Version
) -> None:
    world = make_world(cluster=slow_ports)
    world.rights["c"] = Rights(write=["t"])
    client = world.connect("c", version)
    for packet_id, qos in ((1, 1), (2, 2), (3, 1)):
        client.publish("t", qos=qos, packet_id=packet_id)
    client.publish("forbidden", qos=1, packet_id=4)
    client.publish("t", qos=2, packet_id=2, dup=True)
    assert client.take() == []
    slow_ports.settle(2)
    slow_ports.settle(1)
    assert client.take() == []
    slow_ports.settle(0)
    assert acks(client.take()) == [("Puback", 1), ("Pubrec", 2), ("Puback", 3), ("Puback", 4), ("Pubrec", 2)]
    assert len(slow_ports.messages) == 3


@pytest.mark.parametrize("version", [V31, V311])
def test_a_publisher_that_is_too_fast_is_paused(
    make_world: type[World], slow_ports: SlowPorts, version: Version
) -> None:
    world = make_world(FrontConfig(receive_maximum=3), slow_ports)
    client = world.connect("c", version)
    for packet_id in (1, 2, 3):
        client.publish("t", qos=1, packet_id=packet_id)
    assert not client.connection.pausing
    world.turn()
    client.publish("t", qos=1, packet_id=4)
    assert client.connection.pausing
    assert client.connection.writer in world.broker.dirty  # or the shell would not know
    world.turn()
    slow_ports.settle(3)
    assert client.connection.pausing
    slow_ports.settle(0)
    assert not client.connection.pausing
    assert client.connection.writer in world.broker.dirty
    slow_ports.settle(2)
    slow_ports.settle(1)
    assert acks(client.take()) == [("Puback", packet_id) for packet_id in (1, 2, 3, 4)]


def test_a_paused_publisher_of_qos_2_need_not_release_to_go_on(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(FrontConfig(receive_maximum=1), slow_ports)
    client = world.connect("c", V311)
    for packet_id in (1, 2):
        client.publish("t", qos=2, packet_id=packet_id)
    assert client.connection.pausing
    for place in (0, 1):
        slow_ports.settle(place)
    assert not client.connection.pausing


# 5.0 [MQTT-3.3.4-7]
@pytest.mark.parametrize("qos", [1, 2])
def test_more_than_the_receive_maximum_closes(make_world: type[World], slow_ports: SlowPorts, qos: int) -> None:
    world = make_world(FrontConfig(receive_maximum=2), slow_ports)
    client = world.connect("c", session_expiry_s=100)
    for packet_id in (1, 2, 3):
        assert not client.closed
        client.publish("t", qos=qos, packet_id=packet_id)
    assert client.closed_with(Reason.RECEIVE_MAXIMUM_EXCEEDED)
    assert len(slow_ports.messages) == 2
    # What was not taken is not known either, or its repetition would be lost.
    assert world.session("c").incoming == ({1, 2} if qos == 2 else set())


# 5.0 [MQTT-3.3.4-7]
def test_qos_2_counts_until_it_is_completed(make_world: type[World]) -> None:
    world = make_world(FrontConfig(receive_maximum=2))
    client = world.connect()
    client.publish("t", qos=2, packet_id=1)
    client.publish("t", qos=2, packet_id=2)
    for packet_id in (3, 4, 5):
        client.send(Pubrel(packet_id - 2))
        client.publish("t", qos=2, packet_id=packet_id)
    assert not client.closed
    client.publish("t", qos=1, packet_id=9)
    assert client.closed_with(Reason.RECEIVE_MAXIMUM_EXCEEDED)


# 5.0 [MQTT-4.3.3-9] [MQTT-3.4.2-1] [MQTT-3.5.2-1]
def test_a_failure_is_told_and_frees_the_identifier(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(FrontConfig(receive_maximum=1), slow_ports)
    client = world.connect()
    for place in (0, 1, 2):
        client.publish("t", qos=2, packet_id=1)
        slow_ports.settle(place, Reason.QUOTA_EXCEEDED)
        assert client.take() == [Pubrec(1, Reason.QUOTA_EXCEEDED)]
    assert world.session("c").incoming == set()
    client.publish("t", qos=1, packet_id=1)
    slow_ports.settle(3, Reason.QUOTA_EXCEEDED)
    assert client.take() == [Puback(1, Reason.QUOTA_EXCEEDED)]


# 3.1.1 [MQTT-3.3.5-2]: a server that does not take a PUBLISH acknowledges it, or closes the connection.
@pytest.mark.parametrize("qos", [1, 2])
def test_an_older_version_is_disconnected_if_a_message_was_not_delivered(
    make_world: type[World], slow_ports: SlowPorts, qos: int
) -> None:
    world = make_world(cluster=slow_ports)
    client = world.connect("c", V311, clean=False)
    for packet_id in (1, 2, 3):
        client.publish("t", qos=qos, packet_id=packet_id)
    slow_ports.settle(0)
    slow_ports.settle(2)
    slow_ports.settle(1, UNDELIVERED)
    assert not client.closed, "the layer above may be in the middle of a change"
    client.connection.go_on()
    assert acks(client.take()) == [("Puback" if qos == 1 else "Pubrec", 1)]
    assert client.closed
    again = world.connect("c", V311, clean=False)
    again.publish("t", qos=qos, packet_id=2, dup=True)
    assert len(slow_ports.messages) == 4, "the repetition counts"
    slow_ports.settle(3)
    assert acks(again.take()) == [("Puback" if qos == 1 else "Pubrec", 2)]


def test_a_client_is_told_that_a_message_was_not_delivered(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    client = world.connect()
    client.publish("t", qos=1, packet_id=1)
    slow_ports.settle(0, UNDELIVERED)
    assert client.take() == [Puback(1, Reason.QUOTA_EXCEEDED)]
    assert not client.closed


@pytest.mark.parametrize(("reason", "taken"), [(Reason.SUCCESS, 1), (Reason.UNSPECIFIED_ERROR, 2)])
def test_a_message_whose_fate_is_unknown_when_the_client_repeats_it(
    make_world: type[World], slow_ports: SlowPorts, reason: Reason, taken: int
) -> None:
    world = make_world(cluster=slow_ports)
    first = world.connect("c", session_expiry_s=100)
    first.publish("t", qos=2, packet_id=1)
    first.drop()
    again = world.connect("c", clean=False)
    again.publish("t", qos=2, packet_id=1, dup=True)
    assert again.take() == []
    slow_ports.settle(0, reason)
    assert again.take() == [Pubrec(1, reason)]
    assert first.take() == []
    again.publish("t", qos=2, packet_id=1, dup=True)
    assert len(slow_ports.messages) == taken


def test_a_failure_after_the_client_has_gone_lets_it_try_again(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    client = world.connect("c", session_expiry_s=100)
    client.publish("t", qos=2, packet_id=1)
    client.drop()
    slow_ports.settle(0, Reason.UNSPECIFIED_ERROR)
    world.connect("c", clean=False).publish("t", qos=2, packet_id=1, dup=True)
    assert len(slow_ports.messages) == 2


def test_a_client_that_releases_too_early_confuses_nobody(make_world: type[World], slow_ports: SlowPorts) -> None:
    world = make_world(cluster=slow_ports)
    client = world.connect()
    for _ in range(2):
        client.publish("t", qos=2, packet_id=1)
        client.send(Pubrel(1))
    slow_ports.settle(0, Reason.UNSPECIFIED_ERROR)
    slow_ports.settle(1)
    assert acks(client.take()) == [("Pubcomp", 1), ("Pubcomp", 1), ("Pubrec", 1), ("Pubrec", 1)]


# Rights


# 3.1.1 [MQTT-3.3.5-2]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("topic", ["secret", "$SYS/broker/uptime", "$SYS"])
def test_what_may_not_be_published_is_not(world: World, version: Version, topic: str) -> None:
    if topic == "secret":
        world.rights["c"] = Rights(write=["t"])
    watcher = world.connect("watcher")
    watcher.subscribe("secret", "$SYS/#")
    client = world.connect("c", version)
    for qos in (0, 1, 2):
        client.publish(topic, qos=qos, packet_id=qos or None, retain=True)
    reason = Reason.NOT_AUTHORIZED if version is V5 else Reason.SUCCESS
    assert client.take() == [Puback(1, reason), Pubrec(2, reason)]
    client.send(Pingreq())
    client.only(Pingresp)
    assert watcher.messages() == []
    assert len(world.broker.retained) == 0
    assert world.broker.counters.unauthorized == 3


def test_other_topics_with_a_dollar_may_be_used(world: World) -> None:
    publisher, subscriber = world.pair()
    subscriber.subscribe("$SYSTEM/x", "$app/#", "#")
    for topic in ("$SYSTEM/x", "$app/y"):
        publisher.publish(topic)
    assert [message.topic for message in subscriber.messages()] == ["$SYSTEM/x", "$app/y"]


def test_an_alias_gives_no_rights(world: World) -> None:
    world.rights["c"] = Rights(write=["t"])
    watcher = world.connect("watcher")
    watcher.subscribe("#")
    client = world.connect("c")
    client.publish("secret", topic_alias=1)
    client.publish("", topic_alias=1)
    client.publish("t", topic_alias=1)
    client.publish("", topic_alias=1)
    assert [message.topic for message in watcher.messages()] == ["t", "t"]
    assert world.broker.counters.unauthorized == 2


# Aliases of the client


# 5.0 [MQTT-3.3.2-7]
def test_aliases_stand_for_topics_and_end_with_the_connection(world: World) -> None:
    subscriber = world.connect("subscriber")
    subscriber.subscribe("#")
    client = world.connect("c", session_expiry_s=100)
    for topic, alias in (("a", 1), ("", 1), ("b", 32), ("", 32), ("", 1), ("c", 1), ("", 1), ("", 32)):
        client.publish(topic, topic_alias=alias)
    assert [message.topic for message in subscriber.messages()] == ["a", "a", "b", "b", "a", "c", "c", "b"]
    client.drop()
    again = world.connect("c", clean=False)
    again.publish("", topic_alias=1)
    assert again.closed_with(Reason.PROTOCOL_ERROR)
    assert subscriber.messages() == []


# 5.0 [MQTT-3.2.2-17] [MQTT-3.2.2-18]
@pytest.mark.parametrize("most", [0, 2])
def test_aliases_over_the_maximum_close(make_world: type[World], most: int) -> None:
    world = make_world(FrontConfig(topic_alias_maximum=most))
    client = world.connect()
    assert client.connack.properties.topic_alias_maximum == (most or None)
    client.publish("t", topic_alias=most + 1)
    assert client.closed_with(Reason.TOPIC_ALIAS_INVALID)


# 5.0 [MQTT-3.3.2-12]
def test_all_aliases_up_to_the_maximum_are_taken(world: World) -> None:
    client, subscriber = world.pair()
    subscriber.subscribe("#")
    most = client.connack.properties.topic_alias_maximum
    assert most
    for prefix in ("t", "t", "u"):
        for alias in range(1, most + 1):
            client.publish(f"{prefix}/{alias}", topic_alias=alias)
    for alias in range(1, most + 1):
        client.publish("", topic_alias=alias)
    last = [message.topic for message in subscriber.messages()][-most:]
    assert last == [f"u/{alias}" for alias in range(1, most + 1)]


def test_an_alias_of_a_repeated_message_is_learnt(world: World) -> None:
    subscriber = world.connect("subscriber")
    subscriber.subscribe("#")
    client = world.connect("c", session_expiry_s=100)
    client.publish("t", qos=2, packet_id=1, topic_alias=1)
    client.drop()
    again = world.connect("c", clean=False)
    again.publish("t", qos=2, packet_id=1, topic_alias=1, dup=True)
    again.publish("", b"y", topic_alias=1)
    assert subscriber.payloads() == [b"x", b"y"]


# The end


# 3.1.1 [MQTT-3.14.4-3] [MQTT-3.1.2-10] [MQTT-3.1.2-8] · 5.0 [MQTT-3.14.4-3] [MQTT-3.1.2-10] [MQTT-3.1.2-8]
@pytest.mark.parametrize(
    ("version", "reason", "published"),
    [
        (V31, Reason.SUCCESS, False),
        (V311, Reason.SUCCESS, False),
        (V5, Reason.SUCCESS, False),
        (V5, Reason.DISCONNECT_WITH_WILL, True),
        (V5, Reason.UNSPECIFIED_ERROR, True),
    ],
)
def test_a_disconnect_and_the_will(world: World, version: Version, reason: Reason, published: bool) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe("will")
    client = world.connect("c", version, clean=False, will=Will("will", b"gone", 0, False))
    client.send(Disconnect(reason))
    assert client.closed
    assert client.take() == []
    client.drop()
    world.pass_time(1000)
    assert watcher.payloads() == [b"gone"] * published


def test_nothing_after_a_disconnect_is_processed(world: World) -> None:
    client, watcher = world.connect(), world.connect("watcher")
    watcher.subscribe("t")
    client.feed(encode(V5, Disconnect()) + encode(V5, Publish("t", b"x")) + encode(V5, Pingreq()))
    client.send(Publish("t", b"y"), Pingreq())
    assert client.take() == []
    assert watcher.messages() == []


# 5.0 [MQTT-3.1.2-23] [MQTT-4.1.0-2]
@pytest.mark.parametrize(
    ("first_s", "last_s", "kept_s"),
    [(0, None, 0), (0, 0, 0), (100, None, 100), (100, 20, 20), (100, 0, 0), (20, 100, 100)],
)
def test_the_session_expiry_can_be_changed_at_the_end(
    world: World, first_s: int, last_s: int | None, kept_s: int
) -> None:
    client = world.connect("c", session_expiry_s=first_s)
    client.leave(**({} if last_s is None else {"session_expiry_s": last_s}))
    if kept_s:
        world.pass_time(kept_s - 1)
        assert "c" in world.broker.sessions
        world.pass_time(1)
        assert world.broker.counters.expired_sessions == 1
    assert world.broker.sessions == {}


def test_the_expiry_at_the_end_has_the_same_bound(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_session_expiry_s=50))
    world.connect("c", session_expiry_s=10).leave(session_expiry_s=0xFFFFFFFF)
    world.pass_time(50)
    assert world.broker.sessions == {}


def test_a_session_that_ends_with_the_connection_gets_no_expiry_at_its_end(world: World) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe("will")
    client = world.connect("c", will=Will("will", b"gone", 0, False))
    client.send(Disconnect(properties=Properties(session_expiry_s=10)))
    assert client.closed_with(Reason.PROTOCOL_ERROR)
    assert watcher.payloads() == [b"gone"]
    assert "c" not in world.broker.sessions


# Errors of open connections

WRONG = {
    "reserved type": (b"\x00\x00", Reason.MALFORMED_PACKET),
    "connack": (b"\x20\x02\0\0", None),
    "suback": (b"\x90\x03\0\1\0", None),
    "pingresp": (b"\xd0\x00", None),
    "publish with qos 3": (b"\x36\x05\0\1t\0\1", Reason.MALFORMED_PACKET),
    "publish with qos 0 and dup": (b"\x38\x04\0\1t\0", Reason.MALFORMED_PACKET),
    "publish with id 0": (b"\x32\x06\0\1t\0\0\0", Reason.PROTOCOL_ERROR),
    "publish without a topic": (b"\x30\x02\0\0", None),
    "publish to a filter": (b"\x30\x04\0\1#\0", Reason.TOPIC_NAME_INVALID),
    "publish to bad utf-8": (b"\x30\x04\0\1\xff\0", Reason.MALFORMED_PACKET),
    "publish to a null character": (b"\x30\x04\0\1\0\0", Reason.MALFORMED_PACKET),
    "short publish": (b"\x30\x01\0", Reason.MALFORMED_PACKET),
    "pubrel with flags 0": (b"\x60\x02\0\1", Reason.MALFORMED_PACKET),
    "pubrel with flags 3": (b"\x63\x02\0\1", Reason.MALFORMED_PACKET),
    "puback with flags": (b"\x41\x02\0\1", Reason.MALFORMED_PACKET),
    "puback with id 0": (b"\x40\x02\0\0", Reason.PROTOCOL_ERROR),
    "subscribe with flags 0": (b"\x80\x05\0\1\0\1a\0", Reason.MALFORMED_PACKET),
    "unsubscribe with flags 0": (b"\xa0\x05\0\1\0\1a", Reason.MALFORMED_PACKET),
    "pingreq with flags": (b"\xc1\x00", Reason.MALFORMED_PACKET),
    "pingreq with a body": (b"\xc0\x01\0", Reason.MALFORMED_PACKET),
    "disconnect with flags": (b"\xe1\x00", Reason.MALFORMED_PACKET),
    "long length": (b"\x30\xff\xff\xff\xff\x01", Reason.MALFORMED_PACKET),
    "too large": (b"\x30\xff\xff\xff\x7f", Reason.PACKET_TOO_LARGE),
}
WRONG_5 = {
    "subscribe with id 0": (b"\x82\x07\0\0\0\0\1a\0", Reason.PROTOCOL_ERROR),
    "subscribe without filters": (b"\x82\x03\0\1\0", Reason.PROTOCOL_ERROR),
    "subscribe to bad utf-8": (b"\x82\x07\0\1\0\0\1\xff\0", Reason.MALFORMED_PACKET),
    "subscribe with qos 3": (b"\x82\x07\0\1\0\0\1a\3", Reason.PROTOCOL_ERROR),
    "subscribe with retain handling 3": (b"\x82\x07\0\1\0\0\1a\x30", Reason.PROTOCOL_ERROR),
    "subscribe with reserved options": (b"\x82\x07\0\1\0\0\1a\x40", Reason.MALFORMED_PACKET),
    "no local on a shared one": (b"\x82\x10\0\1\0\0\x0a$share/g/a\x04", Reason.PROTOCOL_ERROR),
    "unsubscribe without filters": (b"\xa2\x03\0\1\0", Reason.PROTOCOL_ERROR),
    "unsubscribe with id 0": (b"\xa2\x06\0\0\0\0\1a", Reason.PROTOCOL_ERROR),
    "unsubscribe from bad utf-8": (b"\xa2\x06\0\1\0\0\1\xff", Reason.MALFORMED_PACKET),
    "auth without a method": (b"\xf0\x00", Reason.PROTOCOL_ERROR),
    "auth with flags": (b"\xf1\x00", Reason.MALFORMED_PACKET),
    "auth with a reason of others": (b"\xf0\x02\x87\0", Reason.PROTOCOL_ERROR),
    "puback with a reason of others": (b"\x40\x03\0\1\x92", Reason.PROTOCOL_ERROR),
    "pubrec with a reason of others": (b"\x50\x03\0\1\x92", Reason.PROTOCOL_ERROR),
    "pubrel with a reason of others": (b"\x62\x03\0\1\x10", Reason.PROTOCOL_ERROR),
    "pubcomp with a reason of others": (b"\x70\x03\0\1\x10", Reason.PROTOCOL_ERROR),
    "disconnect with a reason of others": (b"\xe0\x01\x86", Reason.PROTOCOL_ERROR),
    "subscription id in a publish": (b"\x30\x06\0\1t\2\x0b\1", Reason.PROTOCOL_ERROR),
    "subscription id 0": (b"\x82\x09\0\1\2\x0b\0\0\1a\0", Reason.PROTOCOL_ERROR),
    "a property twice": (b"\x30\x08\0\1t\4\1\0\1\0", Reason.PROTOCOL_ERROR),
    "an unknown property": (b"\x30\x06\0\1t\2\x7f\0", Reason.MALFORMED_PACKET),
    "a response topic with wildcards": (b"\x30\x08\0\1t\4\x08\0\1#", Reason.PROTOCOL_ERROR),
    "neither topic nor alias": (b"\x30\x05\0\0\2\1\0", Reason.PROTOCOL_ERROR),
    "neither topic nor alias, qos 1": (b"\x32\x07\0\0\0\1\2\1\0", Reason.PROTOCOL_ERROR),
    "alias 0": (b"\x30\x07\0\1t\3\x23\0\0", Reason.TOPIC_ALIAS_INVALID),
    "alias over the maximum": (b"\x30\x07\0\1t\3\x23\0\x21", Reason.TOPIC_ALIAS_INVALID),
    "unknown alias": (b"\x30\x06\0\0\3\x23\0\1", Reason.PROTOCOL_ERROR),
    "length longer than need be": (b"\xc0\x80\0", Reason.MALFORMED_PACKET),
}


def check_thrown_out(world: World, version: Version, data: bytes, reason: Reason | None) -> None:
    client = world.connect("c", version)
    watcher = world.connect("watcher")
    watcher.subscribe("#")
    client.feed(data + encode(version, Publish("late", b"x", retain=True)))
    answer = client.take()
    assert client.closed
    assert watcher.messages() == []
    assert len(world.broker.retained) == 0
    if version is not V5:
        assert answer == []
    else:
        (goodbye,) = answer
        assert isinstance(goodbye, Disconnect)
        assert goodbye.reason is reason or (reason is None and goodbye.reason >= Reason.MALFORMED_PACKET)
        assert goodbye.properties.reason_string


# 3.1.1 [MQTT-2.2.2-1] [MQTT-2.2.2-2] [MQTT-2.3.1-1] [MQTT-3.3.1-2] [MQTT-3.3.1-4] [MQTT-3.3.2-1] [MQTT-3.3.2-2]
# 3.1.1 [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1] [MQTT-4.8.0-1]
# 5.0 [MQTT-2.1.3-1] [MQTT-2.2.1-3] [MQTT-3.3.1-2] [MQTT-3.3.1-4] [MQTT-3.3.2-1] [MQTT-3.3.2-2] [MQTT-3.6.1-1]
# 5.0 [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1] [MQTT-4.13.1-1] [MQTT-4.13.2-1]
@pytest.mark.parametrize("version", [V311, V5])
@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_packets_close(world: World, version: Version, wrong: str) -> None:
    check_thrown_out(world, version, *WRONG[wrong])


# 5.0 [MQTT-3.3.2-8] [MQTT-3.3.2-9] [MQTT-3.3.2-14] [MQTT-3.3.4-6] [MQTT-3.4.2-1] [MQTT-3.5.2-1] [MQTT-3.6.2-1]
# 5.0 [MQTT-3.7.2-1] [MQTT-3.8.3-1] [MQTT-3.8.3-2] [MQTT-3.8.3-4] [MQTT-3.8.3-5] [MQTT-3.10.3-1] [MQTT-3.10.3-2]
# 5.0 [MQTT-3.14.2-1] [MQTT-3.15.1-1] [MQTT-3.15.2-1] [MQTT-4.12.0-7] [MQTT-4.13.1-1] [MQTT-3.2.2-17]
@pytest.mark.parametrize("wrong", WRONG_5)
def test_wrong_packets_of_5_0_close(world: World, wrong: str) -> None:
    check_thrown_out(world, V5, *WRONG_5[wrong])


# 3.1.1 [MQTT-3.8.3-1] [MQTT-3.8.3-3] [MQTT-3.8.3-4] [MQTT-3.10.3-1] [MQTT-3.10.3-2] [MQTT-2.3.1-1]
@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x02\0\1",
        b"\x82\x06\0\0\0\1a\0",
        b"\x82\x06\0\1\0\1\xff\0",
        b"\x82\x06\0\1\0\1a\3",
        b"\x82\x06\0\1\0\1a\4",
        b"\x82\x05\0\1\0\1a",
        b"\xa2\x02\0\1",
        b"\xa2\x05\0\0\0\1a",
        b"\xa2\x05\0\1\0\1\xff",
        b"\xe0\x01\0",
        b"\xf0\x00",
    ],
)
def test_wrong_packets_of_3_1_1_close(world: World, data: bytes) -> None:
    check_thrown_out(world, V311, data, None)


def test_3_1_calls_flags_unused_that_are_reserved_later(world: World) -> None:
    client = world.connect("c", V31)
    client.feed(b"\x8a\x06\0\1\0\1a\0" + b"\xc8\0" + b"\xaa\x05\0\2\0\1a")
    assert [type(packet).__name__ for packet in client.take()] == ["Suback", "Pingresp", "Unsuback"]
