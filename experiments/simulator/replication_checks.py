"""Checks of a simulated replication: whether a publication by trusted routes misses a home whose entry is in force."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TYPE_CHECKING

from ringmq.mqtt_front.iteration import Clock
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.names import fingerprint_of, partition_of_filter
from ringmq.peer.messaging.config import PubSubConfig

if TYPE_CHECKING:
    from ringmq.experiments.simulator.replication_models import ModelHome

Route = tuple[int, Peer]


class MissedError(AssertionError):
    """A publication missed a home whose entry was in force."""


class PublicationChecks:
    """Knows all entries in force. Raises, or counts, publications that miss one."""

    def __init__(self, clock: Clock, config: PubSubConfig, random: Random, names: int) -> None:
        self.clock = clock
        self.config = config
        self.random = random
        # Exact filters, and some below a wildcard: they live in partitions of their own.
        self.names = [f"topic/{number}" if number % 4 else f"topic/{number}/+" for number in range(names)]
        self.partition_of = {name: partition_of_filter(name) for name in self.names}
        self.partitions = sorted(set(self.partition_of.values()))
        self.in_force: dict[int, dict[Route, str]] = {partition: {} for partition in self.partitions}
        self.silent: dict[Peer, float] = {}
        self.strict = True
        self.publications = 0
        self.trusted = 0
        self.missed = 0
        self.granted = 0
        self.leases_lost = 0

    def comes_into_force(self, home: Peer, name: str) -> None:
        self.granted += 1
        self.in_force[self.partition_of[name]][fingerprint_of(name), home] = name

    def ends(self, home: Peer, name: str) -> None:
        self.in_force[self.partition_of[name]].pop((fingerprint_of(name), home), None)

    def crashed(self, home: Peer) -> None:
        for routes in self.in_force.values():
            for route in [route for route in routes if route[1] == home]:
                del routes[route]

    def paused(self, home: Peer, seconds: float) -> None:
        if seconds >= self.config.entry_s * 0.7:
            # Its last renewal may be a fifth of the lease ago.
            self.crashed(home)

    def published(self, publisher: Peer, partition: int, routes: set[Route] | None) -> None:
        """A publication with trusted routes, or None if it must wait for them."""
        self.publications += 1
        if routes is None:
            return
        self.trusted += 1
        missed = [(route, name) for route, name in self.in_force[partition].items() if route not in routes]
        if missed:
            self.missed += len(missed)
            if self.strict:
                names = [(name, home.id.short()) for (_, home), name in missed]
                raise MissedError(f"{publisher.id.short()} misses {names} in partition {partition}")

    def not_in_force(self, homes: Iterable[ModelHome]) -> Iterable[str]:
        for home in homes:
            for name in home.wanted:
                if (fingerprint_of(name), home.me) not in self.in_force[self.partition_of[name]]:
                    yield f"{name} of {home.me.id.short()} is not in force"
