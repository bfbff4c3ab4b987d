"""Histories of the coordinators of partitions: peers join, crash and pause, one at a time and together, while homes
register and publishers publish by the routes that they trust.

No more peers fail within the time of a repair than there are shadows: then nothing acknowledged may be lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from ringmq.experiments.simulator.network import Weather
from ringmq.experiments.simulator.replication import ReplicationPeer, ReplicationWorld
from ringmq.overlay.core.ids import Id
from ringmq.peer.messaging.config import LAN

REPAIR_S: Final = 12.0
"""After a failure, further ones count with it for this time: detection, takeover, and copies over a bad network."""
LONG_S: Final = 0.8
"""A longer pause may count as a failure."""
REQUESTS: Final = 20
"""Registrations and their ends in each round."""
STALL_S: Final = (0.2, 6.0)
"""How long a stalled peer stands still, or cannot reach some others: shorter or longer than the others take to go on
without it, and than a lease."""
UNNOTICED: Final = 0.7
"""Share of these that the ring does not notice, as with periods for distant sites."""
FAULTS: Final = ("join", "crash", "crashes", "pause", "stall", "cut", "deaf", "break")
QUIET_S: Final = 100.0
"""Above the life of a tombstone."""


@dataclass(slots=True)
class ReplicationFigures:
    """The outcome of a history."""

    joins: int = 0
    crashes: int = 0
    pauses: int = 0
    silences: int = 0
    """Peers that others went on without while the ring still listed them, counted at each of the others."""
    granted: int = 0
    """Entries that came into force."""
    publications: int = 0
    trusted: int = 0
    """Publications by routes that were trusted."""
    missed: int = 0
    """Entries in force that such a publication missed."""
    leases_lost: int = 0
    batches: int = 0
    unsettled: list[str] = field(default_factory=list)
    """Broken conditions when all was quiet."""


class ReplicationHistory:
    """Rounds of requests and faults in one world."""

    def __init__(self, seed: int, peers: int, faults: tuple[str, ...], loss: float, shadows: int) -> None:
        weather = Weather(loss=loss, duplication=loss / 2, jitter=0.5 if loss else 0.0)
        self.world = ReplicationWorld(seed, replace(LAN, shadows=shadows), weather)
        self.figures = ReplicationFigures()
        self._faults = faults
        self._peers = peers
        self._random = self.world.random
        self._failed: list[tuple[float, Id]] = []
        self._crashed: list[Id] = []

    def run(self, rounds: int) -> ReplicationFigures:
        world = self.world
        world.found(self._peers)
        self._request(2 * REQUESTS)
        world.run(5.0)
        for _ in range(rounds):
            self._request(REQUESTS)
            if self._faults:
                self._fail(self._random.choice(self._faults))
            world.run(self._random.choice((0.3, 1.5, 4.0, 6.0)))
        world.run(REPAIR_S)
        world.agree()
        world.run(QUIET_S)
        return self._summary()

    def _summary(self) -> ReplicationFigures:
        figures, checks = self.figures, self.world.checks
        figures.granted, figures.publications = checks.granted, checks.publications
        figures.trusted, figures.missed = checks.trusted, checks.missed
        figures.leases_lost = checks.leases_lost
        figures.silences = sum(peer.state.counters.silent_peers for peer in self.world.peers.values())
        figures.batches = sum(self.world.sent.values())
        figures.unsettled = list(self.world.faults_when_quiet())
        return figures

    @property
    def _awake(self) -> list[ReplicationPeer]:
        return [peer for peer in self.world.live if not peer.paused]

    def _request(self, count: int) -> None:
        for _ in range(count):
            peer = self._random.choice(self._awake)
            name = self._random.choice(self.world.checks.names)
            self.world.at(self._random.random(), peer, partial(peer.home.change, name))

    def _may_fail(self, number: int) -> bool:
        now = self.world.clock.now
        self._failed = [failed for failed in self._failed if failed[0] > now - REPAIR_S]
        shadows = self.world.config.shadows
        return len(self._failed) + number <= shadows and len(self._awake) > shadows + number

    def _note_failed(self, peer: ReplicationPeer, until_s: float = 0.0) -> None:
        self._failed.append((self.world.clock.now + until_s, peer.peer.id))

    def _fail(self, kind: str) -> None:
        random, awake = self._random, self._awake
        if kind == "join":
            self._join()
        elif kind in ("crash", "crashes"):
            number = 1 if kind == "crash" else self.world.config.shadows
            if self._may_fail(number):
                for peer in random.sample(awake, number):
                    self._note_failed(peer)
                    self._crashed.append(peer.peer.id)
                    self.figures.crashes += 1
                    self.world.crash(peer)
        elif kind == "pause":
            peer, seconds = random.choice(awake), random.uniform(0.1, 6.0)
            if seconds < LONG_S or self._may_fail(1):
                if seconds >= LONG_S:
                    self._note_failed(peer, seconds)
                self.figures.pauses += 1
                self.world.pause(peer, seconds)
        elif kind == "cut":
            peer, seconds = random.choice(awake), random.uniform(*STALL_S)
            others = [other for other in awake if other is not peer]
            if others and self._may_fail(1):
                self._note_failed(peer, seconds)
                self.world.cut(peer, random.sample(others, random.randint(1, len(others))), seconds)
        elif kind == "stall":
            peer, seconds = random.choice(awake), random.uniform(*STALL_S)
            if self._may_fail(1):
                self._note_failed(peer, seconds)
                self.figures.pauses += 1
                self.world.pause(peer, seconds, noticed=random.random() < UNNOTICED)
        elif len(awake) > 1:
            for _ in range(3):
                sender, receiver = random.sample(awake, 2)
                if kind == "deaf":
                    self.world.deafen(sender, receiver, random.uniform(0.0, 5.0))
                else:
                    self.world.break_stream(sender, receiver)

    def _join(self) -> None:
        if self._crashed and self._random.random() < 0.4:
            self.world.join(self._crashed.pop())
        elif len(self.world.live) < 2 * self._peers:
            self.world.join()
        else:
            return
        self.figures.joins += 1


def replication(
    seed: int, peers: int = 5, rounds: int = 12, faults: tuple[str, ...] = FAULTS, loss: float = 0.0, shadows: int = 2
) -> ReplicationFigures:
    """One history. Raises MissedError if a publication by trusted routes misses an entry in force."""
    return ReplicationHistory(seed, peers, faults, loss, shadows).run(rounds)
