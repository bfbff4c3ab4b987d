"""Peers are killed while messages flow: what live clients lose, and how soon new ones are served.

Owns one run after the other on the same ring: clients come, traffic flows, victims die, new clients come, what arrived
is judged, and the dead are started again. No client but one of an interior victim is at a peer that dies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from math import inf
from random import Random
from time import perf_counter
from typing import Final

from ringmq.dispatching.algorithms import Choice
from ringmq.experiments.benchmarks.victims import TOPICS, Cast, Kind, cast
from ringmq.experiments.load.client import Client, Heard, deaf, talking
from ringmq.experiments.load.numbered_traffic import Receiver, Sent, Traffic, judge
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.tally import Faults, spread_ms
from ringmq.experiments.processes.peers import Ring
from ringmq.peer.messaging.config import DIRECT

BEFORE_S: Final = 1.0
"""Traffic before the kill: every publisher holds its lists by then."""
AFTER_S: Final = 4.0
"""Traffic after it. Longer than the lease of a list, so that each is renewed at who has taken over."""
NEWCOMERS: Final = 3
"""New subscribers, and as many new publishers, right after the kill."""
PUBACK_S: Final = 30.0
"""A message with QoS 1 to a subscriber at a dead peer is retried until the peer's entry has run out."""
NEW_PUBLISHERS: Final = 100
"""Their numbers begin here."""


@dataclass(frozen=True, slots=True)
class Method:
    rate_hz: float
    served_s: float
    """New clients are to be served so soon after the kill."""
    seed: int
    choice: Choice
    shadows: int


@dataclass(slots=True)
class Figures:
    """Of all runs of one kind."""

    runs: int = 0
    published: int = 0
    delivered: int = 0
    lost_0: int = 0
    """Messages with QoS 0 that a tree lost with the dead one; Direct may lose none."""
    subscribers_s: list[float] = field(default_factory=list)
    """From the kill until a new subscriber had its SUBACK and a first message."""
    subacks_s: list[float] = field(default_factory=list)
    publishers_s: list[float] = field(default_factory=list)
    """From the kill until the first message of a new publisher was with all who were subscribed before."""
    faults: Faults = field(
        default_factory=lambda: Faults(
            "missed with QoS 0", "missed with QoS 1", "twice", "out of order", "never acknowledged", "late"
        )
    )

    def lines(self, name: str) -> list[str]:
        lost = f", {self.lost_0} with QoS 0 lost in trees" if self.lost_0 else ""
        return [
            f"{name}: {self.runs} runs, {self.published} published, {self.delivered} delivered{lost}",
            f"  {self.faults}",
            "  " + spread_ms("kill to SUBACK", self.subacks_s),
            "  " + spread_ms("kill to first message", self.subscribers_s),
            "  " + spread_ms("kill to new one's message", self.publishers_s),
        ]


async def check(ring: Ring, kind: Kind, run: int, method: Method, figures: Figures) -> None:
    """Add one run to the figures of its kind. Raises BenchError when the ring does not come back."""
    part = cast(run, kind, [peer.id for peer in ring.peers], method.choice, method.shadows, method.seed)
    async with AsyncExitStack() as stack:
        await _Run(ring, part, method, figures, stack).play()
    ring.start(*(ring.peers[victim] for victim in part.victims))
    await ring.settle()
    figures.runs += 1


class _Run:
    """One run, as long as its clients live."""

    def __init__(self, ring: Ring, part: Cast, method: Method, figures: Figures, stack: AsyncExitStack) -> None:
        self._ring = ring
        self._part = part
        self._method = method
        self._figures = figures
        self._stack = stack
        self._rng = Random(f"{method.seed} {part.run} newcomers")

    def __str__(self) -> str:
        return f"run {self._part.run} ({self._part.kind})"

    async def play(self) -> None:
        part = self._part
        known = await self._subscribers()
        flow = Traffic(
            [await self._client(one, f"pub-{number}") for number, one in enumerate(part.publishers)],
            [part.topic(number) for number in range(TOPICS)],
            self._method.rate_hz,
        )
        publishers = [await self._client(self._rng.choice(part.fresh), f"new-pub-{one}") for one in range(NEWCOMERS)]
        new = [Receiver(f"new subscriber {one} in {self}", [0]) for one in range(NEWCOMERS)]
        subscribers = [await self._client(self._rng.choice(part.bystanders), one.name, one) for one in new]
        flowing = asyncio.create_task(flow.run())
        await asyncio.sleep(BEFORE_S)
        killed_at = perf_counter()
        await asyncio.to_thread(self._ring.kill, *(self._ring.peers[victim] for victim in part.victims))
        first = [flow.send(NEW_PUBLISHERS + number, client, 0, 1) for number, client in enumerate(publishers)]
        serving = [self._subscribe(client, one, killed_at) for client, one in zip(subscribers, new, strict=True)]
        await asyncio.gather(*serving)
        await asyncio.sleep(max(0.0, killed_at + AFTER_S - perf_counter()))
        flow.stop()
        await flowing
        await self._judge(flow, [*known, *new])
        self._count(new, known, first, killed_at)

    async def _subscribers(self) -> list[Receiver]:
        part = self._part
        places = [(one, part.topic(number), [number]) for number, some in enumerate(part.subscribers) for one in some]
        places += [(one, part.all_topics, list(range(TOPICS))) for one in part.wildcards]
        receivers = []
        for number, (at, topic_filter, topics) in enumerate(places):
            receiver = Receiver(f"{topic_filter} at {self._ring.peers[at]} in {self}", topics)
            client = await self._client(at, f"sub-{number}", receiver)
            await client.subscribed(topic_filter, qos=1)
            receiver.subscribed()
            receivers.append(receiver)
        if part.kind is Kind.INTERIOR:
            doomed = await self._client(part.victims[0], "doomed")
            await doomed.subscribed(part.topic(0), qos=1)
        return receivers

    async def _client(self, at: int, name: str, heard: Heard = deaf) -> Client:
        address = self._ring.peers[at].mqtt
        return await self._stack.enter_async_context(talking(address, f"{name} {self._part.run}", heard))

    async def _subscribe(self, client: Client, receiver: Receiver, killed_at: float) -> None:
        try:
            await client.subscribed(self._part.topic(0), qos=1)
        except BenchError as error:
            self._figures.faults.add("late", f"{receiver.name}: {error}")
            return
        receiver.subscribed()
        self._figures.subacks_s.append(perf_counter() - killed_at)

    async def _judge(self, flow: Traffic, receivers: Sequence[Receiver]) -> None:
        figures = self._figures
        for one in await flow.unacknowledged(PUBACK_S):
            figures.faults.add("never acknowledged", f"{one} in {self}")
        direct = self._method.choice.name == DIRECT.name
        figures.lost_0 += await judge(receivers, flow.sent, direct, figures.faults)
        figures.published += len(flow.sent)
        figures.delivered += sum(receiver.times.total() for receiver in receivers)

    def _count(
        self, new: Sequence[Receiver], known: Sequence[Receiver], first: Sequence[Sent], killed_at: float
    ) -> None:
        """How soon new subscribers and new publishers were served."""
        subscribers = {one.name: min(one.arrived.values(), default=inf) - killed_at for one in new}
        of_topic = [one for one in known if one.hears(0)]
        publishers = {
            str(sent): max(one.arrived.get(sent.payload, inf) for one in of_topic) - killed_at for sent in first
        }
        self._figures.subscribers_s += subscribers.values()
        self._figures.publishers_s += publishers.values()
        for name, served_s in {**subscribers, **publishers}.items():
            if served_s > self._method.served_s:
                self._figures.faults.add("late", f"{name}, {served_s:.2f} s after the kill in {self}")
