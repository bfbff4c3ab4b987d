"""The pattern `retained`: many topics with a retained message, a client that wants them all, a restart with them."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from time import perf_counter, sleep
from typing import Final

from ringmq.experiments.benchmarks.topics.costs import Reading, Work
from ringmq.experiments.benchmarks.topics.meter import Meter
from ringmq.experiments.benchmarks.topics.method import TopicsMethod
from ringmq.experiments.benchmarks.topics.systems import System
from ringmq.experiments.load.patterns import subscribe_packet
from ringmq.experiments.load.raw_clients import Address, BenchError, connected
from ringmq.experiments.load.receiver import Receiver
from ringmq.experiments.load.topic_stream import TopicStream, blocks
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Kind

PREFIX: Final = b"kept/"
LOOK_S: Final = 0.05
"""Time between two attempts to connect to a peer that starts again."""


def retained(system: System, meter: Meter, method: TopicsMethod, reading: Reading) -> None:
    """Retained messages; then `#` at another server; with a data folder, the same after a kill."""
    topics = [f"{PREFIX.decode()}{number:07d}/state" for number in range(method.count)]
    with ExitStack() as stack:
        receiver = Receiver()
        stack.callback(receiver.close)
        publisher = stack.enter_context(connected(system.address(0), "retained-pub"))
        stream = TopicStream(publisher, method.qos, receiver, packet_bytes=1)
        prepared = list(blocks(topics, method.qos, retain=True))
        with meter.work("retained topic", len(topics)) as work:
            work.ends_when_quiet = not method.qos
            work.done = stream.run(prepared, perf_counter() + method.timeout_s).answered(method.qos)
    reading.works.append(work)
    reading.units, reading.memory_after = work.done, meter.memory()
    reading.works.append(_all(system.address(1), "#", work.done, meter, method))
    if method.data:
        sleep(method.settle_s)
        _restart(system, meter, work.done, method, reading)


def _all(address: Address, name: str, wanted: int, meter: Meter, method: TopicsMethod) -> Work:
    """Subscribe to all topics and await the retained messages."""
    with connected(address, "retained-sub") as client, meter.work(name, wanted) as work:
        client.sendall(subscribe_packet("#"))
        with _ready(client, perf_counter() + method.timeout_s) as chunks:
            for count in chunks:
                work.done += count
                if work.done >= wanted:
                    break
    return work


@contextmanager
def _ready(client: socket.socket, deadline: float) -> Iterator[Iterator[int]]:
    """Retained messages of this pattern in each chunk that arrives until the deadline."""
    reader = PacketReader()
    client.setblocking(False)
    group = select.epoll()
    group.register(client.fileno(), select.EPOLLIN | select.EPOLLRDHUP)

    def chunks() -> Iterator[int]:
        while (left_s := deadline - perf_counter()) > 0:
            if not group.poll(left_s):
                return
            data = client.recv(1 << 18)
            if not data:
                raise BenchError("the server closed a connection")
            yield sum(
                first >> 4 == Kind.PUBLISH and bytes(body[2 : 2 + len(PREFIX)]) == PREFIX
                for first, body in reader.feed(data)
            )

    try:
        yield chunks()
    finally:
        group.close()


def _restart(system: System, meter: Meter, wanted: int, method: TopicsMethod, reading: Reading) -> None:
    """Kill the peer and start it again. It is ready when it has answered a CONNECT; then `#` once more."""
    assert system.ring is not None, "only a peer has a data folder"
    (peer,) = system.ring.peers
    system.ring.kill(peer)
    start = perf_counter()
    with contextlib.suppress(BenchError):  # it may take longer to read its data than a peer may take to start
        system.ring.start(peer)
    while True:
        try:
            connected(peer.mqtt, "retained-ready").close()
            break
        except BenchError:
            if not peer.alive or perf_counter() - start > method.timeout_s:
                raise
            sleep(LOOK_S)
    reading.extra["ready_after_kill_s"] = perf_counter() - start
    reading.works.append(_all(peer.mqtt, "# after a kill", wanted, meter, method))
