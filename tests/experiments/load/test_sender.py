"""Publishers over socket pairs, whose other ends read on demand."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ringmq.experiments.load.patterns import Pattern
from ringmq.experiments.load.sender import Sender

PATTERN = Pattern("two", topics=2, publishers=1, subscribers=1, qos=0)
Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    pairs = [socket.socketpair() for _ in range(PATTERN.all_publishers)]
    for publisher, server in pairs:
        publisher.setblocking(False)
        server.setblocking(False)
    yield pairs
    for publisher, server in pairs:
        publisher.close()
        server.close()


def read(end: socket.socket) -> bytes:
    data = b""
    try:
        while True:
            data += end.recv(1 << 20)
    except BlockingIOError:
        return data


def test_publishers_take_turns(pairs: list[Pair]) -> None:
    sender = Sender(PATTERN, [publisher for publisher, _ in pairs])
    sender.send(5)
    assert sender.sent == 5
    assert [read(server) for _, server in pairs] == [PATTERN.packets(0)[0] * 3, PATTERN.packets(1)[0] * 2]


def test_packets_stay_whole_if_the_server_does_not_read(pairs: list[Pair]) -> None:
    sender = Sender(PATTERN, [publisher for publisher, _ in pairs])
    while not sender.blocked:
        sender.send(1000)
    stuck_at = sender.sent
    sender.send(1000)
    sender.flush()
    assert (sender.sent, sender.blocked) == (stuck_at, True)
    received = [read(server) for _, server in pairs]
    sender.flush()
    assert not sender.blocked
    sender.send(4)
    assert sender.sent == stuck_at + 5
    received = [data + read(server) for data, (_, server) in zip(received, pairs, strict=True)]
    size = PATTERN.packet_bytes
    assert sum(map(len, received)) == sender.sent * size
    for topic, data in enumerate(received):
        assert data == PATTERN.packets(topic)[0] * (len(data) // size)
