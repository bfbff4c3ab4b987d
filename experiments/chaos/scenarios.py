"""The scenarios: what happens to the peers while the traffic flows. Each is a coroutine over a run, with its chance.

Knows faults by the methods of a run, and nothing of processes or clients.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from ringmq.experiments.chaos import cuts, disks
from ringmq.experiments.chaos.conditions import Terms
from ringmq.experiments.chaos.history import FaultKind
from ringmq.experiments.chaos.hostile import hostile
from ringmq.experiments.chaos.run import ChaosRun
from ringmq.experiments.chaos.traffic import TrafficPlan
from ringmq.experiments.hosts.disk import lacking_disks
from ringmq.experiments.hosts.host import lacking

Play = Callable[[ChaosRun], Awaitable[None]]

SHADOWS: Final = 2
"""Of the peers: so many may crash at once."""
CROWD_S: Final = "crowd ready s"
"""Name of the figure: after how long all clients of a flood had all their filters."""
LONGEST_PAUSE_S: Final = 10.0
"""Below the lease of entries (`lan`: 15 s), and below the time that a restart may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One kind of fault under traffic."""

    name: str
    text: str
    """What happens, for the list of scenarios."""
    play: Play
    traffic: TrafficPlan = field(default_factory=TrafficPlan)
    puback_s: float = 20.0
    """Longest time that a PUBACK or PUBREC may take (`lan`), by the documents."""
    suback_s: float = 20.0
    needs_hosts: bool = False
    """Whether each peer needs a host of its own, in a network namespace."""
    shares_core: bool = False
    """Whether all peers share one core, while the others have work already."""
    needs_disk: bool = False
    """Whether a peer needs a small disk, in a mount namespace."""
    needs_clock: bool = False
    """Whether a peer needs a clock of its own, by libfaketime."""

    def lacking(self) -> str:
        """Why this machine cannot carry it out; empty where it can."""
        whys = (
            lacking() if self.needs_hosts else "",
            lacking_disks() if self.needs_disk else "",
            disks.lacking_clocks() if self.needs_clock else "",
        )
        return next((why for why in whys if why), "")

    def terms(self, timing: str) -> Terms:
        if timing == "wan":
            return Terms(waited_s=48.0, met_s=25.0, puback_s=4 * self.puback_s, suback_s=4 * self.suback_s)
        return Terms(puback_s=self.puback_s, suback_s=self.suback_s)


async def steady(run: ChaosRun) -> None:
    """No fault."""
    while not run.is_over:
        await run.wait(1.0)


async def kill(run: ChaosRun) -> None:
    """As many peers as a partition has shadows die at once; they come back after some seconds."""
    while not run.is_over:
        victims = run.some(run.chance.randint(1, SHADOWS))
        await run.kill(*victims)
        await run.wait(0.5, 8.0)
        await run.start(*victims)
        await run.settle()
        await run.wait(1.0, 4.0)


async def kill_one_at_a_time(run: ChaosRun) -> None:
    """One peer dies and is started at once."""
    while not run.is_over:
        (victim,) = run.some(1)
        await run.kill(victim)
        await run.wait(0.0, 2.0)
        await run.start(victim)
        await run.settle()
        await run.wait(0.0, 2.0)


async def stop(run: ChaosRun) -> None:
    """One or two peers stand still for less than a lease."""
    while not run.is_over:
        victims = run.some(run.chance.randint(1, SHADOWS))
        run.pause(*victims)
        await run.wait(1.0, LONGEST_PAUSE_S)
        run.resume(*victims)
        await run.settle()
        await run.wait(1.0, 3.0)


async def power_cut(run: ChaosRun) -> None:
    """All peers die at once, and come back one after the other; in turns with the first peer and without."""
    with_the_first = run.chance.random() < 0.5
    while not run.is_over:
        await run.kill(*run.peers, kind=FaultKind.POWER)
        await run.wait(0.2, 2.0)
        order = [number for number in run.some(len(run.peers)) if number]
        first = order.pop()
        await run.start(0 if with_the_first else first)
        for number in [*order, *([first] if with_the_first else [])]:
            await run.wait(0.0, 0.5)
            await run.start(number)
        if not with_the_first:
            await run.wait(2.0, 6.0)
            await run.start(0)
        await run.settle()
        await run.wait(8.0, 12.0)
        with_the_first = not with_the_first


async def rolling_restart(run: ChaosRun) -> None:
    """Each peer in turn is stopped and started again; in every second round it is killed."""
    kills = run.chance.random() < 0.5
    while not run.is_over:
        for number in run.some(len(run.peers)):
            if run.is_over:
                return
            await (run.kill if kills else run.stop)(number)
            await run.wait(0.0, 2.0)
            await run.start(number)
            await run.settle()
            await run.wait(0.0, 1.0)
        kills = not kills


async def flood(run: ChaosRun) -> None:
    """Many kept clients come at once, each with many filters; then one of them after the other gets messages."""
    crowd = run.traffic.crowd
    run.traffic.others += crowd
    begun = run.recorder.now
    for client in crowd:
        client.come()
    while not run.is_over:
        await run.wait(0.05)
        if CROWD_S not in run.figures and all(client.is_ready for client in crowd):
            run.figures[CROWD_S] = round(run.recorder.now - begun, 1)
        client = run.chance.choice(crowd)
        if client.is_ready:
            run.chance.choice(run.traffic.publishers).publish(run.chance.choice(client.wanted)[0], 1)


ON_LOOPBACK: Final = (
    Scenario(name="steady", text="no fault", play=steady, puback_s=5.0, suback_s=5.0),
    Scenario(name="kill", text="kill -9 of one or two peers at once, back after some seconds", play=kill),
    Scenario(name="kill_one_at_a_time", text="kill -9 of one peer, back at once", play=kill_one_at_a_time),
    Scenario(name="stop", text="SIGSTOP of one or two peers, shorter than a lease", play=stop),
    Scenario(
        name="power_cut",
        text="kill -9 of all, back with and without the first peer",
        play=power_cut,
        puback_s=25.0,
        suback_s=25.0,
    ),
    Scenario(name="rolling_restart", text="one peer after the other, by SIGTERM and by kill -9", play=rolling_restart),
    Scenario(
        name="slow_readers",
        text="clients that read and acknowledge slowly",
        play=steady,
        traffic=TrafficPlan(slow=4),
        puback_s=5.0,
        suback_s=5.0,
    ),
    Scenario(
        name="flood",
        text="300 kept clients with 100 filters each come at once",
        play=flood,
        traffic=TrafficPlan(flood=300, flood_filters=100),
        puback_s=5.0,
        suback_s=120.0,
    ),
    Scenario(
        name="overload",
        text="2,000 kept clients with 200 filters each come at once, all peers share a core",
        play=flood,
        traffic=TrafficPlan(flood=2000, flood_filters=200),
        puback_s=5.0,
        suback_s=120.0,
        shares_core=True,
    ),
    Scenario(
        name="many_retained",
        text="5,000 retained topics, while peers are killed",
        play=kill_one_at_a_time,
        traffic=TrafficPlan(rate_hz=40.0, retained_hz=80.0, retained_topics=5000),
    ),
)
WITH_DISKS: Final = (
    Scenario(name="disk_full", text="one peer has no room on its disk", play=disks.disk_full, needs_disk=True),
    Scenario(name="read_only", text="one peer may not write to its disk", play=disks.read_only, needs_disk=True),
    Scenario(name="damaged_files", text="a peer is started with a damaged file", play=disks.damaged_files),
    Scenario(name="clocks", text="the time of day of one peer is hours off", play=disks.clocks, needs_clock=True),
)
ON_HOSTS: Final = (
    Scenario(name="cuts", text="a part of the peers is cut off for 1 to 6 s", play=cuts.cuts, needs_hosts=True),
    Scenario(name="flapping", text="the line of one or two peers comes and goes", play=cuts.flapping, needs_hosts=True),
    Scenario(name="majority", text="the smaller half is cut off for 8 to 25 s", play=cuts.majority, needs_hosts=True),
    Scenario(name="three_way", text="three parts for 8 to 25 s", play=cuts.three_way, needs_hosts=True),
    Scenario(
        name="one_way", text="one peer does not reach others, which reach it", play=cuts.one_way, needs_hosts=True
    ),
    Scenario(
        name="one_pair",
        text="two peers do not reach each other, all others reach both",
        play=cuts.one_pair,
        needs_hosts=True,
    ),
    Scenario(name="loss", text="20 % loss, 0.1 to 0.3 s of delay, another order", play=cuts.loss, needs_hosts=True),
)
AGAINST_STRANGERS: Final = (
    Scenario(name="hostile", text="storms of well-formed messages with wrong contents", play=hostile),
)
SCENARIOS: Final = {scenario.name: scenario for scenario in (*ON_LOOPBACK, *WITH_DISKS, *ON_HOSTS, *AGAINST_STRANGERS)}
