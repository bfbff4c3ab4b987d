"""Errors of a server, chunks of bytes, and garbage: one error, whatever comes."""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringmq.mqtt_front.client.connection import ClientConnection, ClientPhase
from ringmq.mqtt_front.client.events import (
    Arrived,
    ClientEvent,
    Opened,
)
from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Auth,
    Connect,
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
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.errors import ServerBreachError
from tests.mqtt_front.client.exchange import FRESH, RESUMED, V3, V5, Exchange
from tests.mqtt_front.codec.test_codec import mutated, samples

# Errors of the server

BREACHES: list[tuple[str, tuple[Packet, ...], Reason]] = [
    ("a second CONNACK", (FRESH,), Reason.PROTOCOL_ERROR),
    ("must not send Subscribe", (Subscribe(1, (Subscription("a", 0),)),), Reason.PROTOCOL_ERROR),
    ("must not send Unsubscribe", (Unsubscribe(1, ("a",)),), Reason.PROTOCOL_ERROR),
    ("must not send Pingreq", (Pingreq(),), Reason.PROTOCOL_ERROR),
    ("must not send Connect", (Connect(V5, "c", True, 0),), Reason.PROTOCOL_ERROR),
    ("must not send Auth", (Auth(Reason.CONTINUE_AUTHENTICATION),), Reason.PROTOCOL_ERROR),
    ("which asked for none", (Suback(9, (Reason.SUCCESS,)),), Reason.PROTOCOL_ERROR),
    ("which asked for none", (Unsuback(3, (Reason.SUCCESS,)),), Reason.PROTOCOL_ERROR),
    ("must have 1 reasons, got 2", (Suback(3, (Reason.SUCCESS, Reason.SUCCESS)),), Reason.PROTOCOL_ERROR),
    ("it must be Puback", (Pubrec(1),), Reason.PROTOCOL_ERROR),
    ("it must be Puback", (Pubcomp(1),), Reason.PROTOCOL_ERROR),
    ("it must be Pubrec", (Puback(2),), Reason.PROTOCOL_ERROR),
    ("it must be Pubrec", (Pubcomp(2),), Reason.PROTOCOL_ERROR),
    ("it must be Pubcomp", (Pubrec(2), Puback(2)), Reason.PROTOCOL_ERROR),
    (
        "at most 2 messages may be unacknowledged",
        tuple(Publish("a", b"", 2, packet_id=number) for number in (1, 2, 3)),
        Reason.RECEIVE_MAXIMUM_EXCEEDED,
    ),
    ("at most 0", (Publish("a", b"", properties=Properties(topic_alias=1)),), Reason.TOPIC_ALIAS_INVALID),
]


@pytest.mark.parametrize(("text", "packets", "reason"), BREACHES)
def test_a_breach_of_the_server_is_one_error_and_a_disconnect(
    text: str, packets: tuple[Packet, ...], reason: Reason
) -> None:
    exchange = Exchange(properties=Properties(receive_maximum=2))
    exchange.client.publish("a", b"", 1)
    exchange.client.publish("a", b"", 2)
    exchange.client.subscribe(Subscription("a", 0))
    exchange.sent()
    with pytest.raises(ServerBreachError, match=text) as raised:
        exchange.serve(*packets)
    assert raised.value.reason is reason
    assert exchange.sent()[-1] == Disconnect(reason)
    assert exchange.client.phase is ClientPhase.CLOSED
    exchange.client.events_received()
    assert exchange.serve(Publish("a", b"")) == []


def test_a_packet_before_the_connack_is_a_breach_and_gets_no_answer() -> None:
    exchange = Exchange(connack=None)
    with pytest.raises(ServerBreachError, match="a Publish before the CONNACK"):
        exchange.serve(Publish("a", b""))
    assert exchange.sent() == []


def test_a_session_after_a_clean_start_is_a_breach() -> None:
    exchange = Exchange(connack=None)
    with pytest.raises(ServerBreachError, match="a session is present after a clean start"):
        exchange.serve(RESUMED)


def test_an_unset_topic_alias_is_a_breach() -> None:
    exchange = Exchange(properties=Properties(topic_alias_maximum=2))
    with pytest.raises(ServerBreachError, match="topic alias 1 stands for nothing"):
        exchange.serve(Publish("", b"", properties=Properties(topic_alias=1)))


def test_a_packet_above_the_own_maximum_is_a_breach() -> None:
    exchange = Exchange(properties=Properties(maximum_packet_size=100))
    with pytest.raises(ServerBreachError, match="at most 100 bytes"):
        exchange.serve(Publish("a", b"x" * 100))
    assert exchange.sent() == [Disconnect(Reason.PACKET_TOO_LARGE)]


def test_mqtt_3_gets_no_disconnect_from_a_server() -> None:
    exchange = Exchange(V3)
    with pytest.raises(ServerBreachError, match="must not send Disconnect"):
        exchange.serve(Disconnect())
    assert exchange.sent() == []


@pytest.mark.parametrize("packet", [Puback(7), Pubcomp(7), Pubrec(7), Pubrel(7)])
def test_acknowledgements_of_an_earlier_session_are_answered_and_ignored(packet: Packet) -> None:
    exchange = Exchange()
    assert exchange.serve(packet) == []
    unknown = Reason.PACKET_IDENTIFIER_NOT_FOUND
    answers = {Pubrec: [Pubrel(7, unknown)], Pubrel: [Pubcomp(7, unknown)]}
    assert exchange.sent() == answers.get(type(packet), [])


def test_events_before_an_error_are_not_lost() -> None:
    exchange = Exchange()
    data = encode(V5, Publish("a", b"x")) + b"\x00\x00"
    with pytest.raises(ServerBreachError):
        exchange.client.feed(data)
    assert exchange.client.events_received() == [Arrived("a", b"x")]


# Chunks and garbage

STREAM = b"".join(
    encode(V5, packet)
    for packet in (
        FRESH,
        Publish("a", b"0", 2, packet_id=3),
        Publish("a/b", b"1" * 300, properties=Properties(user_properties=(("k", "v"),))),
        Pubrel(3),
        Publish("a", b"2", 1, True, packet_id=3),
        Puback(1),
        Pubrec(2),
        Pubcomp(2),
        Suback(3, (Reason.GRANTED_QOS_1,)),
        Pingresp(),
        Disconnect(Reason.SERVER_SHUTTING_DOWN),
    )
)


def run_through(chunks: list[bytes]) -> tuple[list[str], bytes]:
    client = ClientConnection(Connect(V5, "c", True, 0))
    client.publish("a", b"", 1)
    client.publish("b", b"", 2)
    events: list[ClientEvent] = []
    answers = b""
    for chunk in chunks:
        client.feed(chunk)
        for event in client.events_received():
            events.append(event)
            if isinstance(event, Opened):
                client.subscribe(Subscription("x", 1))
        answers += client.data_to_send(0.0)
    return [*map(repr, events)], answers


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_any_chunking_of_the_same_bytes_gives_the_same_events(cuts: list[int]) -> None:
    # The first cut is after the CONNACK, since the SUBSCRIBE must be there before its SUBACK.
    opening = len(encode(V5, FRESH))
    places = [0, opening, *sorted(cut for cut in cuts if cut > opening), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    assert run_through(chunks) == run_through([STREAM[:opening], STREAM[opening:]])


@given(st.binary(max_size=200), st.sampled_from(Version))
def test_garbage_gives_only_the_protocol_error(garbage: bytes, version: Version) -> None:
    for connack in (None, FRESH):
        exchange = Exchange(version, connack)
        with contextlib.suppress(ServerBreachError):
            exchange.client.feed(garbage)
        exchange.client.events_received()


@pytest.mark.parametrize("version", [V3, V5])
def test_mutated_packets_give_only_the_protocol_error(version: Version) -> None:
    chance = random.Random(7)
    streams = [stream for of_version, stream in samples() if of_version is version]
    errors = 0
    for _ in range(3000):
        exchange = Exchange(version)
        exchange.client.publish("a", b"", 2)
        try:
            for _ in range(3):
                exchange.client.feed(mutated(chance, chance.choice(streams)))
        except ServerBreachError:
            errors += 1
            assert exchange.client.phase is ClientPhase.CLOSED
    assert errors > 1000
