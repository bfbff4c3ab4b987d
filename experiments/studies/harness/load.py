"""The load generator of a trial: MQTT clients at the peers, messages at a steady rate, and a record of all arrivals.

Owns the clients. `traffic` counts the arrivals.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, Self

from ringmq.experiments.load.client import Client, connected_client
from ringmq.experiments.load.raw_clients import Address
from ringmq.experiments.studies.harness.plan import Plan
from ringmq.experiments.studies.harness.traffic import Arrivals, Traffic
from ringmq.mqtt_front.codec.packets import Publish

NUMBER: Final = struct.Struct("<I")
"""Form of the message number at the start of each payload."""
LOOK_S: Final = 0.02
"""Pause between two checks whether all messages have arrived."""
QUIET_S: Final = 2.0
"""After this time without an arrival, no more arrivals are expected."""
DRAIN_S: Final = 30.0
"""Longest wait for messages in flight; a machine that needs more time does not keep up."""


class TrialLoad:
    """The clients of one trial, subscribed. Open it once the peers are one ring, and `run` it once."""

    def __init__(self, plan: Plan, addresses: Sequence[Address]) -> None:
        self._plan = plan
        self._addresses = addresses
        self._stack = AsyncExitStack()
        self._publishers: list[Client] = []
        self._filling = bytes(plan.payload_bytes - NUMBER.size)
        self.traffic = Traffic()
        self.began_at = 0.0
        """Start of the times in `traffic`, as `time.time` counts."""
        self._zero = 0.0

    async def __aenter__(self) -> Self:
        """Raises BenchError when a client is refused."""
        plan = self._plan
        async with AsyncExitStack() as stack:
            for number, position in enumerate(plan.subscribers):
                arrivals = Arrivals(position)
                self.traffic.arrivals.append(arrivals)
                recorder = _ArrivalRecorder(self, arrivals)
                client = await stack.enter_async_context(
                    connected_client(self._addresses[position], f"sub-{number}", recorder)
                )
                await client.subscribe_and_wait(*plan.topics)
            for number, position in enumerate(plan.publishers):
                client = await stack.enter_async_context(connected_client(self._addresses[position], f"pub-{number}"))
                self._publishers.append(client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def begin(self) -> None:
        """Start the clock of the trial."""
        self._zero, self.began_at = time.perf_counter(), time.time()

    def now(self) -> float:
        """Seconds since `begin`."""
        return time.perf_counter() - self._zero

    async def run(self) -> None:
        """Publish all messages of the plan, each at its time."""
        interval_s = 1 / self._plan.published_hz
        for due in range(self._plan.messages):
            wait_s = due * interval_s - self.now()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            elif due % 16 == 0:
                # A load that is behind never waits: let the sockets of the clients be served all the same.
                await asyncio.sleep(0)
            self._publish(due)

    async def drain(self) -> None:
        """Return when all messages have arrived, or no more arrive."""
        traffic = self.traffic
        wanted = traffic.published * len(traffic.arrivals)
        arrived = traffic.arrived
        end = changed_at = self.now()
        end += DRAIN_S
        while arrived < wanted and self.now() < min(end, changed_at + QUIET_S):
            await asyncio.sleep(LOOK_S)
            before, arrived = arrived, traffic.arrived
            if arrived != before:
                changed_at = self.now()

    def _publish(self, due: int) -> None:
        """Publish the message that is due: publishers in rotation, each through all topics in rotation.

        A publisher that has lost its connection is skipped.
        """
        plan, traffic = self._plan, self.traffic
        rotation, publisher = divmod(due, len(plan.publishers))
        client = self._publishers[publisher]
        if client.ended:
            return
        payload = NUMBER.pack(traffic.published) + self._filling
        traffic.published_at.append(self.now())
        traffic.publishers.append(plan.publishers[publisher])
        client.publish(plan.topics[rotation % len(plan.topics)], payload)


class _ArrivalRecorder:
    """Records the arrivals at one subscriber."""

    def __init__(self, load: TrialLoad, arrivals: Arrivals) -> None:
        self._now = load.now
        self._arrivals = arrivals

    def __call__(self, message: Publish) -> None:
        self._arrivals.times.append(self._now())
        self._arrivals.numbers.append(NUMBER.unpack_from(message.payload)[0])
