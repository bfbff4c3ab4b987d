"""The pattern `filters`: many exact filters, then a message to each of them."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from contextlib import ExitStack
from time import perf_counter
from typing import Final

from ringmq.experiments.benchmarks.topics.costs import Reading
from ringmq.experiments.benchmarks.topics.meter import Meter
from ringmq.experiments.benchmarks.topics.method import TopicsMethod
from ringmq.experiments.benchmarks.topics.systems import System
from ringmq.experiments.load.patterns import subscribe_packet
from ringmq.experiments.load.puback_probe import PubackProbe
from ringmq.experiments.load.raw_clients import BenchError, connected
from ringmq.experiments.load.receiver import Receiver
from ringmq.experiments.load.tally import percentile
from ringmq.experiments.load.topic_stream import NUMBER_BYTES, TopicStream, blocks, packet_size, payload_of
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Kind
from ringmq.mqtt_front.codec.reasons import SUBACK_3_FAILURE

AT_ONCE: Final = 100
"""Filters of a SUBSCRIBE."""


def filters(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """SUBSCRIBEs of 100 filters from several clients at once, each after the SUBACK before it; then messages."""
    topics = [f"state/{number:07d}" for number in range(method.count)]
    count = min(method.clients[0], method.count)
    with ExitStack() as stack:
        clients = [
            stack.enter_context(connected(system.address(number), f"filters-{number}")) for number in range(count)
        ]
        probe = stack.enter_context(PubackProbe(system.addresses))
        _subscribe(clients, topics, probe, meter, method, reading)
        reading.memory_after, reading.units = meter.memory(), reading.works[-1].done
        if reading.works[-1].complete:
            _publish(system, clients, topics, probe, meter, method, reading)
        # While the filters are in force: their end is work.
        time.sleep(method.settle_s)
        reading.rest_after = meter.rest(method.rest_s)


def _subscribe(
    clients: list[socket.socket],
    topics: list[str],
    probe: PubackProbe,
    meter: Meter,
    method: TopicsMethod,
    reading: Reading,
) -> None:
    """All SUBSCRIBEs, while other clients publish."""
    with ExitStack() as stack:
        group = select.epoll()
        stack.callback(group.close)
        granting = {
            client.fileno(): _Granting(client, topics[number :: len(clients)], method.qos)
            for number, client in enumerate(clients)
        }
        for client in clients:
            group.register(client.fileno(), select.EPOLLIN | select.EPOLLRDHUP)
        with meter.work("filter", len(topics)) as work:
            deadline = perf_counter() + method.timeout_s
            for grants in granting.values():
                grants.subscribe()
            while any(grants.waits for grants in granting.values()) and (now := perf_counter()) < deadline:
                probe.tick(now)
                for fd, event in group.poll(0.001):
                    if event != select.EPOLLIN:
                        raise BenchError("the server closed a connection")
                    granting[fd].read()
            work.done = sum(grants.granted for grants in granting.values())
    reading.works.append(work)
    reading.extra["granted_s"] = work.seconds
    reading.extra["refused_filters"] = sum(grants.refused for grants in granting.values())
    reading.extra["puback_max_ms"] = 1000 * percentile(probe.measured(), 100)


class _Granting:
    """The SUBSCRIBEs of a client."""

    def __init__(self, client: socket.socket, names: list[str], qos: int) -> None:
        self.granted = self.refused = 0
        self.waits = False
        self._client = client
        self._reader = PacketReader()
        self._packets = deque(
            subscribe_packet(*names[first : first + AT_ONCE], qos=qos) for first in range(0, len(names), AT_ONCE)
        )

    def subscribe(self) -> None:
        """Send the next SUBSCRIBE, if there is one."""
        self.waits = bool(self._packets)
        if self._packets:
            self._client.sendall(self._packets.popleft())

    def read(self) -> None:
        for first, body in self._reader.feed(self._client.recv(65536)):
            if first >> 4 == Kind.SUBACK:
                refused = bytes(body[2:]).count(SUBACK_3_FAILURE)
                self.refused += refused
                self.granted += len(body) - 2 - refused
                self.subscribe()


def _publish(
    system: System,
    clients: list[socket.socket],
    topics: list[str],
    probe: PubackProbe,
    meter: Meter,
    method: TopicsMethod,
    reading: Reading,
) -> None:
    """A message to each filter, and the number of messages that never came."""
    size = packet_size(topics[0], method.qos)
    payload_at = size - len(payload_of(0))
    came = bytearray(len(topics))

    def note(packets: bytes | bytearray) -> None:
        for at in range(payload_at, len(packets), size):
            came[int.from_bytes(packets[at : at + NUMBER_BYTES], "big")] = 1

    with ExitStack() as stack:
        receiver = Receiver()
        stack.callback(receiver.close)
        for client in clients:
            client.setblocking(False)
            if method.qos == 2:
                receiver.complete_deliveries(client, size, payload_at - 2)
            elif method.qos:
                receiver.acknowledge(client, size, payload_at - 2, note)
            else:
                receiver.count(client)
        publisher = stack.enter_context(connected(system.address(0), "filters-pub"))
        stream = TopicStream(publisher, method.qos, receiver, size)
        prepared = list(blocks(topics, method.qos, deliveries=lambda topic: 1))
        with meter.work("message", len(topics)) as work:
            done = stream.run(prepared, perf_counter() + method.timeout_s, [probe.tick])
            work.done = min(done.answered(method.qos), done.delivered)
    reading.works.append(work)
    if done.answered(method.qos) == len(topics):
        reading.lost = came.count(0) if method.qos == 1 else max(0, done.due - done.delivered)
        reading.extra["lost_messages"] = reading.lost
    reading.extra["puback_max_publishing_ms"] = 1000 * percentile(probe.measured(), 100)
