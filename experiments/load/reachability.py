"""Checks that messages pass from each server to each server, exactly once, before a measurement.

Unconnected servers would look like slow servers in a measurement, and bridges that duplicate like fast ones.
"""

from __future__ import annotations

import select
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from ringmq.experiments.load.raw_clients import Address, BenchError, connected, subscribe
from ringmq.mqtt_front.codec.codec import decode, encode_publish
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Publish, Version
from ringmq.overlay.config import show

TOPIC: Final = "bench/passage"
MESSAGES: Final = 20
"""Messages of one round from each server, enough to have several in flight."""
ROUND_S: Final = 0.5
"""Time for one round, which usually takes milliseconds. Later messages are given up, and another round is tried."""
SURPLUS_S: Final = 0.2
"""Wait for duplicates after all messages of a round have arrived."""
PASSAGE_S: Final = 10.0
"""Time for all rounds: a bridge whose peer was not up yet connects again after a second."""


class Passage(NamedTuple):
    """A message from one server to another."""

    number: int
    origin: int
    to: int


def check(addresses: Sequence[Address]) -> None:
    """Return when all messages of a round have passed from each server to each, exactly once. Raises BenchError."""
    deadline = time.monotonic() + PASSAGE_S
    with _Clients(addresses) as clients:
        missing = clients.exchange()
        while missing and time.monotonic() < deadline:
            missing = clients.exchange()
        if not missing:
            clients.read(SURPLUS_S)
    for passage, times in clients.came.items():
        if times > 1:
            raise BenchError(f"a message came {times} times: {_shown(passage, addresses)}")
    for passage in missing:
        raise BenchError(f"no message came through: {_shown(passage, addresses)}, tried for {PASSAGE_S:g} s")


def _shown(passage: Passage, addresses: Sequence[Address]) -> str:
    return f"published at {show(addresses[passage.origin])}, subscribed at {show(addresses[passage.to])}"


class _Clients(ExitStack):
    """A publisher and a subscriber at each server."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        super().__init__()
        self.came: Counter[Passage] = Counter()
        self._published = 0
        self._subscribers = [
            self.enter_context(connected(address, f"passage-sub-{number}")) for number, address in enumerate(addresses)
        ]
        self._readers = [PacketReader() for _ in addresses]
        for subscriber in self._subscribers:
            subscribe(subscriber, TOPIC)
        self._publishers = [
            self.enter_context(connected(address, f"passage-pub-{number}")) for number, address in enumerate(addresses)
        ]

    def exchange(self) -> list[Passage]:
        """Publish a round of messages. Returns the passages that did not complete in time."""
        numbers = range(self._published, self._published + MESSAGES)
        self._published += MESSAGES
        for number in numbers:
            for origin, publisher in enumerate(self._publishers):
                publisher.sendall(encode_publish(Version.V311, TOPIC.encode(), b"%d %d" % (number, origin)))
        servers = range(len(self._publishers))
        passages = [Passage(number, origin, to) for number in numbers for origin in servers for to in servers]
        self.read(ROUND_S, passages)
        return [passage for passage in passages if not self.came[passage]]

    def read(self, within_s: float, passages: Sequence[Passage] = ()) -> None:
        """Count arriving messages for a time, or until all of the given passages are complete."""
        end = time.monotonic() + within_s
        while (left_s := end - time.monotonic()) > 0 and not (
            passages and all(self.came[passage] for passage in passages)
        ):
            for ready in select.select(self._subscribers, (), (), left_s)[0]:
                self._count(self._subscribers.index(ready), ready.recv(65536))

    def _count(self, to: int, data: bytes) -> None:
        if not data:
            raise BenchError("the server closed a connection")
        for first, body in self._readers[to].feed(data):
            packet = decode(Version.V311, first, body)
            assert isinstance(packet, Publish)
            number, origin = bytes(packet.payload).split()
            self.came[Passage(int(number), int(origin), to)] += 1
