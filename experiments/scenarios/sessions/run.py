"""A run on virtual time: `ChaosRun` over simulated machines, with the faults that no real process can be made to have.

A process ends at a step of an iteration, before or after a commit; a disk is lost; a processor is slow; a client's
connection breaks at a step of a handshake. Each is noted in the history with all others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random
from typing import Final, cast

from ringmq.experiments.chaos import promises
from ringmq.experiments.chaos.conditions import Terms
from ringmq.experiments.chaos.history import FaultKind
from ringmq.experiments.chaos.run import ChaosRun
from ringmq.experiments.chaos.site import Site
from ringmq.experiments.chaos.traffic import TrafficPlan
from ringmq.experiments.hosts.host import Host
from ringmq.experiments.hosts.network import HostNetwork
from ringmq.experiments.scenarios.sessions.site import SimulatedLines, SimulatedSite
from ringmq.experiments.simulator.machines.peer_machine import PeerMachine
from ringmq.experiments.simulator.machines.streams import StreamEnd

LOOK_S: Final = 0.01


class SimulatedRun(ChaosRun):
    """One run of a simulated site."""

    def __init__(self, site: SimulatedSite, plan: TrafficPlan, terms: Terms, seconds: float, chance: Random) -> None:
        # What a run uses of its site and its network, both have.
        super().__init__(cast(Site, site), plan, terms, seconds, chance)
        self.network = cast("HostNetwork[Host]", SimulatedLines(site.network))
        self.simulated = site
        for peer in site.peers:
            peer.machine.on_end = self._crashed

    async def _call_site(self, call: Callable[..., None], numbers: Iterable[int]) -> None:
        numbers = list(numbers)
        if call == self.site.start:
            await self._ended(numbers)
        call(*numbers)
        if call == self.site.stop:
            await self._ended(numbers)

    async def _ended(self, numbers: Iterable[int]) -> None:
        while any(self.simulated.peers[number].alive for number in numbers):  # noqa: ASYNC110  # nothing tells of it
            await asyncio.sleep(LOOK_S)

    def crash_in(self, number: int, steps: int) -> None:
        """Let a peer end after so many further steps: callbacks, changes of its journals, commits."""
        peer = self.simulated.peers[number]
        peer.is_meant_to_run = False
        peer.machine.crash_in(steps)

    def _crashed(self, machine: PeerMachine, step: str) -> None:
        self._down((machine.number,), FaultKind.DOWN, f"crash {step}, ")

    def lose_disk(self, number: int) -> None:
        """A peer that is down gets an empty disk: with it the sessions of its clients are gone."""
        self.recorder.injected(FaultKind.BLANK, (number,), text=f"empty disk of {number}").end = self.recorder.now
        self.simulated.peers[number].machine.lose_disk()
        for client in self.traffic.clients:
            if client.peer == number:
                client.forget_session()

    def slow_down(self, number: int, slowness: float) -> None:
        """Let the work of a peer take so many times as long from now on; 1.0 ends it."""
        if slowness != 1.0:
            self.recorder.injected(FaultKind.OTHER, (number,), text=f"peer {number} takes {slowness:.0f} times as long")
        self.simulated.peers[number].machine.slow_down(slowness)

    def break_off(self, after_writes: int) -> None:
        """Let the connection of some client break when it, or its peer, has written so often."""
        # Not of those with wills: whether a DISCONNECT has arrived then, nobody knows.
        clients = [client for client in self.traffic.clients if client.is_open and not client.will_topic]
        if not clients:
            return
        end = self.chance.choice(clients).transport
        if isinstance(end, StreamEnd):
            end = end if self.chance.random() < 0.5 else end.other
            end.sever_after(after_writes, arrives=self.chance.random() < 0.5)

    def _read_logs(self) -> None:
        super()._read_logs()
        for fault in self.simulated.virtual_time.faults:
            self.recorder.incident(promises.ALIVE, fault)
