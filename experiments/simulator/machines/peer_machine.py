"""A machine with a peer: its address, its data folder, and its process, which runs, stands still, is slow, or ends.

The process is made of the parts of a real peer: node and links, engine, front, disks. Only the operating system below
them is simulated.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from ringmq.experiments.simulator.machines.crash_points import CrashPoints, SimulatedRecordStore, SimulatedStore
from ringmq.experiments.simulator.machines.machine_loop import MachineLoop
from ringmq.experiments.simulator.machines.streams import HostSockets, SimulatedNetwork
from ringmq.experiments.simulator.machines.virtual_time import VirtualTime
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.server.listeners import Listen
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.core.timing import PRESETS as TIMINGS
from ringmq.overlay.node import Node
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.engines.partitioned.shell.adapter import PartitionedAdapter
from ringmq.peer.identity.data_folder import STORED, DataFolder, Stored
from ringmq.peer.identity.known_peers import KnownPeers
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import PubSubConfig
from ringmq.peer.messaging.engine import NO_DISK, LocalClients
from ringmq.peer.mqtt_service import STORE
from ringmq.peer.process import RETAINED, known_addresses

OVERLAY_PORT: Final = 4883
MQTT_PORT: Final = 1883


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """What all peers of a site have in common."""

    timing: str = "lan"
    roles: PubSubConfig = field(default_factory=PubSubConfig)
    limits: FrontConfig = field(default_factory=FrontConfig)
    seeds: tuple[str, ...] = ()
    """Addresses of the peers that each joins."""


class SimulatedAdapter(PartitionedAdapter):
    """With the time of day of the simulation."""

    clock: VirtualTime

    def _new_engine(self, clients: LocalClients) -> PartitionedEngine:
        disk = NO_DISK if self._store is None else self._store
        clock = self.clock
        return PartitionedEngine(
            self, clients, self._config, disk, self._iteration, self._owing, lambda: int(1e6 * clock.of_day())
        )


class PeerProcessParts:
    """The parts of one process."""

    def __init__(self, machine: PeerMachine, points: CrashPoints) -> None:
        clock, settings = machine.clock, machine.settings
        self._machine = machine
        self._has_started = False
        self._files = contextlib.ExitStack()
        machine.parts = self
        self.folder = self._files.enter_context(DataFolder(machine.data, int(1000 * clock.of_day())))
        iteration = Iteration()
        self.records = SimulatedRecordStore(machine.data / RETAINED, clock.of_day)
        self._files.callback(self.records.close)
        self.clients = SimulatedStore(machine.data / STORE, clock.of_day() - iteration.begin())
        self._files.callback(self.clients.close)
        self.records.points = self.clients.points = points
        adapter_class = type("MachineAdapter", (SimulatedAdapter,), {"clock": clock})
        self.adapter: SimulatedAdapter = adapter_class(
            settings.roles, iteration, self._activity_changed, self.records, machine.fail, self.folder.remembered
        )
        self.adapter.core.measure_waits(lambda: machine.loop.waited_s)
        seeds = [(address, OVERLAY_PORT) for address in settings.seeds]
        overlay = OverlayConfig(
            id=self.folder.id,
            boot=self.folder.boot,
            listen=(machine.address, OVERLAY_PORT),
            ring_settings=f"timing {settings.timing}",
            seeds=tuple(dict.fromkeys((*seeds, *self.folder.remembered))),
            timing=TIMINGS[settings.timing],
            discovery=False,
        )
        self.node = Node(overlay, self.adapter, iteration)
        self.front = MqttServer(iteration, settings.limits, None, self.adapter, machine.fail)
        self.known_peers = KnownPeers(self.folder, self._known, machine.loop)
        self.adapter.on_leaves = self.known_peers.changed

    async def start(self) -> None:
        self.adapter.attach(self.node, self.front)
        self.front.restore(self.clients)
        await self.node.start()
        self._has_started = True
        self.adapter.begin()
        await self.front.listen(Listen(host=self._machine.address, port=MQTT_PORT))

    async def stop(self) -> None:
        """In the order of `PeerProcess.serve`."""
        self.known_peers.stop()
        await self.front.stop()
        self.adapter.stop()
        await self.node.stop()

    def abandon(self) -> None:
        """The process has ended: give its files back."""
        self._files.close()

    @property
    def is_active(self) -> bool:
        """Whether it serves keys."""
        return self._has_started and self.node.active

    def _known(self) -> list[tuple[str, int]]:
        return known_addresses(self.node.ring.leaves) if self.is_active else []

    def _activity_changed(self, active: bool) -> None:
        machine = self._machine
        machine.note("is active" if active else "is inactive")
        machine.inactive += not active
        self.known_peers.changed()


class PeerMachine:
    """One per peer of a site."""

    loop: MachineLoop
    parts: PeerProcessParts | None

    def __init__(self, number: int, network: SimulatedNetwork, folder: Path, settings: MachineSettings) -> None:
        self.number = number
        self.address = address_of(number)
        self.clock = network.clock
        self.data = folder / f"peer-{number}"
        self.settings = settings
        self.parts = None
        self.is_running = False
        self.inactive = 0
        """How often its process has left the ring."""
        self.on_end: Callable[[PeerMachine, str], None] = _nothing
        """Called when the process has ended by itself, with the step at which it crashed, or its fault."""
        self._network = network
        self._points = CrashPoints()
        self._slowness = 1.0
        self._loops: list[MachineLoop] = []
        self._make_folder()

    def _make_folder(self) -> None:
        self.data.mkdir(parents=True)
        stored = Stored(id=Id(self.clock.random.getrandbits(ID_BITS)).hex(), boot=0)
        (self.data / STORED).write_bytes(msgspec.json.encode(stored))

    def note(self, text: str) -> None:
        self.clock.note(f"peer {self.number} {text}")

    def start(self) -> None:
        """Start the process on the data that it has."""
        assert not self.is_running, "a machine has one peer"
        sockets = HostSockets(self._network, self.address)
        self.loop = sockets.loop = MachineLoop(self.clock, f"peer {self.number}", sockets)
        self._loops.append(self.loop)
        self.loop.slowness = self._slowness
        points = self._points = CrashPoints()
        points.on_end = self._crashed
        self.loop.before_callback = lambda: points.passed("between two callbacks")
        self.is_running = True
        self.note("starts")
        self.loop.create_task(self._serve(points))

    async def _serve(self, points: CrashPoints) -> None:
        try:
            await PeerProcessParts(self, points).start()
        except Exception as error:  # noqa: BLE001 - the root of a task: what a process would end with
            self.clock.faults.append(f"peer {self.number} cannot start: {error!r}")

    def crash_in(self, steps: int) -> None:
        """End the process after so many further steps."""
        self._points.ends_in = steps

    def _crashed(self, step: str) -> None:
        self.kill(step)
        self.on_end(self, step)

    def fail(self) -> None:
        """Its disk has failed: the process ends."""
        parts = self.parts
        fault = None if parts is None else parts.front.fault or parts.adapter.fault
        self.clock.faults.append(f"peer {self.number}: {fault}")

    def kill(self, how: str = "kill -9") -> None:
        if not self.is_running:
            return
        self.note(f"ends: {how}")
        self.is_running = False
        self.loop.end()
        self._network.ended(self.loop)
        parts, self.parts = self.parts, None
        if parts is not None:
            parts.abandon()

    def close(self) -> None:
        """The end of the simulation."""
        self.kill("the simulation is over")
        for loop in self._loops:
            loop.close()

    def stop(self) -> None:
        """SIGTERM: the process ends by itself, soon."""
        self.note("gets SIGTERM")
        self.loop.create_task(self._depart())

    async def _depart(self) -> None:
        if self.parts is not None:
            with contextlib.suppress(TimeoutError):
                await self.parts.stop()
        self.kill("SIGTERM")

    def hold(self) -> None:
        """SIGSTOP."""
        self.note("stands still")
        self.loop.hold()

    def let_go(self) -> None:
        """SIGCONT."""
        self.note("goes on")
        self.loop.let_go()

    def slow_down(self, slowness: float) -> None:
        """Let its work take so many times as long, also after a restart."""
        self._slowness = self.loop.slowness = slowness

    def lose_disk(self) -> None:
        """Replace the disk by an empty one. The process must have ended."""
        assert not self.is_running, "a disk is replaced while nothing runs"
        self.note("has lost its disk")
        shutil.rmtree(self.data)
        self._make_folder()

    @property
    def ring_members(self) -> frozenset[Id] | None:
        """The ids of the members that it knows, and its own; None while it is not active."""
        if not self.is_running or self.parts is None or not self.parts.is_active:
            return None
        ring = self.parts.node.ring
        return frozenset((ring.me.id, *(peer.id for peer in ring.leaves.peers)))


def address_of(number: int) -> str:
    return f"10.0.0.{number + 1}"


def _nothing(machine: PeerMachine, step: str) -> None:
    pass
