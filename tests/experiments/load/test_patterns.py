"""Patterns and their packets."""

from __future__ import annotations

from collections import Counter

import pytest

from ringmq.experiments.load.patterns import (
    LEAST_PACKET_IDS,
    PACKET_IDS,
    PACKETS_BYTES,
    PATTERNS,
    PAYLOAD_BYTES,
    RING_PATTERNS,
    At,
    Pattern,
    chosen,
    connect_packet,
    subscribe_packet,
)
from ringmq.mqtt_front.codec.codec import decode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Connect, Packet, Publish, Subscribe, Version


def read(packet: bytes) -> Packet:
    ((first, body),) = PacketReader().feed(packet)
    return decode(Version.V311, first, body)


@pytest.mark.parametrize("name", [*PATTERNS, *RING_PATTERNS])
def test_packets_of_a_pattern_are_publications_of_one_size(name: str) -> None:
    pattern = {**PATTERNS, **RING_PATTERNS}[name]
    packets = [packet for topic in range(pattern.topics) for packet in pattern.packets(topic)]
    assert {len(packet) for packet in packets} == {pattern.packet_bytes}
    first = read(packets[0])
    assert isinstance(first, Publish)
    assert (first.topic, first.qos, len(first.payload)) == (pattern.topic(0), pattern.qos, PAYLOAD_BYTES)


def test_patterns_have_the_clients_and_ratios_of_the_paper() -> None:
    fan_out, pairs = PATTERNS["qos0-1to10"], PATTERNS["qos1-1to1"]
    assert (fan_out.all_publishers, fan_out.sp_ratio) == (50, 10)
    assert (pairs.all_publishers, pairs.sp_ratio) == (50, 1)


def topics_at(pattern: Pattern, at: At, clients: int) -> list[list[int]]:
    """For each server, the numbers of its clients of each topic, the largest number first."""
    counts = Counter((at(topic, client), topic) for topic in range(pattern.topics) for client in range(clients))
    assert {server for server, _ in counts} <= set(range(pattern.servers))
    return [
        sorted((count for (counted, _), count in counts.items() if counted == server), reverse=True)
        for server in range(pattern.servers)
    ]


@pytest.mark.parametrize(("name", "topics"), [("five-B", [2] * 5), ("five-C", [10]), ("five-D", [8, 1, 1])])
def test_patterns_of_five_servers_have_the_clients_of_the_paper(name: str, topics: list[int]) -> None:
    pattern = RING_PATTERNS[name]
    assert (pattern.topics, pattern.publishers, pattern.subscribers, pattern.qos) == (5, 10, 10, 0)
    assert topics_at(pattern, pattern.publisher_at, pattern.publishers) == [topics] * 5
    assert topics_at(pattern, pattern.subscriber_at, pattern.subscribers) == [topics] * 5
    assert (pattern.prober_at, pattern.probed) == (4, (0, 1, 2, 3, 4))


def test_pattern_of_one_server_has_all_clients_there() -> None:
    pattern = RING_PATTERNS["one-A"]
    assert (pattern.topics, pattern.publishers, pattern.subscribers, pattern.qos) == (5, 10, 10, 0)
    assert topics_at(pattern, pattern.publisher_at, pattern.publishers) == [[10] * 5]
    assert topics_at(pattern, pattern.subscriber_at, pattern.subscribers) == [[10] * 5]
    assert (pattern.prober_at, pattern.probed) == (0, (0,))


@pytest.mark.parametrize(("name", "sp_ratio"), [("two-1to10", 10), ("two-1to1", 1)])
def test_publishers_are_at_one_of_two_servers_and_subscribers_at_the_other(name: str, sp_ratio: int) -> None:
    pattern = RING_PATTERNS[name]
    assert (pattern.sp_ratio, pattern.all_publishers) == (sp_ratio, 50)
    assert topics_at(pattern, pattern.publisher_at, pattern.publishers)[1] == []
    assert topics_at(pattern, pattern.subscriber_at, pattern.subscribers)[0] == []
    assert (pattern.prober_at, pattern.probed) == (0, (1,))


def test_publisher_with_qos_1_uses_its_packet_ids_in_turn() -> None:
    ids = []
    for packet in PATTERNS["qos1-1to1"].packets(0):
        publication = read(packet)
        assert isinstance(publication, Publish)
        ids.append(publication.packet_id)
    assert ids == list(range(1, PACKET_IDS + 1))


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("payload_bytes", [0, 1000])
def test_a_varied_pattern_has_other_messages_and_a_name_of_its_own(qos: int, payload_bytes: int) -> None:
    pattern = PATTERNS["qos1-1to1"].varied(qos, payload_bytes)
    assert pattern.name == f"qos{qos}-1to1-{payload_bytes}B"
    packet = read(pattern.packets(3)[-1])
    assert isinstance(packet, Publish)
    assert (packet.topic, packet.qos, len(packet.payload)) == (pattern.topic(3), qos, payload_bytes)
    assert pattern.packet_bytes == len(pattern.packets(3)[-1])


def test_a_pattern_that_is_not_varied_is_the_same() -> None:
    pattern = PATTERNS["qos0-1to1"]
    assert pattern.varied(None, None) == pattern.varied(0, PAYLOAD_BYTES) == pattern
    assert RING_PATTERNS["two-1to1"].varied(2, None).name == "qos2-two-1to1"


def test_patterns_that_become_equal_are_chosen_once() -> None:
    assert [pattern.name for pattern in chosen(PATTERNS, PATTERNS, 1, None)] == ["qos1-1to10", "qos1-1to1"]
    assert chosen(PATTERNS, PATTERNS, None, None) == list(PATTERNS.values())


def test_large_payloads_have_fewer_packet_ids() -> None:
    pattern = PATTERNS["qos1-1to1"]
    assert pattern.packet_ids == pattern.varied(2, 4096).packet_ids == PACKET_IDS
    large = pattern.varied(None, 65_536)
    assert LEAST_PACKET_IDS < large.packet_ids < PACKET_IDS
    assert large.packet_ids * large.all_publishers * large.payload_bytes <= PACKETS_BYTES
    assert pattern.varied(None, 1_000_000_000).packet_ids == LEAST_PACKET_IDS


def test_connect_and_subscribe_packets_decode() -> None:
    connect, subscribe = read(connect_packet("a")), read(subscribe_packet("x", "y/+", qos=1))
    assert isinstance(connect, Connect)
    assert (connect.client_id, connect.clean_start) == ("a", True)
    assert isinstance(subscribe, Subscribe)
    filters = [(subscription.filter, subscription.qos) for subscription in subscribe.subscriptions]
    assert filters == [("x", 1), ("y/+", 1)]
