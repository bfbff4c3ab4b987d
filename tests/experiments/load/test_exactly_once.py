"""The handshake of QoS 2 from the side of clients, however its bytes are cut."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ringmq.experiments.load.exactly_once import PublisherHandshake, SubscriberHandshake
from ringmq.mqtt_front.codec.codec import encode_ack, encode_publish
from ringmq.mqtt_front.codec.packets import Kind, Version

V311 = Version.V311
IDS = [1, 2, 255, 256, 65535]
CHUNKS = [1, 3, 7, 1000]
PAYLOAD = b"0 pay b\x62load"
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    client, server = socket.socketpair()
    client.setblocking(False)
    server.settimeout(10)
    yield client, server
    client.close()
    server.close()


def publish(packet_id: int) -> bytes:
    return encode_publish(V311, b"t", PAYLOAD, 2, packet_id=packet_id)


def acks(kind: Kind) -> bytes:
    return b"".join(encode_ack(kind, V311, packet_id) for packet_id in IDS)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_subscriber_answers_publish_with_pubrec_and_pubrel_with_pubcomp(pair: Pair, chunk: int) -> None:
    client, server = pair
    size = len(publish(1))
    subscriber = SubscriberHandshake(client, bytearray(100), size, size - len(PAYLOAD) - 2)
    data = b"".join(publish(packet_id) + encode_ack(Kind.PUBREL, V311, packet_id) for packet_id in IDS)
    counted = 0
    for at in range(0, len(data), chunk):
        server.sendall(data[at : at + chunk])
        counted += subscriber.read()
        if chunk == 1000:
            counted += subscriber.read()
    assert counted == len(IDS) * size
    expected = b"".join(
        encode_ack(Kind.PUBREC, V311, packet_id) + encode_ack(Kind.PUBCOMP, V311, packet_id) for packet_id in IDS
    )
    assert server.recv(1000) == expected


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_publisher_answers_pubrec_with_pubrel_and_counts_pubcomp(pair: Pair, chunk: int) -> None:
    client, server = pair
    publisher = PublisherHandshake(client, bytearray(1000))
    data = acks(Kind.PUBREC) + acks(Kind.PUBCOMP)
    completed = 0
    for at in range(0, len(data), chunk):
        server.sendall(data[at : at + chunk])
        completed += publisher.read()
    assert completed == len(IDS)
    assert server.recv(1000) == acks(Kind.PUBREL)


def test_answers_that_the_system_does_not_take_are_sent_later(pair: Pair) -> None:
    client, server = pair
    client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    publisher = PublisherHandshake(client, bytearray(1 << 16))
    answered = b""
    for _ in range(400):
        server.sendall(acks(Kind.PUBREC) * 20)
        publisher.read()
    while len(answered) < 400 * 20 * len(acks(Kind.PUBREL)):
        answered += server.recv(1 << 16)
        if len(answered) < 400 * 20 * len(acks(Kind.PUBREL)):
            server.sendall(encode_ack(Kind.PUBCOMP, V311, 1))
            assert publisher.read() == 1
    assert answered == acks(Kind.PUBREL) * 20 * 400
