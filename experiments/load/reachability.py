"""Whether messages pass between servers: from each to each, once. To be asked before anything is measured.

Without it, servers that are not joined would look like slow ones, and bridges that send twice like fast ones.
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
"""Of one round, from each server: enough that some are under way at the same time."""
ROUND_S: Final = 0.5
"""One round takes milliseconds. What has not come by then is given up, and other messages are tried."""
SURPLUS_S: Final = 0.2
"""After all has come, for what comes twice."""
PASSAGE_S: Final = 10.0
"""A bridge that found nobody connects again after a second."""


class Way(NamedTuple):
    """Of one message."""

    number: int
    origin: int
    to: int


def check(addresses: Sequence[Address]) -> None:
    """Return when all messages of a round came from each server to each, and none came twice. Raises BenchError."""
    deadline = time.monotonic() + PASSAGE_S
    with _Clients(addresses) as clients:
        missing = clients.exchange()
        while missing and time.monotonic() < deadline:
            missing = clients.exchange()
        if not missing:
            clients.read(SURPLUS_S)
    for way, times in clients.came.items():
        if times > 1:
            raise BenchError(f"a message came {times} times: {_shown(way, addresses)}")
    for way in missing:
        raise BenchError(f"no message came through: {_shown(way, addresses)}, tried for {PASSAGE_S:g} s")


def _shown(way: Way, addresses: Sequence[Address]) -> str:
    return f"published at {show(addresses[way.origin])}, subscribed at {show(addresses[way.to])}"


class _Clients(ExitStack):
    """A publisher and a subscriber at each server."""

    def __init__(self, addresses: Sequence[Address]) -> None:
        super().__init__()
        self.came: Counter[Way] = Counter()
        self._published = 0
        self._subscribers = [
            self.enter_context(connected(one, f"passage-sub-{number}")) for number, one in enumerate(addresses)
        ]
        self._readers = [PacketReader() for _ in addresses]
        for subscriber in self._subscribers:
            subscribe(subscriber, TOPIC)
        self._publishers = [
            self.enter_context(connected(one, f"passage-pub-{number}")) for number, one in enumerate(addresses)
        ]

    def exchange(self) -> list[Way]:
        """Publish a round of messages; what did not come of it in time."""
        numbers = range(self._published, self._published + MESSAGES)
        self._published += MESSAGES
        for number in numbers:
            for origin, publisher in enumerate(self._publishers):
                publisher.sendall(encode_publish(Version.V311, TOPIC.encode(), b"%d %d" % (number, origin)))
        everyone = range(len(self._publishers))
        ways = [Way(number, origin, to) for number in numbers for origin in everyone for to in everyone]
        self.read(ROUND_S, ways)
        return [way for way in ways if not self.came[way]]

    def read(self, within_s: float, ways: Sequence[Way] = ()) -> None:
        """Count what comes in a time; no longer than until all these have come, if there are any."""
        end = time.monotonic() + within_s
        while (left_s := end - time.monotonic()) > 0 and not (ways and all(self.came[way] for way in ways)):
            for ready in select.select(self._subscribers, (), (), left_s)[0]:
                self._take(self._subscribers.index(ready), ready.recv(65536))

    def _take(self, to: int, data: bytes) -> None:
        if not data:
            raise BenchError("the server closed a connection")
        for first, body in self._readers[to].feed(data):
            packet = decode(Version.V311, first, body)
            assert isinstance(packet, Publish)
            number, origin = bytes(packet.payload).split()
            self.came[Way(int(number), int(origin), to)] += 1
