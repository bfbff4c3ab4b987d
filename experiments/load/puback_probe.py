"""Clients that publish one message after the other to topics in use, and measure the time until each PUBACK.

They run beside other load: the caller calls `tick` whenever it has time.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import Final

from ringmq.experiments.load.raw_clients import Address, BenchError, connected, subscribe
from ringmq.experiments.load.receiver import Receiver
from ringmq.experiments.load.topic_stream import packet_size, payload_of
from ringmq.mqtt_front.codec.codec import encode_publish
from ringmq.mqtt_front.codec.packets import Version

EVERY_S: Final = 0.004
"""Least time between two messages of a client."""
_PUBACK_BYTES: Final = 4


class PubackProbe(ExitStack):
    """A publisher at each server, and a subscriber of its topic at the next server."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        super().__init__()
        self._latencies_s: list[float] = []
        self._receiver = Receiver()
        self.callback(self._receiver.close)
        self._group = select.epoll()
        self.callback(self._group.close)
        self._clients: dict[int, _Publisher] = {}
        for number, address in enumerate(addresses):
            topic = f"probe/{number:03d}"
            subscriber = self.enter_context(connected(addresses[(number + 1) % len(addresses)], f"probe-sub-{number}"))
            subscribe(subscriber, topic, qos=1)
            subscriber.setblocking(False)
            size = packet_size(topic, 1)
            self._receiver.acknowledge(subscriber, size, size - len(payload_of(0)) - 2)
            publisher = self.enter_context(connected(address, f"probe-pub-{number}"))
            self._clients[publisher.fileno()] = _Publisher(publisher, topic)
            self._group.register(publisher.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def tick(self, now: float) -> bool:
        """Send the due messages and read the acknowledgements. Raises BenchError if a connection is closed."""
        came = self._receiver.look()
        for fd, event in self._group.poll(0):
            if event != select.EPOLLIN:
                raise BenchError("the server closed a connection")
            self._latencies_s.append(self._clients[fd].acknowledged())
            came = True
        for client in self._clients.values():
            client.publish(now)
        return came

    def measured(self) -> list[float]:
        """Sorted latencies since the last call. A PUBACK that has not come counts with its age."""
        now = perf_counter()
        ages = [now - client.sent_at for client in self._clients.values() if client.waits]
        found = sorted([*self._latencies_s, *ages])
        self._latencies_s.clear()
        return found


class _Publisher:
    def __init__(self, client: socket.socket, topic: str) -> None:
        self.waits = False
        self.sent_at = float("-inf")
        self._client = client
        self._packet = encode_publish(Version.V311, topic.encode(), payload_of(0), 1, packet_id=1)

    def publish(self, now: float) -> None:
        if not self.waits and now >= self.sent_at + EVERY_S:
            self.waits, self.sent_at = True, perf_counter()
            self._client.sendall(self._packet)

    def acknowledged(self) -> float:
        """Read the PUBACK. Returns its latency."""
        self._client.recv(_PUBACK_BYTES)
        self.waits = False
        return perf_counter() - self.sent_at
