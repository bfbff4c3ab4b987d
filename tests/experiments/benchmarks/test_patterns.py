"""Patterns and their packets."""

from __future__ import annotations

import pytest

from experiments.benchmarks.patterns import PACKET_IDS, PATTERNS, PAYLOAD_BYTES, connect_packet, subscribe_packet
from mqtt_front.codec import decode
from mqtt_front.packets import Connect, Packet, Publish, Subscribe, Version
from mqtt_front.stream import PacketReader


def read(packet: bytes) -> Packet:
    ((first, body),) = PacketReader().feed(packet)
    return decode(Version.V311, first, body)


@pytest.mark.parametrize("name", PATTERNS)
def test_the_packets_of_a_pattern_are_publications_of_one_size(name: str) -> None:
    pattern = PATTERNS[name]
    packets = [packet for topic in range(pattern.topics) for packet in pattern.packets(topic)]
    assert {len(packet) for packet in packets} == {pattern.packet_bytes}
    first = read(packets[0])
    assert isinstance(first, Publish)
    assert (first.topic, first.qos, len(first.payload)) == (pattern.topic(0), pattern.qos, PAYLOAD_BYTES)


def test_the_patterns_are_those_of_the_paper_and_pairs() -> None:
    fan_out, pairs = PATTERNS["qos0-1to10"], PATTERNS["qos1-1to1"]
    assert (fan_out.all_publishers, fan_out.sp_ratio) == (50, 10)
    assert (pairs.all_publishers, pairs.sp_ratio) == (50, 1)


def test_a_publisher_with_qos_1_uses_its_ids_in_turn() -> None:
    ids = []
    for packet in PATTERNS["qos1-1to1"].packets(0):
        publication = read(packet)
        assert isinstance(publication, Publish)
        ids.append(publication.packet_id)
    assert ids == list(range(1, PACKET_IDS + 1))


def test_what_clients_say_first() -> None:
    hello, wish = read(connect_packet("a")), read(subscribe_packet("x", "y/+", qos=1))
    assert isinstance(hello, Connect)
    assert (hello.client_id, hello.clean_start) == ("a", True)
    assert isinstance(wish, Subscribe)
    assert [(one.filter, one.qos) for one in wish.subscriptions] == [("x", 1), ("y/+", 1)]
