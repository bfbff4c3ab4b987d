"""The compared systems: a ring of this version, a ring of another version, and Mosquittos joined by bridges.

All servers of a system share one core.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringmq.experiments.load import reachability
from ringmq.experiments.load.raw_clients import Address
from ringmq.experiments.processes import sides
from ringmq.experiments.processes.checkouts import Checkout, environment, ring_of
from ringmq.experiments.processes.peers import Ring
from ringmq.experiments.processes.servers import Server

MOSQUITTO: Final = "mosquitto"


@dataclass(frozen=True, slots=True)
class System:
    """Running servers of one kind."""

    name: str
    ring: Ring | None
    """None for servers that are not RingMQ."""
    others: tuple[Server, ...] = ()

    @property
    def servers(self) -> list[Server]:
        """All live servers."""
        return list(self.others) if self.ring is None else [peer.server for peer in self.ring.alive]

    @property
    def pids(self) -> list[int]:
        return [server.pid for server in self.servers]

    @property
    def addresses(self) -> list[Address]:
        return [server.address for server in self.servers]

    def address(self, number: int) -> Address:
        """The address of a server; with fewer servers, clients of several numbers share one."""
        addresses = self.addresses
        return addresses[number % len(addresses)]


@dataclass(frozen=True, slots=True)
class Source:
    """How a system is started."""

    name: str
    checkout: Checkout | None = None
    """None for Mosquitto."""

    @contextmanager
    def opened(self, count: int, options: tuple[str, ...], core: int, bytecode: Path, seed: int) -> Iterator[System]:
        """Start `count` servers as one. Raises BenchError."""
        if self.checkout is None:
            with sides.joined("bridged", count, core) as servers:
                reachability.check([server.address for server in servers])
                yield System(self.name, None, tuple(servers))
            return
        with ring_of(self.checkout, count, core, environment(bytecode, seed), options) as ring:
            yield System(self.name, ring)
