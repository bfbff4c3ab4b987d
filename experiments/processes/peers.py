"""The peers of one ring as processes with MQTT listeners, which can be measured, killed and started again.

Owns their start, their end and their logs. Knows a peer by its command line and its status.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from ringmq.experiments.cli.local_ring import is_settled
from ringmq.experiments.load.raw_clients import Address, BenchError
from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.servers import Server
from ringmq.experiments.processes.signals import held_back
from ringmq.overlay.config import show
from ringmq.overlay.core.ids import Id
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import ask_status
from ringmq.peer.resources.allocator import with_pages

HOST: Final = "127.0.0.1"
SETTLE_S: Final = 30.0
SETTLE_S_PER_PEER: Final = 2.0
"""Time for peers to become one ring, in all: several times the time that two cores need."""
TAIL_BYTES: Final = 4096
"""The end of a log that is searched for the reason of a failure."""
LOOK_S: Final = 0.05
"""Time between two requests for the status of the peers."""
TROUBLES: Final = {
    "ring": ("suspicions", "deaths", "pauses"),
    "front": ("publish_dropped",),
    "pubsub": ("dropped", "refused", "given_up", "leases_lost", "expired", "superseded"),
}
"""Counters that stay at 0 while no peer dies, no peer leaves, and the machine is not overloaded."""


@dataclass(frozen=True, slots=True)
class Program:
    """The command line and the environment that peers are started with."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    name: str = ""
    """Name of a peer in errors; by default its number and id."""


def this_program() -> Program:
    """The version that runs this code. -P keeps the current folder off the path of modules."""
    return Program((sys.executable, "-P", "-m", "ringmq"), with_pages(os.environ))


class RingPeer:
    """One peer of the ring, with its current process."""

    def __init__(self, number: int, overlay: Address, mqtt: Address, log: Path, program: Program | None = None) -> None:
        self.number = number
        self.program = program or this_program()
        self.overlay = overlay
        self.mqtt = mqtt
        self.id = Id(0)
        """Known once the ring has settled."""
        self.log = log
        """Log file of all its processes, one after the other."""
        self._server: Server | None = None

    def __str__(self) -> str:
        return f"peer {self.number} ({self.id.short()})"

    @property
    def server(self) -> Server:
        assert self._server is not None, f"{self} was not started"
        return self._server

    @property
    def pid(self) -> int:
        return self.server.pid

    @property
    def alive(self) -> bool:
        return self._server is not None and self._server.runs

    def start(self, join: Address | None, parent_pipe: int, options: Sequence[str]) -> None:
        """Start its process, which ends when it reads the end of the pipe. Raises BenchError."""
        command = (
            *(*self.program.command, "peer", "--log-level", "warning"),
            *("--overlay", show(self.overlay), "--mqtt", show(self.mqtt)),
            *("--parent-pipe", str(parent_pipe)),
            *(("--join", show(join)) if join else ()),
            *options,
        )
        with self.log.open("ab") as log, held_back():
            try:
                process = subprocess.Popen(  # noqa: S603  # our own command line
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=log,
                    env=self.program.env,
                    pass_fds=(parent_pipe,),
                )
            except OSError as error:
                raise BenchError(f"cannot start {self.program.name or self}: {error.strerror}") from None
            self._server = Server(self.program.name or str(self), process, self.mqtt)

    def await_ready(self) -> None:
        """Return when it accepts connections. Raises BenchError, with the last line that the peer logged."""
        try:
            self.server.await_ready()
        except BenchError as error:
            lines = self.log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").split("\n")
            last = next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")
            raise BenchError(f"{error}{last}") from None

    def logged_errors(self) -> list[str]:
        """Logged errors, and all lines that are no log lines, such as the lines of a traceback."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return [line for line in lines if "warning" not in line]


class Ring:
    """Peers of one ring. Made by `ring_of`."""

    def __init__(self, peers: Sequence[RingPeer], options: Sequence[str], core: int | None) -> None:
        self.peers = peers
        self._options = options
        self._core = core
        # Nothing is ever written to this pipe: the peers end when they read its end, after this process is gone.
        self._pipe, self._parent_end = os.pipe()

    @property
    def alive(self) -> list[RingPeer]:
        return [peer for peer in self.peers if peer.alive]

    def start(self, *peers: RingPeer) -> None:
        """Start peers, which join a live peer if there is one. Raises BenchError."""
        for peer in peers:
            known = self.alive
            peer.start(known[0].overlay if known else None, self._pipe, self._options)
            if self._core is not None:
                os.sched_setaffinity(peer.pid, {self._core})
            if not known:
                peer.await_ready()
        for peer in peers:
            peer.await_ready()

    def kill(self, *peers: RingPeer) -> None:
        """Kill peers with SIGKILL, all at once."""
        for peer in peers:
            peer.server.kill()
        for peer in peers:
            peer.server.wait()

    def stop(self) -> None:
        """Stop all peers. Must be the last call."""
        for peer in self.alive:
            peer.server.stop()
        os.close(self._parent_end)
        os.close(self._pipe)

    async def settle(self) -> None:
        """Return when the live peers are one ring. Raises BenchError."""
        limit_s = SETTLE_S + SETTLE_S_PER_PEER * len(self.alive)
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            peers = self.alive
            statuses = await asyncio.gather(*(status_of(peer) for peer in peers))
            for peer, status in zip(peers, statuses, strict=True):
                peer.id = Id.parse(status["id"]) if status else Id(0)
            ids = {peer.id for peer in peers}
            if all(status and is_settled(status, ids) for status in statuses):
                return
            await asyncio.sleep(LOOK_S)
        raise BenchError(f"{len(self.alive)} peers were not one ring after {limit_s:g} s")

    async def trouble_counts(self) -> str:
        """Counters of the live peers that indicate deaths, losses, or an overloaded machine."""
        statuses = [status for peer in self.alive if (status := await status_of(peer))]
        counters = {
            "ring": [status["ring_counters"] for status in statuses],
            "front": [status["front"]["counters"] for status in statuses],
            "pubsub": [status["pubsub"]["counters"] for status in statuses],
        }
        sums = {
            name: sum(of_peer[name] for of_peer in counters[part]) for part, names in TROUBLES.items() for name in names
        }
        silent = len(self.alive) - len(statuses)
        return ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in ({"silent": silent} | sums).items())

    def logged_errors(self) -> list[str]:
        """Logged errors of all peers, each line with its peer."""
        return [f"{peer}: {line}" for peer in self.peers for line in peer.logged_errors()]


async def status_of(peer: RingPeer) -> dict[str, Any]:
    """The status of a peer; empty if it does not answer."""
    with contextlib.suppress(OverlayError):
        return await ask_status(peer.overlay)
    return {}


def settled(ring: Ring) -> None:
    """Wait until the peers are one ring by their own status. Raises BenchError."""
    asyncio.run(ring.settle())


@contextlib.contextmanager
def ring_of(
    count: int,
    options: Sequence[str] = (),
    core: int | None = None,
    program: Program | None = None,
    await_ring: Callable[[Ring], None] = settled,
) -> Iterator[Ring]:
    """`count` peers as one ring, on one core or on all cores, while the context lasts. Raises BenchError."""
    ports = choose_ports(0, 2 * count)
    with TemporaryDirectory(prefix="ringmq-bench-") as folder:
        ring = Ring(
            [
                RingPeer(
                    number + 1,
                    (HOST, ports[number]),
                    (HOST, ports[count + number]),
                    Path(folder) / f"{number}",
                    program,
                )
                for number in range(count)
            ],
            options,
            core,
        )
        try:
            ring.start(*ring.peers)
            await_ring(ring)
            yield ring
        finally:
            ring.stop()
