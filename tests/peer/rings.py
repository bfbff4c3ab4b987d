"""Rings of real peers, and plain clients of them."""

from __future__ import annotations

import json
import select
from collections.abc import Callable
from typing import Any, Final

from ringmq.experiments.load.patterns import subscribe_packet
from ringmq.experiments.load.raw_clients import connected
from ringmq.logger.records import Delivery, Record, Sample, decode
from ringmq.mqtt_front.codec.codec import decode as decode_packet
from ringmq.mqtt_front.codec.codec import encode_ack, encode_publish
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Kind, Publish, Version
from ringmq.peer.settings.addresses import parse_address
from tests.conftest import wait_until

Start = Callable[..., Any]
Eventually = Callable[..., Any]
LATEST_S: Final = 15.0


class Client:
    """A client of one peer: what it published, and what came. It acknowledges."""

    def __init__(self, address: str, name: str, *filters: str, qos: int = 1) -> None:
        self.wire = connected(parse_address(address), name)
        self.reader = PacketReader()
        self.came: list[tuple[str, bytes]] = []
        self.acknowledged = 0
        self.subscribed = False
        if filters:
            self.wire.sendall(subscribe_packet(*filters, qos=qos))
            wait_until(lambda: self.read() is not None and self.subscribed, LATEST_S)

    def publish(self, topic: str, payload: bytes, qos: int = 0) -> None:
        self.wire.sendall(encode_publish(Version.V311, topic.encode(), payload, qos, packet_id=1 if qos else 0))

    def read(self) -> list[tuple[str, bytes]]:
        """All that has come until now."""
        while select.select([self.wire], (), (), 0)[0]:
            data = self.wire.recv(1 << 16)
            assert data, "the peer closed the connection"
            for first, body in self.reader.feed(data):
                if first >> 4 == Kind.PUBACK:
                    self.acknowledged += 1
                elif first >> 4 == Kind.SUBACK:
                    self.subscribed = True
                elif first >> 4 == Kind.PUBLISH:
                    self._take(first, body)
        return self.came

    def _take(self, first: int, body: memoryview) -> None:
        packet = decode_packet(Version.V311, first, body)
        assert isinstance(packet, Publish)
        self.came.append((packet.topic, bytes(packet.payload)))
        if packet.qos:
            self.wire.sendall(encode_ack(Kind.PUBACK, Version.V311, packet.packet_id))

    def records(self) -> list[Record]:
        return [decode(line) for _, batch in self.read() for line in batch.splitlines()]

    def deliveries(self) -> list[Delivery]:
        return [one for one in self.records() if isinstance(one, Delivery)]

    def last_samples(self) -> dict[str, Sample]:
        return {one.peer: one for one in self.records() if isinstance(one, Sample)}


class Ring:
    """Peers that have found each other."""

    def __init__(self, start: Start, ringmq: Start, eventually: Eventually, count: int, *options: str) -> None:
        self._ringmq = ringmq
        line = ("--overlay", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--timing", "local", "--no-discovery", *options)
        self.processes: list[Any] = []
        self.overlay: list[str] = []
        for _ in range(count):
            join = ("--join", self.overlay[0]) if self.overlay else ()
            self.processes.append(start("peer", *line, *join))
            self.overlay.append(self.processes[-1].says("active: ").rpartition(" ")[2])
        eventually(lambda: all(one["listeners"] for one in self.statuses()), LATEST_S)
        told = self.statuses()
        self.mqtt = [one["listeners"]["mqtt"] for one in told]
        self.ids = [one["id"] for one in told]

    def statuses(self) -> list[dict[str, Any]]:
        told = [self._ringmq("status", "--peer", address, "--json") for address in self.overlay]
        return [json.loads(one.out) for one in told]
