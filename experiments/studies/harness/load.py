"""The load generator of a trial: MQTT clients at the peers, messages at a steady rate, and all that comes noted.

Owns the clients. What the notes say, `traffic` counts.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, Self

from ringmq.experiments.load.client import Client, talking
from ringmq.experiments.load.raw_clients import Address
from ringmq.experiments.studies.harness.plan import Plan
from ringmq.experiments.studies.harness.traffic import Arrivals, Traffic
from ringmq.mqtt_front.codec.packets import Publish

NUMBER: Final = struct.Struct("<I")
"""In front of each payload."""
LOOK_S: Final = 0.02
"""Between two looks whether all has come."""
QUIET_S: Final = 2.0
"""When nothing has come for so long, nothing more will."""
DRAIN_S: Final = 30.0
"""The most for what is still on its way; a machine that needs longer does not keep up."""


class Load:
    """The clients of one trial, subscribed. Open it once the ring is one; `run` it once."""

    def __init__(self, plan: Plan, addresses: Sequence[Address]) -> None:
        self._plan = plan
        self._addresses = addresses
        self._stack = AsyncExitStack()
        self._publishers: list[Client] = []
        self._filling = bytes(plan.payload_bytes - NUMBER.size)
        self.traffic = Traffic()
        self.began_at = 0.0
        """By `time.time`: what the times of `traffic` count from."""
        self._zero = 0.0

    async def __aenter__(self) -> Self:
        """Raises BenchError when a client is refused."""
        plan = self._plan
        async with AsyncExitStack() as stack:
            for number, place in enumerate(plan.subscribers):
                arrivals = Arrivals(place)
                self.traffic.arrivals.append(arrivals)
                address = self._addresses[place]
                client = await stack.enter_async_context(talking(address, f"sub-{number}", _Hears(self, arrivals)))
                await client.subscribed(*plan.topics)
            for number, place in enumerate(plan.publishers):
                client = await stack.enter_async_context(talking(self._addresses[place], f"pub-{number}"))
                self._publishers.append(client)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def begin(self) -> None:
        """Time counts from now."""
        self._zero, self.began_at = time.perf_counter(), time.time()

    def now(self) -> float:
        """Seconds since it began."""
        return time.perf_counter() - self._zero

    async def run(self) -> None:
        """Publish all messages of the plan, each at its time."""
        interval_s = 1 / self._plan.published_hz
        for turn in range(self._plan.messages):
            wait_s = turn * interval_s - self.now()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            elif turn % 16 == 0:
                await asyncio.sleep(0)
            self._publish(turn)

    async def drain(self) -> None:
        """Return when all has come, or nothing comes any more."""
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

    def _publish(self, turn: int) -> None:
        """Publishers take turns, each through all topics. One that has lost its peer misses its turn."""
        plan, traffic = self._plan, self.traffic
        at, who = divmod(turn, len(plan.publishers))
        client = self._publishers[who]
        if client.ended:
            return
        payload = NUMBER.pack(traffic.published) + self._filling
        traffic.published_at.append(self.now())
        traffic.publishers.append(plan.publishers[who])
        client.publish(plan.topics[at % len(plan.topics)], payload)


class _Hears:
    """Notes what comes to one subscriber."""

    def __init__(self, load: Load, arrivals: Arrivals) -> None:
        self._now = load.now
        self._arrivals = arrivals

    def __call__(self, message: Publish) -> None:
        self._arrivals.times.append(self._now())
        self._arrivals.numbers.append(NUMBER.unpack_from(message.payload)[0])
