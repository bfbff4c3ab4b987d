"""Arriving packets are counted, acknowledged and timed, in chunks of any size."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from time import perf_counter

import pytest

from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.receiver import TIMESTAMP, Receiver
from ringmq.mqtt_front.codec.codec import encode_ack, encode_publish
from ringmq.mqtt_front.codec.packets import Kind, Version

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    client, server = socket.socketpair()
    client.setblocking(False)
    yield client, server
    client.close()
    server.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


def test_bytes_are_counted(pair: Pair, receiver: Receiver) -> None:
    receiver.count(pair[0])
    assert not receiver.look()
    pair[1].sendall(bytes(1000))
    assert receiver.look()
    assert receiver.received_bytes == 1000


@pytest.mark.parametrize("chunk", [1, 7, 20, 1000])
def test_publications_are_acknowledged_by_their_ids(pair: Pair, receiver: Receiver, chunk: int) -> None:
    client, server = pair
    ids = [1, 2, 255, 256, 65535]
    packets = [encode_publish(Version.V311, b"t", b"payload", 1, packet_id=packet_id) for packet_id in ids]
    receiver.acknowledge(client, len(packets[0]), len(packets[0]) - len(b"payload") - 2)
    data = b"".join(packets)
    for at in range(0, len(data), chunk):
        server.sendall(data[at : at + chunk])
        assert receiver.look()
    assert receiver.received_bytes == len(data)
    assert server.recv(1000) == b"".join(encode_ack(Kind.PUBACK, Version.V311, packet_id) for packet_id in ids)


def test_acknowledgements_to_publishers_are_counted_apart(pair: Pair, receiver: Receiver) -> None:
    receiver.await_acknowledgements(pair[0])
    pair[1].sendall(encode_ack(Kind.PUBACK, Version.V311, 1) * 3)
    assert receiver.look()
    assert (receiver.acknowledged, receiver.received_bytes) == (3, 0)


def test_exchanges_of_qos_2_are_counted_when_they_are_complete(pair: Pair, receiver: Receiver) -> None:
    client, server = pair
    receiver.complete_publications(client)
    server.sendall(encode_ack(Kind.PUBREC, Version.V311, 7))
    assert receiver.look()
    assert receiver.acknowledged == 0
    assert server.recv(1000) == encode_ack(Kind.PUBREL, Version.V311, 7)
    server.sendall(encode_ack(Kind.PUBCOMP, Version.V311, 7))
    assert receiver.look()
    assert (receiver.acknowledged, receiver.received_bytes) == (1, 0)


def test_publications_with_qos_2_are_counted(pair: Pair, receiver: Receiver) -> None:
    client, server = pair
    packet = encode_publish(Version.V311, b"t", b"payload", 2, packet_id=9)
    receiver.complete_deliveries(client, len(packet), len(packet) - len(b"payload") - 2)
    server.sendall(packet)
    assert receiver.look()
    assert receiver.received_bytes == len(packet)
    assert server.recv(1000) == encode_ack(Kind.PUBREC, Version.V311, 9)


@pytest.mark.parametrize("chunk", [5, 20, 1000])
def test_latencies_of_probes_are_their_ages(pair: Pair, receiver: Receiver, chunk: int) -> None:
    packet = b"head" + TIMESTAMP.pack(perf_counter() - 1) + b"tail"
    receiver.time(pair[0], len(packet), 4)
    for at in range(0, 3 * len(packet), chunk):
        pair[1].sendall((3 * packet)[at : at + chunk])
        assert receiver.look_at_probes()
    assert not receiver.look()
    assert len(receiver.latencies_s) == 3
    assert all(1 <= age < 60 for age in receiver.latencies_s)


def test_closed_connection_is_an_error(pair: Pair, receiver: Receiver) -> None:
    receiver.count(pair[0])
    pair[1].close()
    with pytest.raises(BenchError, match="closed"):
        receiver.look()
