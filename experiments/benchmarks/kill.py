"""Peers are killed while messages flow: losses of live clients, and the time until new clients are served.

Owns the runs on one ring, one after the other: clients connect, traffic flows, victims die, new clients connect, the
deliveries are judged, and the victims are started again. Only the subscriber of an interior victim is at a victim.
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
from ringmq.experiments.benchmarks.victims import TOPICS, KillPlan, Kind, draw_plan
from ringmq.experiments.load.client import Client, OnMessage, connected_client, ignore
from ringmq.experiments.load.numbered_traffic import NumberedMessage, NumberedReceiver, NumberedTraffic, judge
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.load.tally import Faults, percentile_line
from ringmq.experiments.processes.peers import Ring
from ringmq.peer.messaging.config import DIRECT

BEFORE_S: Final = 1.0
"""Duration of the traffic before the kill, in which every publisher gets its subscriber lists."""
AFTER_S: Final = 4.0
"""Duration of the traffic after the kill: longer than the lease of a list, so that each list is renewed at the new
coordinator."""
NEWCOMERS: Final = 3
"""New subscribers right after the kill, and number of new publishers."""
PUBACK_S: Final = 30.0
"""Longest wait for a PUBACK: a message with QoS 1 to a subscriber at a dead peer is retried until its lease ends."""
NEW_PUBLISHERS: Final = 100
"""Number of the first new publisher."""


@dataclass(frozen=True, slots=True)
class KillMethod:
    rate_hz: float
    served_s: float
    """Goal for the time from the kill until a new client is served."""
    seed: int
    choice: Choice
    shadows: int


@dataclass(slots=True)
class KillFigures:
    """KillFigures of all runs of one kind."""

    runs: int = 0
    published: int = 0
    delivered: int = 0
    lost_0: int = 0
    """Messages with QoS 0 that a tree lost with its dead peer. Direct may lose none."""
    subscribers_s: list[float] = field(default_factory=list)
    """Times from the kill until a new subscriber had its SUBACK and a first message."""
    subacks_s: list[float] = field(default_factory=list)
    publishers_s: list[float] = field(default_factory=list)
    """Times from the kill until the first message of a new publisher had reached all earlier subscribers."""
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
            "  " + percentile_line("kill to SUBACK", self.subacks_s),
            "  " + percentile_line("kill to first message", self.subscribers_s),
            "  " + percentile_line("kill to new client's message", self.publishers_s),
        ]


async def check(ring: Ring, kind: Kind, run: int, method: KillMethod, figures: KillFigures) -> None:
    """Add one run to the figures of its kind. Raises BenchError if the ring does not become whole again."""
    plan = draw_plan(run, kind, [peer.id for peer in ring.peers], method.choice, method.shadows, method.seed)
    async with AsyncExitStack() as stack:
        await _Run(ring, plan, method, figures, stack).play()
    ring.start(*(ring.peers[victim] for victim in plan.victims))
    await ring.settle()
    figures.runs += 1


class _Run:
    """One run, while its clients live."""

    def __init__(
        self, ring: Ring, plan: KillPlan, method: KillMethod, figures: KillFigures, stack: AsyncExitStack
    ) -> None:
        self._ring = ring
        self._plan = plan
        self._method = method
        self._figures = figures
        self._stack = stack
        self._rng = Random(f"{method.seed} {plan.run} newcomers")

    def __str__(self) -> str:
        return f"run {self._plan.run} ({self._plan.kind})"

    async def play(self) -> None:
        plan = self._plan
        known = await self._subscribers()
        flow = NumberedTraffic(
            [await self._client(at, f"pub-{number}") for number, at in enumerate(plan.publishers)],
            [plan.topic(number) for number in range(TOPICS)],
            self._method.rate_hz,
        )
        numbers = range(NEWCOMERS)
        publishers = [await self._client(self._rng.choice(plan.fresh), f"new-pub-{number}") for number in numbers]
        new = [NumberedReceiver(f"new subscriber {number} in {self}", [0]) for number in numbers]
        subscribers = [
            await self._client(self._rng.choice(plan.bystanders), receiver.name, receiver) for receiver in new
        ]
        flowing = asyncio.create_task(flow.run())
        await asyncio.sleep(BEFORE_S)
        killed_at = perf_counter()
        # In a thread: `kill` waits for the ends of the processes, and the traffic must go on meanwhile.
        await asyncio.to_thread(self._ring.kill, *(self._ring.peers[victim] for victim in plan.victims))
        first = [flow.send(NEW_PUBLISHERS + number, client, 0, 1) for number, client in enumerate(publishers)]
        pairs = zip(subscribers, new, strict=True)
        await asyncio.gather(*(self._subscribe(client, receiver, killed_at) for client, receiver in pairs))
        await asyncio.sleep(max(0.0, killed_at + AFTER_S - perf_counter()))
        flow.stop()
        await flowing
        await self._judge(flow, [*known, *new])
        self._count(new, known, first, killed_at)

    async def _subscribers(self) -> list[NumberedReceiver]:
        plan = self._plan
        subscriptions = [
            (at, plan.topic(number), [number]) for number, positions in enumerate(plan.subscribers) for at in positions
        ]
        subscriptions += [(at, plan.all_topics, list(range(TOPICS))) for at in plan.wildcards]
        receivers = []
        for number, (at, topic_filter, topics) in enumerate(subscriptions):
            receiver = NumberedReceiver(f"{topic_filter} at {self._ring.peers[at]} in {self}", topics)
            client = await self._client(at, f"sub-{number}", receiver)
            await client.subscribe_and_wait(topic_filter, qos=1)
            receiver.subscribed()
            receivers.append(receiver)
        if plan.kind is Kind.INTERIOR:
            doomed = await self._client(plan.victims[0], "doomed")
            await doomed.subscribe_and_wait(plan.topic(0), qos=1)
        return receivers

    async def _client(self, at: int, name: str, on_message: OnMessage = ignore) -> Client:
        address = self._ring.peers[at].mqtt
        return await self._stack.enter_async_context(connected_client(address, f"{name} {self._plan.run}", on_message))

    async def _subscribe(self, client: Client, receiver: NumberedReceiver, killed_at: float) -> None:
        try:
            await client.subscribe_and_wait(self._plan.topic(0), qos=1)
        except BenchError as error:
            self._figures.faults.add("late", f"{receiver.name}: {error}")
            return
        receiver.subscribed()
        self._figures.subacks_s.append(perf_counter() - killed_at)

    async def _judge(self, flow: NumberedTraffic, receivers: Sequence[NumberedReceiver]) -> None:
        figures = self._figures
        for message in await flow.unacknowledged(PUBACK_S):
            figures.faults.add("never acknowledged", f"{message} in {self}")
        direct = self._method.choice.name == DIRECT.name
        figures.lost_0 += await judge(receivers, flow.sent, direct, figures.faults)
        figures.published += len(flow.sent)
        figures.delivered += sum(receiver.times.total() for receiver in receivers)

    def _count(
        self,
        new: Sequence[NumberedReceiver],
        known: Sequence[NumberedReceiver],
        first: Sequence[NumberedMessage],
        killed_at: float,
    ) -> None:
        """Count the times until new subscribers and new publishers were served."""
        subscribers = {receiver.name: min(receiver.arrived.values(), default=inf) - killed_at for receiver in new}
        of_topic = [receiver for receiver in known if receiver.expects(0)]
        publishers = {
            str(message): max(receiver.arrived.get(message.payload, inf) for receiver in of_topic) - killed_at
            for message in first
        }
        self._figures.subscribers_s += subscribers.values()
        self._figures.publishers_s += publishers.values()
        for name, served_s in {**subscribers, **publishers}.items():
            if served_s > self._method.served_s:
                self._figures.faults.add("late", f"{name}, {served_s:.2f} s after the kill in {self}")
