"""Cost of a crowd for a server: memory and connect time with many idle clients, publish time with many filters."""

from __future__ import annotations

import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Final

from ringmq.experiments.load.patterns import PAYLOAD_BYTES
from ringmq.experiments.load.raw_clients import BenchError, connected, subscribe
from ringmq.experiments.processes.servers import Server
from ringmq.experiments.processes.usage import Usage, memory_bytes
from ringmq.mqtt_front.codec.codec import encode_publish
from ringmq.mqtt_front.codec.packets import Version

NEWCOMERS: Final = 500
"""Clients that connect while the others are idle."""
FILTERS_PER_CLIENT: Final = 1000
FILTERS_PER_PACKET: Final = 100
BATCH: Final = 100
"""Publications that are sent before their deliveries are awaited, so that the server queues no more."""
MESSAGES: Final = 20_000
"""Publications of one round: more than the receiver cache of a front holds, so that no round profits from another."""
ROUNDS: Final = 7
SPARE_FILES: Final = 200
"""Open files beyond the sockets of the clients."""


@dataclass(frozen=True, slots=True)
class IdleFigures:
    clients: int
    bytes_each: float
    connect_s: float
    """Median time of a new client from its connection to its CONNACK."""


@dataclass(frozen=True, slots=True)
class FilterFigures:
    filters: int
    steady_ratio: float
    """Processor time of a publication with the filters, divided by the time without them: the median of the rounds. All
    messages have the same topic."""
    fresh_ratio: float
    """The same ratio if each message has a new topic."""
    steady_s: float
    """Processor time of a publication with the filters, to the same topic."""
    fresh_s: float
    """Processor time of a publication with the filters, to a new topic."""


@contextmanager
def many_files(count: int) -> Iterator[None]:
    """Let this process and its children open `count` sockets. Raises BenchError if the system does not allow it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise BenchError(f"{count} clients need {wanted} open files, but the system allows {hard}: see ulimit -n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def idle(server: Server, count: int) -> IdleFigures:
    """Connect `count` idle clients, then NEWCOMERS more one after the other. Raises BenchError."""
    with ExitStack() as clients:
        clients.enter_context(connected(server.address, "first"))
        before = memory_bytes(server.pid)
        for number in range(count):
            clients.enter_context(connected(server.address, f"idle-{number}"))
        each = (memory_bytes(server.pid) - before) / count
        times = []
        for number in range(NEWCOMERS):
            start = perf_counter()
            client = connected(server.address, f"new-{number}")
            times.append(perf_counter() - start)
            client.close()
    return IdleFigures(count, each, median(times))


def filters(without: Server, having: Server, count: int) -> FilterFigures:
    """Publish in turns to a server without other filters and to a server with `count` of them. Raises BenchError."""
    with ExitStack() as clients:
        for number in range(0, count, FILTERS_PER_CLIENT):
            client = clients.enter_context(connected(having.address, f"filters-{number}"))
            names = [_filter(index) for index in range(number, min(number + FILTERS_PER_CLIENT, count))]
            for first in range(0, len(names), FILTERS_PER_PACKET):
                subscribe(client, *names[first : first + FILTERS_PER_PACKET])
        alone, among = (clients.enter_context(_CostProbe(server)) for server in (without, having))
        steady, fresh = [], []
        for round_number in range(ROUNDS):
            topics = ["bench/steady"] * MESSAGES
            steady.append((alone.cost_s(topics), among.cost_s(topics)))
            topics = [f"bench/{round_number}/{number}" for number in range(MESSAGES)]
            fresh.append((alone.cost_s(topics), among.cost_s(topics)))
    return FilterFigures(
        count, _ratio(steady), _ratio(fresh), median(cost for _, cost in steady), median(cost for _, cost in fresh)
    )


def _filter(number: int) -> str:
    """A filter for one device, or, one time in ten, for one kind of message of all devices of a site."""
    site, device = divmod(number, 100)
    return f"site/{site}/+/kind-{device}" if number % 10 == 0 else f"site/{site}/device-{device}/state"


def _ratio(costs: list[tuple[float, float]]) -> float:
    return median(among / alone for alone, among in costs)


class _CostProbe(ExitStack):
    """A publisher and a subscriber, which measure the cost of a publication at a server."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._pid = server.pid
        self._subscriber = self.enter_context(connected(server.address, "line-sub"))
        subscribe(self._subscriber, "bench/#")
        self._publisher = self.enter_context(connected(server.address, "line-pub"))

    def cost_s(self, topics: list[str]) -> float:
        """Processor time of the server for one message. Messages come in batches, to keep other work out of it."""
        packets = [encode_publish(Version.V311, topic.encode(), bytes(PAYLOAD_BYTES)) for topic in topics]
        before = Usage.of(self._pid)
        for first in range(0, len(packets), BATCH):
            batch = b"".join(packets[first : first + BATCH])
            self._publisher.sendall(batch)
            _receive(self._subscriber, len(batch))
        return Usage.of(self._pid).since(before).cpu_s / len(topics)


def _receive(subscriber: socket.socket, count: int) -> None:
    try:
        while count > 0:
            data = subscriber.recv(count)
            if not data:
                raise BenchError("the server closed a connection")
            count -= len(data)
    except OSError as error:
        raise BenchError(f"messages did not come: {error.strerror or error}") from None
