"""Partitions without room, from outside: the codes that clients get, and that others notice nothing."""

from __future__ import annotations

import socket
import time

import pytest

from ringmq.experiments.load.raw_clients import ANSWER_S
from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.peer.engines.partitioned.coordinating.quota import MAX_SHAPES
from ringmq.peer.settings.addresses import parse_address
from tests.peer.rings import Eventually, Ring, Start

PEERS = 3
TRIED = 100
SHAPES = ["+" + "/x" * depth for depth in range(TRIED)]
"""All live in the partition of the empty name, which matters to each topic of the ring."""
MOST_WAIT_S = 2.0
"""Far above a PUBACK of a ring at rest, on a machine that runs other tests."""


class RawClient:
    """One connection, packet by packet."""

    def __init__(self, address: str, name: str, version: Version, connect: bool = True) -> None:
        self.wire = socket.create_connection(parse_address(address), ANSWER_S)
        self.version = version
        self._reader = PacketReader()
        self._came: list[Packet] = []
        if connect:
            assert isinstance(self.ask(Connect(version, name, True, 0)), Connack)

    def ask(self, packet: Packet) -> Packet:
        """Send a packet; returns the next that comes."""
        self.wire.sendall(encode(self.version, packet))
        return self.take()

    def take(self) -> Packet:
        """The next packet. A PUBLISH is not acknowledged."""
        while not self._came:
            data = self.wire.recv(1 << 16)
            assert data, "the peer closed the connection"
            self._came += [decode(self.version, first, body) for first, body in self._reader.feed(data)]
        return self._came.pop(0)

    def subscribe(self, *filters: str) -> tuple[int, ...]:
        suback = self.ask(Subscribe(1, tuple([Subscription(name, 1) for name in filters])))
        assert isinstance(suback, Suback)
        return tuple([int(reason) for reason in suback.reasons])

    def publish(self, topic: str = "other/topic") -> float:
        """Returns the seconds until the PUBACK."""
        begun = time.monotonic()
        self.wire.sendall(encode(self.version, Publish(topic, b"x", 1, packet_id=7)))
        while not isinstance(self.take(), Puback):
            pass  # what came for its own subscriptions
        return time.monotonic() - begun


@pytest.mark.parametrize(("version", "code"), [(Version.V5, Reason.QUOTA_EXCEEDED), (Version.V311, 0x80)])
def test_a_client_with_too_many_shapes_is_told_so(
    start: Start, ringmq: Start, eventually: Eventually, version: Version, code: int
) -> None:
    ring = Ring(start, ringmq, eventually, PEERS)
    client, other = RawClient(ring.mqtt[0], "c", version), RawClient(ring.mqtt[1], "o", version)
    other.publish()
    codes = client.subscribe(*SHAPES)
    assert (codes.count(1), codes.count(code)) == (MAX_SHAPES, TRIED - MAX_SHAPES)
    assert other.publish() < MOST_WAIT_S
    # Another client, and another peer: refused as well, until there is room.
    refused = SHAPES[codes.index(code)]
    assert other.subscribe(refused) == (code,)
    assert isinstance(client.ask(Unsubscribe(2, (SHAPES[codes.index(1)],))), Unsuback)
    eventually(lambda: other.subscribe(refused) == (1,))
    statuses = [one["pubsub"]["counters"] for one in ring.statuses()]
    assert statuses[0]["refused_filters"] == TRIED - MAX_SHAPES
    assert statuses[1]["refused_filters"] >= 1
    eventually(lambda: "refused, as partitions are full" in ring.processes[0].err + ring.processes[0].out)
