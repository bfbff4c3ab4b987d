"""What one trial is to be: the ring, who publishes and subscribes where, how much. All of it follows from a seed.

Knows no process and no socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from ringmq.experiments.studies.harness.approaches import Approach
from ringmq.overlay.core.ids import ID_BITS, Id, nearness
from ringmq.peer.messaging.partitions import key_of_place

PAYLOAD_BYTES: Final = 4096
SHADOWS: Final = 3
DELAY: Final = "1-10ms"
"""All three as in the thesis (§4.1.2, §4.1.6, §4.2.5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Peers that die while messages flow."""

    at_s: float
    """After the first message."""
    victims: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One trial. Peers by their place, from 0; a place in both lists has a client for each."""

    run: str
    """What its records are told by: no other trial in the same data folder has it."""
    approach: Approach
    peers: int
    publishers: tuple[int, ...]
    subscribers: tuple[int, ...]
    topics: tuple[str, ...]
    """Each publisher publishes to all, each subscriber subscribes to all."""
    rate_hz: float
    """Messages of each publisher to each topic."""
    warm_s: float
    """At the same rate, before anything is measured: publishers have found the subscribers by then."""
    measured_s: float
    seed: int
    """Of the ids and the delays."""
    payload_bytes: int = PAYLOAD_BYTES
    shadows: int = SHADOWS
    delay: str = DELAY
    kill: Kill | None = None

    @property
    def published_hz(self) -> float:
        return self.rate_hz * len(self.publishers) * len(self.topics)

    @property
    def delivered_hz(self) -> float:
        """When all arrives."""
        return self.published_hz * len(self.subscribers)

    @property
    def messages(self) -> int:
        return round(self.published_hz * (self.warm_s + self.measured_s))

    @property
    def options(self) -> tuple[str, ...]:
        """On the command line of each peer."""
        return (
            *self.approach.options,
            *("--shadows", str(self.shadows)),
            *("--delay", self.delay, "--delay-seed", str(self.seed)),
            *("--timing", "local"),
        )


def topics(count: int) -> tuple[str, ...]:
    """Of one level, so that a topic has one coordinator beside that of the filters for everything."""
    return tuple([f"topic-{number}" for number in range(1, count + 1)])


def spread(seed: int, what: str, peers: int, count: int) -> tuple[int, ...]:
    """Where so many clients are, each at a peer of its own. A higher count has the places of a lower one, too."""
    places = list(range(peers))
    Random(f"{seed} {what}").shuffle(places)
    return tuple(places[:count])


def ids(seed: int, peers: int) -> list[Id]:
    """Of the peers, in the order of their places. A larger ring has those of a smaller one, too."""
    chance = Random(f"{seed} ids")
    return [Id(chance.getrandbits(ID_BITS)) for _ in range(peers)]


def coordinators(points: Sequence[Id], names: Sequence[str]) -> tuple[int, ...]:
    """The places of the peers that own these topics; with Scribe they are its roots."""
    keys = [key_of_place(name) for name in names]
    owners = {min(range(len(points)), key=lambda place: nearness(key, points[place])) for key in keys}
    return tuple(sorted(owners))
