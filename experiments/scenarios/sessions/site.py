"""A simulated site: the machines of a run, as the runs of `ringmq bench chaos` use theirs.

Its clients are on one further event loop, and each connects within the machine of its peer.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Final

from ringmq.experiments.hosts.network import USUAL, LineWeather
from ringmq.experiments.simulator.machines.machine_loop import MachineLoop
from ringmq.experiments.simulator.machines.peer_machine import (
    MQTT_PORT,
    MachineSettings,
    PeerMachine,
    address_of,
)
from ringmq.experiments.simulator.machines.streams import HostSockets, SimulatedNetwork, StreamEnd
from ringmq.experiments.simulator.machines.virtual_time import VirtualTime

INACTIVE: Final = "[info] inactive"


class SimulatedSitePeer:
    """One peer of a site."""

    def __init__(self, machine: PeerMachine) -> None:
        self.machine = machine
        self.number = machine.number
        self.is_meant_to_run = False

    def __str__(self) -> str:
        return f"peer {self.number}"

    @property
    def alive(self) -> bool:
        return self.machine.is_running

    def send(self, number: signal.Signals) -> None:
        if self.alive and number is signal.SIGSTOP:
            self.machine.hold()
        elif self.alive and number is signal.SIGCONT:
            self.machine.let_go()

    def logged(self) -> str:
        return "\n".join([INACTIVE] * self.machine.inactive)


class SimulatedSite:
    """All peers of a run."""

    def __init__(self, clock: VirtualTime, peers: int, folder: Path, settings: MachineSettings) -> None:
        self.virtual_time = clock
        self.network = SimulatedNetwork(clock)
        self.peers = [SimulatedSitePeer(PeerMachine(number, self.network, folder, settings)) for number in range(peers)]
        inside = [HostSockets(self.network, address_of(number)) for number in range(peers)]
        self.clients_loop = MachineLoop(clock, "clients", inside[0])
        for sockets in inside:
            sockets.loop = self.clients_loop
        self._inside = inside

    def clock(self) -> float:
        return self.virtual_time.now

    def start(self, *numbers: int) -> None:
        for number in numbers:
            self.peers[number].is_meant_to_run = True
            self.peers[number].machine.start()

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.peers[number].is_meant_to_run = False
            self.peers[number].machine.kill()

    def stop(self, *numbers: int) -> None:
        """They end a while later."""
        for number in numbers:
            self.peers[number].is_meant_to_run = False
            self.peers[number].machine.stop()

    async def dial(self, number: int) -> StreamEnd:
        """A connection to the MQTT listener of a peer, from its own machine. Raises OSError."""
        return await self._inside[number].dial(address_of(number), MQTT_PORT)

    async def statuses(self, numbers: Collection[int]) -> dict[int, dict[str, Any]]:
        """What there is to say of peers that are not one ring."""
        found = {number: self.peers[number].machine.ring_members for number in numbers}
        return {number: {} if members is None else {"members": members} for number, members in found.items()}

    async def is_whole(self) -> bool:
        """Whether all peers are active in one ring."""
        known = [peer.machine.ring_members for peer in self.peers]
        return None not in known and len(set(known)) == 1 and len(known[0] or ()) == len(self.peers)

    def close(self) -> None:
        """End all processes."""
        for peer in self.peers:
            peer.machine.close()
        self.clients_loop.close()


class SimulatedLines:
    """The network of a site, as the scenarios of cuts and of weather change it."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network

    def block(self, pairs: Iterable[tuple[int, int]]) -> None:
        self._network.block((address_of(source), address_of(target)) for source, target in pairs)

    def change(self, weather: LineWeather) -> None:
        if weather == USUAL:
            self._network.delay_s, self._network.loss = None, 0.0
        else:
            self._network.delay_s = (weather.delay_s - weather.jitter_s, weather.delay_s + weather.jitter_s)
            self._network.loss = weather.loss
