"""The peers of a run: processes with data folders, which are stopped, killed, paused and started again.

Knows their command lines, their status and their logs. All calls block, but `look`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from ringmq.experiments.cli.local_ring import is_settled
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.peers import HOST, RingPeer, status_of
from ringmq.experiments.processes.ports import choose_ports
from ringmq.overlay.config import show
from ringmq.overlay.core.ids import Id
from ringmq.peer.settings.addresses import is_loopback

Outcome = TypeVar("Outcome")

SETTINGS: Final = "[limits]\nmax_queued = 100_000\nmax_queued_bytes = 268_435_456\n"
"""The queue of a client that is away has a bound by design: no run may reach it."""
CONNECT_S: Final = 5.0
STOP_S: Final = 20.0
LEAST_SEEDS: Final = 3
"""All peers join the first three, so that one of them may be away."""


@dataclass(frozen=True, slots=True)
class SitePlan:
    """What all peers of a run have in common."""

    peers: int
    timing: str = "lan"
    dispatch: str = "direct"
    core: int | None = None
    """The core that all peers share. None: all cores."""

    def options(self) -> tuple[str, ...]:
        fanout = ("--fanout", "2") if self.dispatch == "guided" else ()
        return ("--timing", self.timing, "--dispatch", self.dispatch, *fanout, "--anonymous", "--log-level", "info")


class Place(Protocol):
    """Where a peer runs: on this machine, or in a network namespace of its own."""

    def inside(self, call: Callable[[], Outcome]) -> Outcome:
        """Processes that the call starts and sockets that it opens belong to this place."""
        ...


class Here:
    """This machine, as it is."""

    def inside(self, call: Callable[[], Outcome]) -> Outcome:
        return call()


class SitePeer:
    """One peer: its process, its folder, and whether it is meant to run."""

    def __init__(self, number: int, peer: RingPeer, folder: Path, place: Place) -> None:
        self.number = number
        self.ring_peer = peer
        self.folder = folder
        self.place = place
        self.extra: tuple[str, ...] = ()
        """Options of its own."""
        self.is_meant_to_run = False

    def __str__(self) -> str:
        return f"peer {self.number}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def alive(self) -> bool:
        return self.ring_peer.alive

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        self.ring_peer.server.send(number)

    def exit_status(self) -> int | None:
        """None while it runs."""
        return self.ring_peer.server.exit_status

    def await_end(self, within_s: float = STOP_S) -> bool:
        """Whether its process has ended in time."""
        deadline = time.monotonic() + within_s
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def logged(self) -> str:
        return self.ring_peer.log.read_text(encoding="utf-8", errors="replace")


class Site:
    """All peers of a run; a context manager, at whose end none of them is left."""

    clock = staticmethod(time.monotonic)
    """The time of a run."""

    def __init__(self, plan: SitePlan, folder: Path, places: Mapping[int, tuple[Place, str]] | None = None) -> None:
        self.plan = plan
        self.folder = folder
        self._pipe, self._parent_end = os.pipe()
        (folder / "ringmq.toml").write_text(SETTINGS, encoding="utf-8")
        ports = choose_ports(0, 2 * plan.peers)
        self.peers = []
        for number in range(plan.peers):
            place, host = (places or {}).get(number, (Here(), HOST))
            own = folder / f"peer-{number}"
            own.mkdir(exist_ok=True)
            overlay, mqtt = (host, ports[number]), (host, ports[plan.peers + number])
            self.peers.append(SitePeer(number, RingPeer(number, overlay, mqtt, own / "log"), own, place))

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *error: object) -> None:
        for peer in self.peers:
            if peer.alive:
                peer.send(signal.SIGKILL)
        for peer in self.peers:
            with contextlib.suppress(AssertionError):  # it was never started
                peer.await_end()
        os.close(self._parent_end)
        os.close(self._pipe)

    # Start and end

    def start(self, *numbers: int, ready: bool = True) -> None:
        """Start peers on the data that they have; return when they accept clients. Raises BenchError."""
        seeds = [show(peer.ring_peer.overlay) for peer in self.peers[:LEAST_SEEDS]]
        joins = tuple(word for seed in seeds for word in ("--join", seed))
        config = ("--config", str(self.folder / "ringmq.toml"))
        for number in numbers:
            peer = self.peers[number]
            # On a host of its own a peer would need a token; what a stranger can do is a subject of these runs.
            trust = () if is_loopback(peer.ring_peer.overlay[0]) else ("--insecure",)
            options = (*self.plan.options(), *config, *joins, *trust, "--data", str(peer.data), *peer.extra)
            peer.place.inside(lambda peer=peer, options=options: peer.ring_peer.start(None, self._pipe, options))  # type: ignore[misc]
            peer.is_meant_to_run = True
            if self.plan.core is not None:
                os.sched_setaffinity(peer.ring_peer.pid, {self.plan.core})
        for number in numbers:
            if ready:
                self.peers[number].place.inside(self.peers[number].ring_peer.await_ready)

    def kill(self, *numbers: int) -> None:
        """With SIGKILL, all at one moment."""
        for number in numbers:
            self.peers[number].is_meant_to_run = False
            self.peers[number].send(signal.SIGKILL)
        for number in numbers:
            self.peers[number].await_end()

    def stop(self, *numbers: int) -> None:
        """With SIGTERM: they depart from the ring. Raises BenchError if one does not end."""
        for number in numbers:
            self.peers[number].is_meant_to_run = False
            self.peers[number].send(signal.SIGTERM)
        for number in numbers:
            if not self.peers[number].await_end():
                raise BenchError(f"peer {number} has not ended within {STOP_S:g} s of SIGTERM")

    # Views

    async def dial(self, number: int) -> socket.socket:
        """A socket that is connected to the MQTT listener of a peer, from the place of that peer."""
        peer = self.peers[number]
        if isinstance(peer.place, Here):
            return await _connected(peer.ring_peer.mqtt)
        return await asyncio.to_thread(lambda: _connect(peer))

    async def statuses(self, numbers: Collection[int]) -> dict[int, dict[str, Any]]:
        """The status of each peer; empty if it does not answer."""
        found = await asyncio.gather(*(self._status(self.peers[number]) for number in numbers))
        return dict(zip(numbers, found, strict=True))

    async def _status(self, peer: SitePeer) -> dict[str, Any]:
        if isinstance(peer.place, Here):
            return await status_of(peer.ring_peer)
        return await asyncio.to_thread(lambda: peer.place.inside(lambda: asyncio.run(status_of(peer.ring_peer))))

    async def is_whole(self) -> bool:
        """Whether all peers are one ring by their own status."""
        statuses = await self.statuses(range(len(self.peers)))
        if not all(statuses.values()):
            return False
        ids = {Id.parse(status["id"]) for status in statuses.values()}
        return len(ids) == len(self.peers) and all(is_settled(status, ids) for status in statuses.values())


async def _connected(address: tuple[str, int]) -> socket.socket:
    line = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        line.setblocking(False)
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(CONNECT_S):
            await asyncio.get_running_loop().sock_connect(line, address)
    except BaseException:
        line.close()
        raise
    return line


def _connect(peer: SitePeer) -> socket.socket:
    """A connected socket from the place of the peer. Raises OSError."""
    line = peer.place.inside(lambda: socket.create_connection(peer.ring_peer.mqtt, CONNECT_S))
    line.setblocking(False)
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line
