"""The troubles of a simulated run: those of `ringmq bench chaos`, and those that only a simulation can bring about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, cast

from ringmq.experiments.chaos.run import ChaosRun
from ringmq.experiments.chaos.scenarios import SCENARIOS, SHADOWS
from ringmq.experiments.chaos.traffic import TrafficPlan
from ringmq.experiments.scenarios.sessions.run import SimulatedRun

Play = Callable[[ChaosRun], Awaitable[None]]

QUIET_TRAFFIC: Final = TrafficPlan(rate_hz=25.0, probes_hz=2.0, retained_hz=2.0, retained_topics=10)
"""Less than real peers get: a run with a thousand messages meets each fault some dozen times."""
PROBING: Final = replace(QUIET_TRAFFIC, probes_hz=8.0)
"""With many subscriptions that have just been granted: those that a part of a cut makes are the hardest to keep."""
MOST_STEPS: Final = 400
"""Of a process, until it crashes: some tenths of a second under this traffic."""
BREAKS_HZ: Final = 4.0
MOST_WRITES: Final = 6
SLOWNESS: Final = (100.0, 3000.0)
"""A callback takes 2 to 60 ms on such a machine, so that work builds up for seconds."""
LONGEST_DOWN_S: Final = 8.0
BETWEEN_DISKS_S: Final = (20.0, 25.0)
"""The former id of a peer without its disk is waited for, for a lease, and again by a coordinator that starts then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTrouble:
    """One kind of trouble, with its traffic and the longest time that an acknowledgement may take."""

    name: str
    play: Play
    traffic: TrafficPlan = field(default=QUIET_TRAFFIC)
    answer_s: float = 20.0


async def crashes(run: ChaosRun) -> None:
    """One or two peers end at any step, and come back after some seconds."""
    simulated = cast(SimulatedRun, run)
    while not run.is_over:
        victims = run.some(run.chance.randint(1, SHADOWS))
        for number in victims:
            simulated.crash_in(number, run.chance.randrange(MOST_STEPS))
        while any(simulated.simulated.peers[number].alive for number in victims):  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(0.01)
        await run.wait(0.0, LONGEST_DOWN_S)
        await run.start(*victims)
        await run.settle()
        await run.wait(1.0, 4.0)


async def crashes_while_starting(run: ChaosRun) -> None:
    """A peer ends, and ends again while it starts, at any step."""
    simulated = cast(SimulatedRun, run)
    while not run.is_over:
        (victim,) = run.some(1)
        await run.kill(victim)
        for _ in range(run.chance.randint(1, 2)):
            await run.wait(0.0, 1.0)
            await run.start(victim)
            simulated.crash_in(victim, run.chance.randrange(MOST_STEPS))
            while simulated.simulated.peers[victim].alive:  # noqa: ASYNC110  # nothing tells of it
                await asyncio.sleep(0.01)
        await run.wait(0.0, 2.0)
        await run.start(victim)
        await run.settle()
        await run.wait(1.0, 4.0)


async def lost_disks(run: ChaosRun) -> None:
    """A peer ends, and comes back with an empty disk."""
    simulated = cast(SimulatedRun, run)
    while not run.is_over:
        (victim,) = run.some(1)
        await run.kill(victim)
        await run.wait(0.0, LONGEST_DOWN_S)
        simulated.lose_disk(victim)
        await run.start(victim)
        await run.settle()
        await run.wait(*BETWEEN_DISKS_S)


async def slow(run: ChaosRun) -> None:
    """One or two peers have slow processors, or stand still again and again."""
    simulated = cast(SimulatedRun, run)
    while not run.is_over:
        victims = run.some(run.chance.randint(1, SHADOWS))
        slowness = run.chance.uniform(*SLOWNESS)
        for number in victims:
            simulated.slow_down(number, slowness)
        await run.wait(3.0, 12.0)
        for number in victims:
            simulated.slow_down(number, 1.0)
        await run.settle()
        await run.wait(1.0, 4.0)


async def broken_clients(run: ChaosRun) -> None:
    """The connections of clients break at any step of their handshakes."""
    simulated = cast(SimulatedRun, run)
    while not run.is_over:
        await asyncio.sleep(run.chance.expovariate(BREAKS_HZ))
        simulated.break_off(run.chance.randrange(MOST_WRITES))


async def everything(run: ChaosRun) -> None:
    """Connections of clients break while peers crash at any step."""
    breaking = asyncio.ensure_future(broken_clients(run))
    try:
        await crashes(run)
    finally:
        breaking.cancel()


SESSION_TROUBLES: Final = (
    SessionTrouble(name="calm", play=SCENARIOS["steady"].play, answer_s=5.0),
    SessionTrouble(name="crashes", play=crashes),
    SessionTrouble(name="starting", play=crashes_while_starting),
    SessionTrouble(name="disks", play=lost_disks, answer_s=35.0),
    SessionTrouble(name="slow", play=slow),
    SessionTrouble(name="breaks", play=broken_clients),
    SessionTrouble(name="everything", play=everything),
    SessionTrouble(name="pauses", play=SCENARIOS["stop"].play),
    SessionTrouble(name="power", play=SCENARIOS["power_cut"].play, answer_s=25.0),
    SessionTrouble(name="rolling", play=SCENARIOS["rolling_restart"].play),
    SessionTrouble(name="cuts", play=SCENARIOS["cuts"].play, traffic=PROBING),
    SessionTrouble(name="flapping", play=SCENARIOS["flapping"].play, traffic=PROBING),
    SessionTrouble(name="majority", play=SCENARIOS["majority"].play, traffic=PROBING),
    SessionTrouble(name="three", play=SCENARIOS["three_way"].play, traffic=PROBING),
    SessionTrouble(name="one_way", play=SCENARIOS["one_way"].play, traffic=PROBING),
    SessionTrouble(name="pair", play=SCENARIOS["one_pair"].play),
    SessionTrouble(name="loss", play=SCENARIOS["loss"].play),
)
BY_NAME: Final = {trouble.name: trouble for trouble in SESSION_TROUBLES}
