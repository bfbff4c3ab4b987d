"""A connection from its first byte to its last: who is let in, who is thrown out and how."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.access.acl import Rights
from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Subscribe,
    Subscription,
    Version,
    Will,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, World

V31, V311, V5 = Version.V31, Version.V311, Version.V5


def connect_bytes(name: bytes = b"MQTT", level: int = 4, flags: int = 2, rest: bytes = b"\0\0\0\1c") -> bytes:
    body = len(name).to_bytes(2, "big") + name + bytes([level, flags]) + rest
    return bytes([0x10, len(body)]) + body


# The first packet


def test_the_parts_of_a_connection_do_not_inherit_from_each_other(world: World) -> None:
    connection = world.connect("c").connection
    for part in (connection, connection.reader, connection.handlers, connection.writer):
        assert type(part).__bases__ == (object,)


# 3.1.1 [MQTT-3.1.0-1] · 5.0 [MQTT-3.1.0-1] [MQTT-3.14.0-1]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize(
    "packet", [Pingreq(), Publish("t", b"x"), Subscribe(1, (Subscription("t", 0),)), Disconnect(), Puback(1)]
)
def test_what_does_not_begin_with_a_connect_is_closed_without_a_word(
    world: World, version: Version, packet: Packet
) -> None:
    client = world.client(version)
    client.send(packet)
    assert client.take() == []
    assert client.closed
    client.send(Connect(version, "c", True, 0))
    assert client.take() == []
    assert world.broker.counters.refused == 1


# 3.1.1 [MQTT-3.1.4-4] [MQTT-3.2.0-1] · 5.0 [MQTT-3.1.4-5] [MQTT-3.2.0-1] [MQTT-3.2.0-2]
@pytest.mark.parametrize("version", Version)
def test_a_good_connect_is_answered_by_one_connack(world: World, version: Version) -> None:
    client = world.client(version)
    client.connect("c")
    client.send(Pingreq())
    connack, pong = client.take()
    assert isinstance(connack, Connack)
    assert connack.reason is Reason.SUCCESS
    assert pong == Pingresp()
    assert not client.closed


# 3.1.1 [MQTT-3.1.0-2] [MQTT-4.8.0-1] · 5.0 [MQTT-3.1.0-2] [MQTT-3.2.0-2] [MQTT-4.13.1-1]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("second", [connect_bytes(), connect_bytes(level=9), connect_bytes(b"HTTP"), b"\x10\0"])
def test_a_second_connect_closes(world: World, version: Version, second: bytes) -> None:
    client = world.connect("c", version)
    client.feed(second)
    assert client.take() == ([Disconnect(Reason.PROTOCOL_ERROR, said(client))] if version is V5 else [])
    assert client.closed
    assert world.broker.counters.protocol_errors == 1


def said(client: Client) -> Properties:
    return Properties(reason_string=client.connection.why)


# Versions and formats


# 3.1.1 [MQTT-3.1.2-2] [MQTT-3.2.2-5] · 5.0 [MQTT-3.1.2-2] [MQTT-3.2.2-7]
@pytest.mark.parametrize(
    ("name", "level", "answer"),
    [
        (b"MQTT", 0, "20020001"),
        (b"MQTT", 3, "20020001"),
        (b"MQIsdp", 4, "20020001"),
        (b"MQIsdp", 5, "20020001"),
        (b"MQTT", 6, "2003008400"),
        (b"MQTT", 0x7F, "2003008400"),
        (b"MQTT", 255, "20020001"),
        pytest.param(b"MQIsdp", 0x83, "20020001", id="a bridge of Mosquitto with 3.1"),
        pytest.param(b"MQTT", 0x84, "20020001", id="a bridge of Mosquitto with 3.1.1"),
        pytest.param(b"MQTT", 0x85, "20020001", id="a bridge of Mosquitto with 5.0"),
    ],
)
def test_other_levels_are_told_and_closed(world: World, name: bytes, level: int, answer: str) -> None:
    client = world.client(V311)
    client.feed(connect_bytes(name, level))
    world.turn()
    assert client.inbox.hex() == answer
    assert client.closed


# 3.1.1 [MQTT-3.1.2-1] [MQTT-3.1.2-3] [MQTT-3.1.4-1] [MQTT-3.2.2-6] [MQTT-2.2.2-2] · 5.0 [MQTT-3.1.4-1] [MQTT-3.1.2-1]
@pytest.mark.parametrize(
    "data",
    [
        connect_bytes(b"HTTP"),
        connect_bytes(flags=3),
        connect_bytes(flags=0b11110),
        connect_bytes(flags=0x42),
        connect_bytes(rest=b"\0\0\0\2c"),
        connect_bytes(rest=b"\0\0\0\1c!"),
        connect_bytes(rest=b"\0\0\0\1\xff"),
        b"\x11" + connect_bytes()[1:],
        b"\x10\xff\xff\xff\xff\x7f",
        b"\x10\xff\xff\xff\x7f",
        b"\x16\x03\x01\x02\x00",  # how TLS begins
    ],
)
def test_a_connect_against_the_format_is_closed_without_a_word(world: World, data: bytes) -> None:
    client = world.client(V311)
    client.feed(data)
    assert client.take() == []
    assert client.closed
    assert world.broker.sessions == {}


# Client ids


# 3.1.1 [MQTT-3.1.3-8] [MQTT-3.1.3-9] [MQTT-3.2.2-4] [MQTT-3.2.2-5] · 5.0 [MQTT-3.1.3-8] [MQTT-3.2.2-6] [MQTT-3.2.2-7]
@pytest.mark.parametrize(
    ("version", "client_id", "clean"), [(V31, "", True), (V31, "x" * 24, True), (V311, "", False), (V5, "", True)]
)
def test_a_wrong_client_id_is_told_and_closed(
    make_world: type[World], version: Version, client_id: str, clean: bool
) -> None:
    world = make_world(FrontConfig(allow_zero_length_client_id=version is not V5))
    client = world.client(version)
    client.connect(client_id, clean=clean)
    assert client.only(Connack) == Connack(False, Reason.CLIENT_IDENTIFIER_NOT_VALID)
    assert client.closed


# 3.1.1 [MQTT-3.1.3-6] · 5.0 [MQTT-3.1.3-6] [MQTT-3.1.3-7] [MQTT-3.2.2-16]
def test_an_empty_id_is_replaced_by_a_unique_one(world: World) -> None:
    taken = world.connect("assigned-2")
    one, two, three = world.connect("", V5), world.connect("", V5), world.connect("", V311)
    given = [client.connack.properties.assigned_client_id for client in (one, two)]
    assert given == ["assigned-1", "assigned-3"]
    assert three.connack.properties == Properties()
    assert list(world.broker.sessions) == ["assigned-2", "assigned-1", "assigned-3", "assigned-4"]
    assert not taken.closed


# 5.0 [MQTT-3.1.3-7]
def test_an_assigned_id_is_the_clients_own(world: World) -> None:
    client = world.connect("", session_expiry_s=100)
    given = client.connack.properties.assigned_client_id
    assert given is not None
    client.subscribe("t")
    client.drop()
    assert world.connect(given, clean=False).connack.session_present


# 3.1.1 [MQTT-3.1.3-2] · 5.0 [MQTT-3.1.3-2]
def test_a_session_is_found_by_its_client_id_alone(world: World) -> None:
    world.connect("c", session_expiry_s=100).drop()
    assert not world.connect("C", clean=False).connack.session_present
    assert world.connect("c", clean=False).connack.session_present


# Clean start and session present


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("clean", [False, True])
# 3.1.1 [MQTT-3.1.2-4] [MQTT-3.1.2-6] [MQTT-3.1.4-3] [MQTT-3.2.2-1] [MQTT-3.2.2-2] [MQTT-3.2.2-3]
# 5.0 [MQTT-3.1.2-4] [MQTT-3.1.2-5] [MQTT-3.1.2-6] [MQTT-3.1.4-4] [MQTT-3.2.2-2] [MQTT-3.2.2-3]
def test_which_session_a_client_gets(world: World, version: Version, kept: bool, clean: bool) -> None:
    if kept:
        before = world.connect("c", V5, session_expiry_s=100)
        before.subscribe("t", qos=1)
        before.drop()
        world.connect("p").publish("t", b"stored", 1)
    client = world.client(version)
    client.connect("c", clean=clean)
    connack, *messages = client.take()
    assert isinstance(connack, Connack)
    resumed = kept and not clean
    assert connack.session_present is (resumed and version is not V31)
    assert [message.payload for message in messages if isinstance(message, Publish)] == [b"stored"] * resumed
    world.connect("q").publish("t", b"now", 1)
    assert client.payloads() == [b"now"] * resumed


# 3.1.1 [MQTT-3.1.2-6] [MQTT-4.1.0-2]
@pytest.mark.parametrize("version", [V31, V311])
def test_a_clean_session_ends_with_its_connection(world: World, version: Version) -> None:
    client = world.connect("c", version)
    client.subscribe("t")
    assert "c" in world.broker.sessions
    client.drop()
    assert world.broker.sessions == {}
    assert world.broker.router.statistics().subscriptions == 0
    assert not world.connect("c", version, clean=False).connack.session_present


# Takeover


# 3.1.1 [MQTT-3.1.4-2] · 5.0 [MQTT-3.1.4-3] [MQTT-3.14.2-2]
@pytest.mark.parametrize("version", Version)
def test_a_second_client_with_an_id_takes_over(world: World, version: Version) -> None:
    first = world.connect("c", version, clean=False)
    second = world.connect("c", version, clean=False)
    assert first.closed
    assert first.take() == ([Disconnect(Reason.SESSION_TAKEN_OVER, said(first))] if version is V5 else [])
    first.drop()
    second.send(Pingreq())
    second.only(Pingresp)
    assert world.session("c").writer is second.connection.writer
    assert world.broker.counters.taken_over == 1


@pytest.mark.parametrize(
    ("expiry_s", "delay_s", "clean", "published"),
    [
        (0, 0, False, True),
        (100, 0, False, True),
        (100, 0, True, True),
        (0, 50, False, True),
        (100, 50, False, False),
        (100, 50, True, True),
    ],
)
# 5.0 [MQTT-3.1.3-9] [MQTT-3.1.2-8]
def test_the_will_of_who_is_taken_over(world: World, expiry_s: int, delay_s: int, clean: bool, published: bool) -> None:
    watcher = world.connect("watcher")
    watcher.subscribe("will")
    will = Will("will", b"gone", 0, False, Properties(will_delay_s=delay_s))
    world.connect("c", will=will, session_expiry_s=expiry_s)
    world.connect("c", clean=clean)
    assert watcher.payloads() == [b"gone"] * published
    world.pass_time(1000)
    assert watcher.payloads() == []


def test_a_taken_over_session_keeps_what_was_on_its_way(world: World) -> None:
    first = world.connect("c", session_expiry_s=100)
    first.subscribe("t", qos=1)
    world.connect("p").publish("t", b"1", 1)
    second = world.client()
    second.connect("c", clean=False)
    connack, message = second.take()
    assert isinstance(connack, Connack)
    assert isinstance(message, Publish)
    assert (connack.session_present, message.dup) == (True, True)


# Refusals


# 3.1.1 [MQTT-3.1.4-5] [MQTT-3.2.2-4] [MQTT-3.2.2-5] · 5.0 [MQTT-3.1.4-2] [MQTT-3.1.4-6] [MQTT-3.2.2-6] [MQTT-3.2.2-7]
@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("reason", [Reason.BAD_USER_NAME_OR_PASSWORD, Reason.NOT_AUTHORIZED, Reason.SERVER_UNAVAILABLE])
def test_who_is_not_let_in_is_told_and_closed(make_world: type[World], version: Version, reason: Reason) -> None:
    world = make_world(defer=True)
    world.refused["c"] = reason
    client = world.client(version)
    client.connect("c")
    client.publish("t", b"x", retain=True)
    world.decide_next()
    assert client.only(Connack) == Connack(False, reason)
    assert client.closed
    client.publish("t", b"x", retain=True)
    assert client.take() == []
    assert len(world.broker.retained) == 0
    assert world.broker.counters.refused == 1
    assert world.broker.sessions == {}


@pytest.mark.parametrize(("version", "codes"), [(V31, b"\4"), (V311, b"\4"), (V5, b"\x86")])
def test_the_code_for_a_wrong_password(world: World, version: Version, codes: bytes) -> None:
    world.refused["c"] = Reason.BAD_USER_NAME_OR_PASSWORD
    client = world.client(version)
    client.connect("c", user_name="u", password=b"p")
    world.turn()
    assert client.inbox[3:4] == codes


# 3.1.1 [MQTT-3.2.2-6]
@pytest.mark.parametrize("version", [V31, V311])
def test_without_a_fitting_code_there_is_no_connack(world: World, version: Version) -> None:
    world.refused["c"] = Reason.UNSPECIFIED_ERROR
    client = world.client(version)
    client.connect("c")
    assert client.take() == []
    assert client.closed


@pytest.mark.parametrize("reason", Reason)
@pytest.mark.parametrize("version", Version)
# 5.0 [MQTT-3.2.2-8] [MQTT-3.14.2-1]
def test_every_reason_to_close_can_be_said_or_kept(make_world: type[World], version: Version, reason: Reason) -> None:
    if reason < 0x80:
        return
    world = make_world(defer=True)
    client = world.client(version)
    client.connect("c")
    client.connection.fail(reason, "why")
    assert client.closed
    assert all(isinstance(packet, Connack) and packet.reason >= 0x80 for packet in client.take())
    world.decide_next()
    assert world.broker.sessions == {}
    other = make_world().connect("c", version)
    other.connection.fail(reason, "why")
    assert other.closed
    assert all(isinstance(packet, Disconnect) and packet.reason >= 0x80 for packet in other.take())


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("topic", ["secret", "$SYS/broker", "$SYS"])
def test_who_may_not_publish_its_will_is_not_let_in(world: World, version: Version, topic: str) -> None:
    if topic == "secret":
        world.rights["c"] = Rights(write=["t"])
    client = world.client(version)
    client.connect("c", will=Will(topic, b"x", 0, False))
    assert client.only(Connack).reason is Reason.NOT_AUTHORIZED
    assert client.closed
    assert world.broker.counters.unauthorized == 1


def test_one_session_too_many_is_refused(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_sessions=2))
    world.connect("a", session_expiry_s=100).drop()
    world.connect("b")
    for version in Version:
        client = world.client(version)
        client.connect("c")
        assert client.only(Connack).reason in (Reason.SERVER_BUSY, Reason.SERVER_UNAVAILABLE)
        assert client.closed
    assert world.connect("a", clean=False).connack.session_present
    assert world.connect("b")
    assert set(world.broker.sessions) == {"a", "b"}


# Packets right after the CONNECT


# 5.0 [MQTT-3.2.0-1]
@pytest.mark.parametrize("version", Version)
def test_packets_after_the_connect_wait_for_the_decision(make_world: type[World], version: Version) -> None:
    world = make_world(defer=True)
    client = world.client(version)
    client.connect("c")
    client.send(Subscribe(1, (Subscription("t", 1),)), Publish("t", b"x", 1, packet_id=2), Pingreq())
    assert client.take() == []
    world.decide_next()
    packets = client.take()
    assert [type(packet).__name__ for packet in packets] == ["Connack", "Suback", "Publish", "Puback", "Pingresp"]


def test_what_waits_for_the_decision_is_bounded(make_world: type[World]) -> None:
    world = make_world(FrontConfig(max_packet_bytes=1000), defer=True)
    for packet, most in ((Publish("t", b"x" * 100), 11), (Pingreq(), 1000)):
        client = world.client()
        client.connect("c")
        for _ in range(most):
            client.send(packet)
        assert client.closed
        assert client.only(Connack).reason is Reason.PACKET_TOO_LARGE
        world.decide_next()
        assert client.take() == []
    assert world.broker.sessions == {}


def test_an_error_among_them_closes_after_the_connack(make_world: type[World]) -> None:
    world = make_world(defer=True)
    client = world.client()
    client.connect("c")
    client.feed(b"\xf0\0" + encode(V5, Pingreq()))
    client.send(Auth())
    world.decide_next()
    connack, goodbye = client.take()
    assert isinstance(connack, Connack)
    assert goodbye == Disconnect(Reason.PROTOCOL_ERROR, said(client))
    assert client.closed


def test_who_goes_before_the_decision_leaves_nothing(make_world: type[World]) -> None:
    world = make_world(defer=True)
    client = world.client()
    client.connect("c", will=Will("t", b"x", 0, True))
    client.drop()
    world.decide_next()
    assert world.broker.sessions == {}
    assert len(world.broker.retained) == 0
    assert client.take() == []


# The end


# 5.0 [MQTT-3.14.4-1] [MQTT-3.14.4-2]
def test_nothing_follows_a_disconnect_of_the_server(world: World) -> None:
    client = world.connect("c", session_expiry_s=100)
    client.subscribe("t", qos=1)
    client.feed(b"\0\0")
    world.connect("p").publish("t", b"x", 1)
    client.send(Pingreq(), Publish("t", b"y", 1, packet_id=1))
    client.connection.lost()
    client.connection.lost()
    assert client.closed_with(Reason.MALFORMED_PACKET)


# 5.0 [MQTT-3.1.2-24]
@pytest.mark.parametrize("limit", [1, 2, 3, 10, 40])
def test_a_disconnect_is_no_larger_than_the_client_takes(world: World, limit: int) -> None:
    client = world.client()
    client.send(Connect(V5, "c", True, 0, properties=Properties(maximum_packet_size=limit)))
    client.feed(b"\0\0")
    world.turn()
    assert client.closed
    if limit == 40:
        assert client.closed_with(Reason.MALFORMED_PACKET)
    else:
        assert len(client.inbox) <= limit
