"""What a connection sends: aliases, sizes, properties, and what one turn may gather for a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Properties,
    Publish,
    Suback,
    Subscription,
    Version,
)
from ringmq.mqtt_front.codec.properties import encode_properties
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.writer import Encoded
from ringmq.mqtt_front.message import Message

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import World

V31, V311, V5 = Version.V31, Version.V311, Version.V5

PROPERTIES = Properties(content_type="text", user_properties=(("b", "1"), ("a", "2")))
FORWARDED = {
    "payload_format": 1,
    "content_type": "text/ü",
    "response_topic": "answer/here",
    "correlation_data": b"\0\xff",
    "user_properties": (("b", "1"), ("a", "2"), ("b", "1"), ("", "")),
}


# 3.1.1 [MQTT-3.3.1-3] · 5.0 [MQTT-3.3.1-3]
@pytest.mark.parametrize("sender", Version)
@pytest.mark.parametrize("receiver", Version)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 20_000])
def test_a_message_crosses_versions(world: World, sender: Version, receiver: Version, qos: int, payload: bytes) -> None:
    publisher, subscriber = world.connect("p", sender), world.connect("s", receiver)
    subscriber.subscribe("t/ü", qos=2)
    publisher.publish("t/ü", payload, qos, dup=qos > 0)
    assert subscriber.message() == Publish("t/ü", payload, qos, packet_id=1 if qos else 0)


# 5.0 [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20]
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("way", ["at once", "later", "retained", "repeated"])
def test_properties_are_passed_on_unaltered(world: World, qos: int, way: str) -> None:
    subscriber = world.connect("s", session_expiry_s=100)
    if way != "retained":
        subscriber.subscribe("t", qos=2)
    if way == "later":
        subscriber.drop()
    publisher = world.connect("p")
    publisher.publish("t", b"x", qos, retain=way == "retained", topic_alias=1, **FORWARDED)
    publisher.publish("", b"y", qos, topic_alias=1)
    if way == "repeated":
        subscriber.take()
        subscriber.drop()
    if way in ("later", "repeated"):
        subscriber = world.client()
        subscriber.connect("s", clean=False)
        messages = [packet for packet in subscriber.take() if isinstance(packet, Publish)]
        assert len(messages) == (2 if qos else 0)
    else:
        if way == "retained":
            subscriber.subscribe("t", qos=2)
        messages = subscriber.messages()
    for message in messages[:1]:
        assert message.properties == Properties(**FORWARDED)  # type: ignore[arg-type]
        assert message.dup is (way == "repeated")
    for message in messages[1:]:
        assert message.properties == Properties()


@pytest.mark.parametrize("version", [V31, V311])
def test_older_clients_get_no_properties(world: World, version: Version) -> None:
    subscriber = world.connect("s", version)
    subscriber.subscribe("t")
    world.connect("p").publish("t", b"x", message_expiry_s=5, **FORWARDED)
    world.turn()
    assert subscriber.inbox == encode(version, Publish("t", b"x"))


# 5.0 [MQTT-3.3.2-6]
def test_the_expiry_is_passed_on(world: World) -> None:
    subscriber = world.connect("s")
    subscriber.subscribe("t", qos=1)
    for qos in (0, 1):
        world.connect("p").publish("t", b"x", qos, message_expiry_s=7)
    assert [message.properties.message_expiry_s for message in subscriber.messages()] == [7, 7]


# Aliases towards the client


# 5.0 [MQTT-3.1.2-26] [MQTT-3.3.2-11]
@pytest.mark.parametrize("qos", [0, 1])
def test_aliases_up_to_the_maximum_of_the_client(world: World, qos: int) -> None:
    subscriber, publisher = world.connect("s", topic_alias_maximum=2), world.connect("p")
    subscriber.subscribe("#", qos=1)
    for topic in ("a", "b", "c", "a", "b", "c"):
        publisher.publish(topic, topic.encode(), qos)
    assert [(message.topic, message.properties.topic_alias) for message in subscriber.messages()] == [
        *(("a", 1), ("b", 2), ("c", None)),
        *(("", 1), ("", 2), ("c", None)),
    ]


def test_the_server_has_a_maximum_of_its_own(make_world: type[World]) -> None:
    world = make_world(FrontConfig(topic_alias_maximum=1))
    subscriber, publisher = world.connect("s", topic_alias_maximum=65535), world.connect("p")
    subscriber.subscribe("#")
    for topic in ("a", "b"):
        publisher.publish(topic)
    assert [message.properties.topic_alias for message in subscriber.messages()] == [1, None]


# 5.0 [MQTT-3.1.2-27]
@pytest.mark.parametrize("properties", [{}, {"topic_alias_maximum": 0}])
def test_no_aliases_unless_the_client_wants_them(world: World, properties: dict[str, int]) -> None:
    subscriber = world.connect("s", **properties)
    subscriber.subscribe("t")
    for _ in range(2):
        world.connect("p").publish("t", topic_alias=1)
    assert [message.topic for message in subscriber.messages()] == ["t", "t"]


# 5.0 [MQTT-3.3.2-7]
def test_aliases_begin_anew_with_a_connection(world: World) -> None:
    for maximum in (1, 1, 0):
        subscriber = world.connect("s", clean=False, session_expiry_s=100, topic_alias_maximum=maximum)
        subscriber.subscribe("t", qos=1)
        world.connect("p").publish("t", b"x", 0)
        message = subscriber.message()
        assert (message.topic, message.properties.topic_alias) == ("t", maximum or None)
        subscriber.drop()


def test_messages_with_aliases_can_be_repeated(world: World) -> None:
    subscriber = world.connect("s", clean=False, session_expiry_s=100, topic_alias_maximum=1)
    subscriber.subscribe("t", qos=1)
    for _ in range(2):
        world.connect("p").publish("t", b"x", 1)
    assert [message.topic for message in subscriber.messages()] == ["t", ""]
    subscriber.drop()
    again = world.client()
    again.connect("s", clean=False)
    assert [packet.topic for packet in again.take() if isinstance(packet, Publish)] == ["t", "t"]


# The largest packet the client takes


# 5.0 [MQTT-3.1.2-24] [MQTT-3.1.2-25]
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_larger_messages_are_passed_over(world: World, qos: int) -> None:
    limit = 100
    subscriber, publisher = world.connect("s", maximum_packet_size=limit), world.connect("p")
    subscriber.subscribe("t", qos=qos)
    overhead = len(encode(V5, Publish("t", b"", qos, packet_id=1)))
    for size in (limit - overhead, limit - overhead + 1, 1000, 1):
        publisher.publish("t", b"x" * size, qos)
    assert [len(message.payload) for message in subscriber.messages()] == [limit - overhead, 1]
    assert len(world.session("s").inflight) == (2 if qos else 0)
    assert world.broker.counters.publish_dropped == 0


def test_an_alias_never_makes_a_message_too_large(world: World) -> None:
    limit = 100
    subscriber, publisher = world.connect("s", maximum_packet_size=limit, topic_alias_maximum=1), world.connect("p")
    subscriber.subscribe("#")
    exact = limit - len(encode(V5, Publish("t", b"")))
    for payload in (b"x" * exact, b"x" * (exact + 1), b"small", b"x" * (exact - 2)):
        publisher.publish("t", payload)
    messages = subscriber.messages()
    assert [(message.topic, message.properties.topic_alias) for message in messages] == [("t", None), ("t", 1), ("", 1)]


# 5.0 [MQTT-3.1.2-24]
def test_an_answer_that_is_too_large_closes(world: World) -> None:
    client = world.connect("c", maximum_packet_size=50)
    assert len(client.subscribe(*[Subscription(f"t/{number}", 0) for number in range(44)]).reasons) == 44
    with pytest.raises(AssertionError):
        client.subscribe(*[Subscription(f"t/{number}", 0) for number in range(60)])
    assert client.closed
    assert world.broker.sessions == {}


# 5.0 [MQTT-3.1.2-24]
@pytest.mark.parametrize("limit", [1, 4, 5, 12])
def test_who_takes_no_connack_is_not_let_in(world: World, limit: int) -> None:
    client = world.client()
    client.send(Connect(V5, "c", True, 0, properties=Properties(maximum_packet_size=limit)))
    refused = [] if limit < 5 else [Connack(False, Reason.PACKET_TOO_LARGE)]
    assert client.take() == refused
    assert client.closed
    assert world.broker.sessions == {}


# 5.0 [MQTT-3.1.2-29]
def test_problem_information_is_in_no_other_packet(world: World) -> None:
    client = world.connect("c", request_problem_information=0)
    suback = client.subscribe("a", "/" * 128)
    assert suback.properties == Properties()
    assert client.unsubscribe("a", "none").properties == Properties()
    client.publish("$SYS/x", qos=1)
    client.publish("$SYS/x", qos=2)
    for packet in client.take():
        assert packet.properties == Properties()  # type: ignore[union-attr]
    client.feed(b"\0\0")
    assert client.only(Disconnect).properties.reason_string


# What one turn may gather


@pytest.mark.parametrize("version", Version)
def test_one_turn_gathers_no_more_than_half_of_what_may_wait(make_world: type[World], version: Version) -> None:
    world = make_world(FrontConfig(max_buffer_bytes=10_000))
    client = world.connect("c", version)
    publisher = world.connect("p")
    for number in range(100):
        publisher.publish(f"r/{number}", b"x" * 990, 0, retain=True)
    client.send_subscribe("r/#")
    suback, *messages = client.take()
    assert isinstance(suback, Suback)
    assert 5 <= len(messages) <= 6
    for _ in range(100):
        publisher.publish("r/0", b"x" * 990, 0, content_type="not plain")
    assert 5 <= len(client.messages()) <= 6
    assert world.broker.counters.publish_dropped >= 94


@pytest.mark.parametrize("version", Version)
def test_what_must_not_be_dropped_waits_for_the_next_turn(make_world: type[World], version: Version) -> None:
    world = make_world(FrontConfig(max_buffer_bytes=10_000))
    client = world.connect("c", version)
    publisher = world.connect("p")
    client.subscribe("t", qos=1)
    for number in range(20):
        publisher.publish("t", b"%03d" % number + b"x" * 990, 1)
    turns, payloads = 0, list[bytes]()
    while True:
        got = client.payloads()
        if not got:
            break
        assert len(got) <= 6
        turns, payloads = turns + 1, payloads + got
    assert turns >= 4
    assert [int(payload[:3]) for payload in payloads] == list(range(20))


# The encodings of one message, which its receivers share


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("payload", [b"", b"x", b"x" * 300])
def test_the_bytes_are_those_of_a_publish(version: Version, retain: bool, payload: bytes) -> None:
    encoded = Encoded(Message("t/ü", payload, properties=encode_properties(PROPERTIES)))
    assert encoded.whole(version, retain) == encode(version, Publish("t/ü", payload, 0, retain, properties=PROPERTIES))
    for qos in (1, 2):
        head, tail = encoded.parts(version, qos, retain)
        wanted = encode(version, Publish("t/ü", payload, qos, retain, packet_id=0x1234, properties=PROPERTIES))
        assert head + b"\x12\x34" + tail == wanted


def test_each_is_made_once() -> None:
    encoded = Encoded(Message("t", b"x"))
    assert encoded.whole(Version.V5, False) is encoded.whole(Version.V5, False)
    assert encoded.parts(Version.V311, 1, True) is encoded.parts(Version.V311, 1, True)
    assert encoded.whole(Version.V5, False) != encoded.whole(Version.V5, True)
    assert encoded.parts(Version.V311, 1, True) != encoded.parts(Version.V311, 2, True)


def test_it_knows_what_is_of_the_log() -> None:
    assert Encoded(Message("ringmq/log/a", b"x")).of_the_log
    assert not Encoded(Message("ringmq/logs", b"x")).of_the_log
