"""Bytes in: that bytes are bytes however they are cut, what is a sign of life, and what one turn may set going."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import (
    Connect,
    Packet,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Version,
    Will,
)
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection import budget, reader
from ringmq.mqtt_front.connection.budget import (
    ALL_BYTES,
    CONNECTION_BYTES,
    DELIVERY_BYTES,
    FAST_BYTES,
    FILTER_BYTES,
    PACKET_BYTES,
    SLICE_BYTES,
)
from ringmq.mqtt_front.connection.handlers import Handlers
from ringmq.mqtt_front.connection.reader import PART_BYTES
from tests.mqtt_front.front_bench import by_counts_alone

if TYPE_CHECKING:
    from tests.mqtt_front.conftest import Client, World

V31, V311, V5 = Version.V31, Version.V311, Version.V5


# Signs of life; keep-alive is the shell's to watch


# 3.1.1 [MQTT-3.12.4-1] · 5.0 [MQTT-3.12.4-1]
@pytest.mark.parametrize("version", Version)
def test_pings_are_answered_and_heard(world: World, version: Version) -> None:
    client = world.connect("c", version, keep_alive_s=10)
    assert client.connection.keep_alive_s == 10
    world.pass_time(12)
    client.send(Pingreq())
    client.only(Pingresp)
    assert client.connection.reader.heard_at == 12


@pytest.mark.parametrize("version", Version)
@pytest.mark.parametrize("size", [900, 15_000, 100_000])
def test_a_packet_that_trickles_is_no_sign_of_life(world: World, version: Version, size: int) -> None:
    client = world.connect("c", version, keep_alive_s=10)
    data = encode(version, Publish("t", b"x" * size))
    most = min(PART_BYTES, len(data)) - 1
    for byte in data[:most]:
        world.pass_time(1)
        client.feed(bytes([byte]))
    assert client.connection.reader.heard_at == 0
    world.pass_time(1)
    client.feed(data[most:])
    assert client.connection.reader.heard_at == world.now


@pytest.mark.parametrize("size", [15_000, 100_000])
def test_a_large_packet_may_take_its_time(world: World, size: int) -> None:
    client = world.connect("c", keep_alive_s=10)
    client.send(Pingreq())
    data = encode(V5, Publish("t", b"x" * size))
    for start in range(0, len(data), PART_BYTES // 2):
        world.pass_time(5)
        client.feed(data[start : start + PART_BYTES // 2])
        assert world.now - client.connection.reader.heard_at <= 10
    assert client.connection.reader.heard_at == world.now


def test_each_packet_begins_to_count_anew(world: World) -> None:
    client = world.connect("c")
    data = encode(V5, Publish("t", b"x" * 10_000))
    for now in (1, 2):
        world.pass_time(1)
        client.feed(data[:5000])
        assert client.connection.reader.heard_at == now
        client.feed(data[5000:])


# What one turn may set going


def receivers(world: World, number: int, topic: str = "t", qos: int = 0) -> list[Client]:
    clients = [world.connect(f"s{place}", V311) for place in range(number)]
    for client in clients:
        client.subscribe(topic, qos=qos)
    return clients


@contextmanager
def turns_of(size_bytes: int) -> Iterator[None]:
    """Turns in which each connection may do so much."""
    with (
        patch.object(budget, "CONNECTION_BYTES", size_bytes),
        patch.object(budget, "SLICE_BYTES", size_bytes),
        patch.object(reader, "SLICE_BYTES", size_bytes),
    ):
        yield


def gathered(clients: list[Client]) -> int:
    return sum(len(part) for client in clients for part in client.connection.writer.out)


BURSTS = {
    "tiny ones": [Publish("t", b"%d" % number) for number in range(5000)],
    "with QoS 1": [Publish("t", b"%d" % number, 1, packet_id=number + 1) for number in range(5000)],
    "retained": [Publish("t", b"%d" % number, retain=True) for number in range(5000)],
    "large ones": [Publish("t", b"%05d" % number + b"x" * 40_000) for number in range(20)],
    "middling ones": [Publish("t", b"%05d" % number + b"x" * 10_000) for number in range(80)],
}


@pytest.mark.parametrize("kind", BURSTS)
@pytest.mark.parametrize("greeted", [True, False])
def test_what_one_turn_gathers_is_bounded(make_world: type[World], kind: str, greeted: bool) -> None:
    """Whether the burst comes later or right with the CONNECT."""
    world = make_world(FrontConfig(max_buffer_bytes=1 << 30, receive_maximum=65535))
    with turns_of(1 << 20):
        clients = receivers(world, 20)
        publisher = world.client(V311)
        packets: list[Packet] = [Connect(V311, "p", True, 0), *BURSTS[kind]]
        if greeted:
            publisher.send(packets.pop(0))
            world.turn()
        publisher.feed(b"".join([encode(V311, packet) for packet in packets]))
        assert publisher.connection.pausing
        turns = 0
        while world.broker.dirty:
            assert gathered(clients) <= 2 * (1 << 20)
            assert sum(len(client.connection.writer.out) for client in clients) <= (1 << 20) // DELIVERY_BYTES + len(
                clients
            )
            world.turn()
            turns += 1
    assert turns > 3
    assert not publisher.connection.pausing
    wanted = [packet.payload for packet in BURSTS[kind] if isinstance(packet, Publish)]
    for client in clients:
        assert client.payloads() == wanted


def test_the_bound_is_far_above_an_ordinary_chunk(world: World) -> None:
    clients = receivers(world, 10)
    publisher = world.connect("p", V311)
    packet = encode(V311, Publish("t", b"x" * 16))
    publisher.feed(packet * (250_000 // len(packet)))
    assert not publisher.connection.reader.behind
    assert gathered(clients) > 2_000_000
    publisher.feed(packet * (CONNECTION_BYTES // (FAST_BYTES + 10 * DELIVERY_BYTES)))
    assert publisher.connection.reader.behind, "it is the same turn"


def test_a_new_turn_has_its_own_bound(world: World) -> None:
    receivers(world, 10)
    publisher = world.connect("p", V311)
    packet = encode(V311, Publish("t", b"x" * 16))
    for _ in range(10):
        publisher.feed(packet * 5000)
        assert not publisher.connection.reader.behind
        world.turn()


def test_who_is_behind_is_served_in_order(world: World) -> None:
    (client,) = receivers(world, 1)
    publisher = world.connect("p", V311)
    with turns_of(1000):
        world.turn()
        for number in range(100):
            publisher.publish("t", b"%d" % number)
        publisher.send(Pingreq())
        assert publisher.connection.reader.behind
        payloads: list[bytes] = []
        while world.broker.dirty:
            payloads += client.payloads()
    assert payloads + client.payloads() == [b"%d" % number for number in range(100)]
    publisher.only(Pingresp)


def test_what_was_sent_before_the_end_counts(world: World) -> None:
    (client,) = receivers(world, 1, "#")
    publisher = world.connect("p", V311, will=Will("will", b"gone", 0, False))
    with turns_of(1000):
        world.turn()
        for _ in range(100):
            publisher.publish("t")
        publisher.leave()
        assert not publisher.closed, "it is not over yet"
        topics: list[str] = []
        while world.broker.dirty:
            topics += [message.topic for message in client.messages()]
    assert topics == ["t"] * 100
    assert publisher.closed


def test_who_is_thrown_out_is_not_served_any_more(world: World) -> None:
    (client,) = receivers(world, 1)
    publisher = world.connect("p", V311)
    with turns_of(1000):
        world.turn()
        for _ in range(100):
            publisher.publish("t")
        world.connect("p", V311)
        publisher.drop()
        while world.broker.dirty:
            world.turn()
    assert 0 < len(client.payloads()) < 20


TINY: dict[str, list[Packet]] = {
    "pings": [Pingreq()] * 20_000,
    "releases of nothing": [Pubrel(1)] * 20_000,
    "to nobody": [Publish("t", b"")] * 50_000,
    "ever new topics": [Publish(f"{number}", b"") for number in range(5000)],
    "ever new topics, retained": [Publish(f"{number}", b"x", retain=True) for number in range(5000)],
    "filters": [Subscribe(1, (Subscription("a", 0), Subscription("b", 0)))] * 5000,
    "filters of nobody": [Unsubscribe(1, ("a", "b"))] * 5000,
    "filters of nobody in one packet": [Unsubscribe(1, ("a",) * 5000), Pingreq()],
}


@pytest.mark.parametrize("kind", TINY)
def test_packets_that_go_to_nobody_count_too(world: World, kind: str) -> None:
    client = world.connect("c")
    client.take()
    client.feed(b"".join([encode(V5, packet) for packet in TINY[kind]]))
    assert client.connection.pausing
    turns, answers = 0, 0
    while world.broker.dirty:
        answers += len(client.take())
        turns += 1
    assert turns > 1
    assert answers == (0 if isinstance(TINY[kind][0], Publish) else len(TINY[kind]))
    assert not client.connection.pausing


def test_all_together_have_a_bound_and_nobody_starves(world: World) -> None:
    """Those who are behind share the turn; however many they are, each gets on a little."""
    clients = [world.connect(f"c{number}") for number in range(20)]
    world.turn()
    for client in clients:
        client.feed(encode(V5, Pingreq()) * 30_000)
    counters = world.broker.counters
    most = (ALL_BYTES + len(clients) * (SLICE_BYTES + PACKET_BYTES)) // PACKET_BYTES
    assert counters.messages_received < most + 100
    late = world.connect("late")
    late.send(Pingreq())
    late.only(Pingresp)
    before, got = counters.messages_received, [len(client.take()) for client in clients]
    assert counters.messages_received - before < len(clients) * most
    assert min(got) >= SLICE_BYTES // PACKET_BYTES
    assert all(client.connection.reader.behind for client in clients)
    world.turn()
    assert max(got[1:]) < 2 * ALL_BYTES // PACKET_BYTES


def test_who_took_too_much_with_one_packet_waits_for_as_many_turns(world: World) -> None:
    client = world.connect("c")
    client.feed(encode(V5, Unsubscribe(1, ("a",) * 9000)) * 2)
    turns = 0
    while len(client.take()) == 1 or client.connection.reader.behind:
        turns += 1
    assert turns >= 9000 * FILTER_BYTES // CONNECTION_BYTES


def test_an_error_keeps_nothing(make_world: type[World]) -> None:
    with by_counts_alone() as ours:
        world = make_world()
        for data in (b"\x00\0", b"\x30\xff\xff\xff\xff", b"\x30\x03\0\1\xff", b"\x82\x02\0\0"):
            client = world.connect("c")
            client.feed(data)
            client.drop()
            world.turn()
            assert client.closed
        del client
        world._inboxes.clear()
        assert ours() == []


def test_a_cut_packet_does_not_make_the_others_slow(world: World) -> None:
    """A stream that fills the chunks of its socket is cut anywhere: its packets go the fast path all the same."""
    (client,) = receivers(world, 1)
    publisher = world.connect("p", V311)
    data = encode(V311, Publish("t", b"x" * 16)) * 1000
    with patch.object(Handlers, "on_publish", side_effect=AssertionError("the general path")):
        for start in range(0, len(data), 1001):
            publisher.feed(data[start : start + 1001])
    assert len(client.messages()) == 1000


# Bytes are bytes

TOPICS = st.sampled_from(["t", "a/b", "a", "$x", "late"])
PAYLOADS = st.sampled_from([b"", b"x", b"x" * 200])
IDS = st.integers(1, 4)


def packets_of(version: Version) -> st.SearchStrategy[Packet]:
    properties = st.just(Properties())
    if version is V5:
        properties |= st.sampled_from(
            [
                Properties(user_properties=(("a", "b"),)),
                Properties(topic_alias=1),
                Properties(topic_alias=2, message_expiry_s=5),
            ]
        )
    filters = st.sampled_from(["#", "t", "a/+", "$share/g/a/#", "a/#/b", "$x"])
    return st.one_of(
        st.builds(Publish, TOPICS, PAYLOADS, st.just(0), st.booleans(), properties=properties),
        st.builds(Publish, TOPICS, PAYLOADS, st.integers(1, 2), st.booleans(), st.booleans(), IDS, properties),
        st.builds(Subscribe, IDS, st.lists(st.builds(Subscription, filters, st.integers(0, 2)), min_size=1).map(tuple)),
        st.builds(Unsubscribe, IDS, st.lists(filters, min_size=1).map(tuple)),
        st.builds(Puback, IDS),
        st.builds(Pubrec, IDS),
        st.builds(Pubrel, IDS),
        st.just(Pingreq()),
    )


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Version, bytes]:
    version = draw(st.sampled_from(Version))
    packets = draw(st.lists(packets_of(version), max_size=12))
    start = Connect(version, "c", draw(st.booleans()), 0, Will("t", b"will", 1, True))
    return version, b"".join([encode(version, packet) for packet in (start, *packets)])


def outcome(world: World, version: Version, chunks: list[bytes]) -> tuple[bytes, bytes, bool, str, int]:
    """All that others can see of a client that sends this."""
    client = world.client(version)
    watcher = world.connect("watcher")
    watcher.subscribe("#", qos=2)
    for chunk in chunks:
        client.feed(chunk)
    client.drop()
    while world.broker.dirty:
        world.turn()
    return client.inbox, watcher.inbox, client.closed, client.connection.why, len(world.broker.retained)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


# 3.1.1 [MQTT-7.1.1-1] · 5.0 [MQTT-4.2.0-1]
@settings(deadline=None, max_examples=150)
@given(conversations(), st.lists(st.integers(0, 10_000), max_size=20))
def test_any_chunks_of_the_same_bytes_have_the_same_outcome(
    make_world: type[World], conversation: tuple[Version, bytes], places: list[int]
) -> None:
    version, data = conversation
    whole = outcome(make_world(), version, [data])
    assert outcome(make_world(), version, cut(data, places)) == whole


@settings(deadline=None, max_examples=40)
@given(conversations(), st.lists(st.integers(0, 10_000), max_size=20), st.integers(1, 2000))
def test_however_many_turns_it_takes_it_has_the_same_outcome(
    make_world: type[World], conversation: tuple[Version, bytes], places: list[int], turn_bytes: int
) -> None:
    """But for retained messages, which come in turns of their own."""
    version, data = conversation
    with patch.object(Handlers, "bring_retained"):
        whole = outcome(make_world(), version, [data])
        with turns_of(turn_bytes):
            assert outcome(make_world(), version, cut(data, places)) == whole


@settings(deadline=None, max_examples=20)
@given(conversations())
def test_byte_by_byte_it_has_the_same_outcome(make_world: type[World], conversation: tuple[Version, bytes]) -> None:
    version, data = conversation
    bytewise = [data[place : place + 1] for place in range(len(data))]
    assert outcome(make_world(), version, bytewise) == outcome(make_world(), version, [data])


@settings(deadline=None, max_examples=300)
@given(conversations(), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
       st.lists(st.integers(0, 10_000), max_size=5))  # fmt: skip
def test_changed_bytes_only_close_and_whatever_the_chunks(
    make_world: type[World],
    conversation: tuple[Version, bytes],
    changes: list[tuple[int, int]],
    places: list[int],
) -> None:
    version, data = conversation
    wrong = bytearray(data)
    for place, byte in changes:
        wrong[place % len(data)] = byte
    data = bytes(wrong)
    assert outcome(make_world(), version, cut(data, places)) == outcome(make_world(), version, [data])


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=100), st.sampled_from(Version))
@example(b"\x30\x04\0\1\0\0", V5)
@example(b"\x30\x03\0\1\0", V311)
def test_garbage_only_closes(make_world: type[World], data: bytes, version: Version) -> None:
    for greeting in (b"", encode(version, Connect(version, "c", True, 0))):
        whole = outcome(make_world(), version, [greeting + data])
        assert outcome(make_world(), version, [greeting, *cut(data, [1, 2, 3, 7])]) == whole
