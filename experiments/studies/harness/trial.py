"""One trial: a ring of real peers, messages through it, and the counts of clients and peers.

`run` is the only entry point for experiments. It starts the ring, drives the load, kills the victims of the plan, lands
the peers' records in a data folder, and leaves no process and no other file behind, however it ends.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.studies.harness.errors import ExperimentError
from ringmq.experiments.studies.harness.load import TrialLoad
from ringmq.experiments.studies.harness.plan import Kill, Plan
from ringmq.experiments.studies.harness.records import land
from ringmq.experiments.studies.harness.rings import INTERVAL_S, RecordingRing, recording_ring
from ringmq.experiments.studies.harness.traffic import Counts, Traffic, counts

TAIL_S: Final = 3 * INTERVAL_S
"""Time after the last message, in which each peer takes and writes one more sample."""


@dataclass(frozen=True, slots=True)
class Trial:
    """Result of a plan."""

    plan: Plan
    traffic: Traffic
    ready_s: float
    """Time from the start of the first process until the peers were one ring."""
    killed_s: float | None
    """Time of the kill on the clock of `traffic`."""
    records: int
    """Number of records that landed in the data folder."""

    @property
    def counts(self) -> Counts:
        """Counts of all messages, with the latencies of the measured time."""
        return counts(self.traffic, self.plan.warm_s)


def too_slow(trial: Trial) -> str:
    """The remark about a trial whose counts do not keep up."""
    late_ms = 1000 * trial.counts.p99_s
    return (
        f"this machine is too small for {trial.plan.delivered_hz:.0f} deliveries/s:"
        f" one in a hundred took {late_ms:.0f} ms or more"
    )


def run(plan: Plan, data: Path) -> Trial:
    """Play a plan. On return all its records are in the data folder; after an exception none are.

    Raises ExperimentError with one line if the ring cannot be formed or its clients cannot connect.
    """
    began = time.monotonic()
    try:
        with recording_ring(plan) as ring:
            ready_s = time.monotonic() - began
            load, killed_s = asyncio.run(_play(plan, ring))
            until = time.time()
            errors = ring.logged_errors()
            if errors:
                raise ExperimentError(f"{plan.run}: {errors[0]}")
            since = load.began_at + (0.0 if plan.kill else plan.warm_s)
            records = land([peer.records for peer in ring.recording], data, plan.run, since, until)
    except BenchError as error:
        raise ExperimentError(f"{plan.run}: {error}") from error
    return Trial(plan, load.traffic, ready_s, killed_s, records)


async def _play(plan: Plan, ring: RecordingRing) -> tuple[TrialLoad, float | None]:
    async with TrialLoad(plan, [peer.mqtt for peer in ring.peers]) as load:
        load.begin()
        killing = asyncio.create_task(_kill(plan.kill, ring, load))
        try:
            await load.run()
            await load.drain()
            killed_s = await killing
        finally:
            killing.cancel()
            with suppress(asyncio.CancelledError):
                await killing
        await asyncio.sleep(TAIL_S)
    return load, killed_s


async def _kill(kill: Kill | None, ring: RecordingRing, load: TrialLoad) -> float | None:
    """Kill the victims at their time. Returns that time, None without a kill."""
    if kill is None:
        return None
    await asyncio.sleep(kill.at_s - load.now())
    killed_s = load.now()
    # In a thread: `kill` waits for the ends of the processes, and the load must go on meanwhile.
    await asyncio.to_thread(ring.kill, *(ring.peers[victim] for victim in kill.victims))
    return killed_s
