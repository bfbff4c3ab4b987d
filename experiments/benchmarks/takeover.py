"""One peer coordinates many topics with many leases: its memory for a lease, and the time of the takeover if it dies.

Owns the choice of the topics, which all have the same coordinator and the same first shadow, and of the subscribers,
which are at other peers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import count, islice
from random import Random
from time import perf_counter
from typing import Any, Final

from ringmq.experiments.load.client import Client, connected_client
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.tally import Faults, Inbox, Say
from ringmq.experiments.processes.peers import Ring, RingPeer, status_of
from ringmq.experiments.processes.usage import memory_bytes
from ringmq.overlay.core.ids import nearness
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.replication.space import key_of_partition

AT_ONCE: Final = 500
"""Filters in one SUBSCRIBE."""
TRIED: Final = 1000
"""Topics with a publication after the takeover."""
LOOK_S: Final = 0.02
"""Time between two checks."""
GIVE_UP_S: Final = 60.0
"""Longest wait for the takeover."""
ARRIVE_S: Final = 10.0
"""Longest wait for the publications after it."""
MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class TakeoverMethod:
    topics: int
    subscribers: int
    """Peers with a subscriber of each topic."""
    lease_bytes: float
    """Goal for the memory of one lease."""
    taken_s: float
    """Goal for the time of the takeover."""
    seed: int


@dataclass(slots=True)
class TakeoverFigures:
    leases: int = 0
    memory_before: int = 0
    memory_after: int = 0
    subscribed_s: float = 0.0
    taken_s: float = 0.0
    published: int = 0
    faults: Faults = field(default_factory=lambda: Faults("missed", "over the goal"))

    @property
    def lease_bytes(self) -> float:
        return (self.memory_after - self.memory_before) / self.leases

    def lines(self) -> list[str]:
        before, after = self.memory_before / MB, self.memory_after / MB
        return [
            f"{self.leases} leases granted in {self.subscribed_s:.1f} s",
            f"memory of the coordinator: {before:.1f} MB, then {after:.1f} MB: {self.lease_bytes:.0f} B a lease",
            f"killed: its first shadow coordinates all topics after {self.taken_s:.2f} s",
            f"{self.published} messages to topics after the takeover: {self.faults}",
        ]


async def check(ring: Ring, method: TakeoverMethod, say: Say) -> TakeoverFigures:
    """Measure a takeover. Raises BenchError if a client loses its connection, or the shadow does not take over."""
    figures = TakeoverFigures(leases=method.topics * method.subscribers)
    coordinator, shadow = _neighbours(ring)
    topics = _topics(ring, coordinator, shadow, method)
    others = [peer for peer in ring.peers if peer not in (coordinator, shadow)][: method.subscribers]
    inbox = Inbox()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(connected_client(peer.mqtt, f"takeover-{number}", inbox))
            for number, peer in enumerate(others)
        ]
        publisher = await stack.enter_async_context(connected_client(shadow.mqtt, "takeover-publisher"))
        figures.memory_before = memory_bytes(coordinator.pid)
        say(f"{figures.leases} leases at {coordinator}")
        start = perf_counter()
        await asyncio.gather(*(_subscribe(client, topics) for client in clients))
        figures.subscribed_s = perf_counter() - start
        figures.memory_after = memory_bytes(coordinator.pid)
        before = _coordinated(await status_of(shadow))
        say(f"killing it; {shadow} is its first shadow")
        start = perf_counter()
        ring.kill(coordinator)
        await _until_taken(shadow, before + len({partition_of(topic) for topic in topics}))
        figures.taken_s = perf_counter() - start
        await _publish(publisher, topics, len(clients), inbox, method, figures)
    if figures.lease_bytes > method.lease_bytes:
        figures.faults.add("over the goal", f"{figures.lease_bytes:.0f} B a lease")
    if figures.taken_s > method.taken_s:
        figures.faults.add("over the goal", f"{figures.taken_s:.2f} s until the takeover")
    return figures


def _neighbours(ring: Ring) -> tuple[RingPeer, RingPeer]:
    """The two peers with the nearest ids: the most keys have the first as owner and the second as first shadow."""
    around = sorted(ring.peers, key=lambda peer: peer.id)
    pairs = zip(around, [*around[1:], around[0]], strict=True)
    return min(pairs, key=lambda pair: nearness(pair[0].id, pair[1].id))


def _topics(ring: Ring, coordinator: RingPeer, shadow: RingPeer, method: TakeoverMethod) -> list[str]:
    def belongs(topic: str) -> bool:
        key = key_of_partition(partition_of(topic))
        nearest = sorted(ring.peers, key=lambda peer: nearness(key, peer.id))
        return nearest[:2] == [coordinator, shadow]

    names = (f"takeover/{method.seed}/{number}" for number in count())
    return list(islice(filter(belongs, names), method.topics))


async def _subscribe(client: Client, topics: Sequence[str]) -> None:
    for start in range(0, len(topics), AT_ONCE):
        await client.subscribe_and_wait(*topics[start : start + AT_ONCE])


def _coordinated(status: dict[str, Any]) -> int:
    return int(status["pubsub"]["partitions"]["coordinated"]) if status else 0


async def _until_taken(shadow: RingPeer, wanted: int) -> None:
    deadline = perf_counter() + GIVE_UP_S
    while _coordinated(status := await status_of(shadow)) < wanted:
        if perf_counter() > deadline:
            raise BenchError(
                f"{shadow} coordinates {_coordinated(status)} partitions after {GIVE_UP_S:g} s, not {wanted}"
            )
        await asyncio.sleep(LOOK_S)


async def _publish(
    publisher: Client,
    topics: Sequence[str],
    subscribers: int,
    inbox: Inbox,
    method: TakeoverMethod,
    figures: TakeoverFigures,
) -> None:
    """Publish a message to each of some topics. All subscribers share the inbox, which counts each message."""
    tried = Random(method.seed).sample(topics, min(TRIED, len(topics)))
    figures.published = len(tried)
    for topic in tried:
        publisher.publish(topic, topic.encode())
    await inbox.until((topic.encode() for topic in tried), ARRIVE_S)
    looks = int(ARRIVE_S / LOOK_S)
    for _ in range(looks):
        if inbox.times.total() >= subscribers * len(tried):
            break
        await asyncio.sleep(LOOK_S)
    for topic in tried:
        times = inbox.times[topic.encode()]
        if times != subscribers:
            figures.faults.add("missed", f"{topic} reached {times} of {subscribers}")
