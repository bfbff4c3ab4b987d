"""One peer coordinates many topics with many leases: what they take of its memory, and how long another takes to have
the role when it is killed.

Owns the choice of topics, which all have the same coordinator and the same first shadow, and the subscribers elsewhere.
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

from ringmq.experiments.load.client import Client, talking
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.tally import Faults, Inbox, Say
from ringmq.experiments.processes.peers import Ring, RingPeer, status_of
from ringmq.experiments.processes.usage import memory_bytes
from ringmq.overlay.core.ids import nearness
from ringmq.peer.messaging.partitions import key_of_place

AT_ONCE: Final = 500
"""Filters in one SUBSCRIBE."""
TRIED: Final = 1000
"""Topics that are published to once the role has changed hands."""
LOOK_S: Final = 0.02
GIVE_UP_S: Final = 60.0
ARRIVE_S: Final = 10.0
MB: Final = 1e6


@dataclass(frozen=True, slots=True)
class Method:
    topics: int
    subscribers: int
    """Peers with one for each topic."""
    lease_bytes: float
    taken_s: float
    """The goals: memory for one lease, and the time for taking over, at most."""
    seed: int


@dataclass(slots=True)
class Figures:
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
            f"killed: the next coordinates all topics after {self.taken_s:.2f} s",
            f"{self.published} messages to topics that changed hands: {self.faults}",
        ]


async def check(ring: Ring, method: Method, say: Say) -> Figures:
    """Raises BenchError when a client cannot do its part, or nobody takes over."""
    figures = Figures(leases=method.topics * method.subscribers)
    coordinator, heir = _neighbours(ring)
    topics = _topics(ring, coordinator, heir, method)
    others = [peer for peer in ring.peers if peer not in (coordinator, heir)][: method.subscribers]
    inbox = Inbox()
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(talking(peer.mqtt, f"takeover-{number}", inbox))
            for number, peer in enumerate(others)
        ]
        publisher = await stack.enter_async_context(talking(heir.mqtt, "takeover-publisher"))
        figures.memory_before = memory_bytes(coordinator.pid)
        say(f"{figures.leases} leases at {coordinator}")
        start = perf_counter()
        await asyncio.gather(*(_subscribe(client, topics) for client in clients))
        figures.subscribed_s = perf_counter() - start
        figures.memory_after = memory_bytes(coordinator.pid)
        had = _coordinated(await status_of(heir))
        say(f"killing it; {heir} is next")
        start = perf_counter()
        ring.kill(coordinator)
        await _taken(heir, had + len(topics))
        figures.taken_s = perf_counter() - start
        await _publish(publisher, topics, len(clients), inbox, method, figures)
    if figures.lease_bytes > method.lease_bytes:
        figures.faults.add("over the goal", f"{figures.lease_bytes:.0f} B a lease")
    if figures.taken_s > method.taken_s:
        figures.faults.add("over the goal", f"{figures.taken_s:.2f} s until the role was taken over")
    return figures


def _neighbours(ring: Ring) -> tuple[RingPeer, RingPeer]:
    """The two with the least between them: the more keys that are nearest to the one have the other next."""
    around = sorted(ring.peers, key=lambda peer: peer.id)
    pairs = zip(around, [*around[1:], around[0]], strict=True)
    return min(pairs, key=lambda pair: nearness(pair[0].id, pair[1].id))


def _topics(ring: Ring, coordinator: RingPeer, heir: RingPeer, method: Method) -> list[str]:
    def belongs(topic: str) -> bool:
        key = key_of_place(topic)
        nearest = sorted(ring.peers, key=lambda peer: nearness(key, peer.id))
        return nearest[:2] == [coordinator, heir]

    names = (f"takeover/{method.seed}/{number}" for number in count())
    return list(islice(filter(belongs, names), method.topics))


async def _subscribe(client: Client, topics: Sequence[str]) -> None:
    for start in range(0, len(topics), AT_ONCE):
        await client.subscribed(*topics[start : start + AT_ONCE])


def _coordinated(status: dict[str, Any]) -> int:
    return int(status["pubsub"]["places"]["coordinated"]) if status else 0


async def _taken(heir: RingPeer, wanted: int) -> None:
    deadline = perf_counter() + GIVE_UP_S
    while _coordinated(status := await status_of(heir)) < wanted:
        if perf_counter() > deadline:
            raise BenchError(f"{heir} coordinates {_coordinated(status)} places after {GIVE_UP_S:g} s, not {wanted}")
        await asyncio.sleep(LOOK_S)


async def _publish(
    publisher: Client, topics: Sequence[str], subscribers: int, inbox: Inbox, method: Method, figures: Figures
) -> None:
    """One message to each of some topics. All subscribers share the inbox, which counts how often each has come."""
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
