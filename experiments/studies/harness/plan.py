"""The plan of one trial: the ring, the positions of publishers and subscribers, and the load. It follows from a seed.

Knows no process and no socket.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from ringmq.experiments.studies.harness.approaches import Approach
from ringmq.overlay.core.ids import ID_BITS, Id, nearness
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.replication.space import key_of_partition

PAYLOAD_BYTES: Final = 4096
SHADOWS: Final = 3
DELAY: Final = "1-10ms"
"""All three are the values of the thesis (§4.1.2, §4.1.6, §4.2.5)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """Peers that die while messages flow."""

    at_s: float
    """Seconds from the first message to the kill."""
    victims: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One trial. A peer is named by its position, from 0; a position may have a publisher and a subscriber."""

    run: str
    """Run name of its records, unique in the data folder."""
    approach: Approach
    peers: int
    publishers: tuple[int, ...]
    subscribers: tuple[int, ...]
    topics: tuple[str, ...]
    """Each publisher publishes to all topics, and each subscriber subscribes to all of them."""
    rate_hz: float
    """Messages of each publisher to each topic."""
    warm_s: float
    """Time at the same rate before the measurement, in which publishers ask for the subscriber lists."""
    measured_s: float
    seed: int
    """Determines the ids and the delays."""
    payload_bytes: int = PAYLOAD_BYTES
    shadows: int = SHADOWS
    delay: str = DELAY
    kill: Kill | None = None

    @property
    def published_hz(self) -> float:
        return self.rate_hz * len(self.publishers) * len(self.topics)

    @property
    def delivered_hz(self) -> float:
        """Deliveries a second if every message arrives."""
        return self.published_hz * len(self.subscribers)

    @property
    def messages(self) -> int:
        return round(self.published_hz * (self.warm_s + self.measured_s))

    @property
    def options(self) -> tuple[str, ...]:
        """Options on the command line of each peer."""
        return (
            *self.approach.options,
            *("--shadows", str(self.shadows)),
            *("--delay", self.delay, "--delay-seed", str(self.seed)),
            *("--timing", "local"),
        )


def topics(count: int) -> tuple[str, ...]:
    """Topics of one level: only the coordinators of a topic's partition and of the empty prefix know subscribers."""
    return tuple([f"topic-{number}" for number in range(1, count + 1)])


def client_positions(seed: int, role: str, peers: int, count: int) -> tuple[int, ...]:
    """Positions of the clients with a role, each at another peer. A higher count extends the positions of a lower."""
    positions = list(range(peers))
    Random(f"{seed} {role}").shuffle(positions)
    return tuple(positions[:count])


def ids(seed: int, peers: int) -> list[Id]:
    """Ids of the peers by position. A larger ring extends the ids of a smaller one."""
    chance = Random(f"{seed} ids")
    return [Id(chance.getrandbits(ID_BITS)) for _ in range(peers)]


def coordinators(peer_ids: Sequence[Id], names: Sequence[str]) -> tuple[int, ...]:
    """Positions of the peers that own the partitions of these topics. The keys of partitions are
    so near to those of topics that these are the roots of the trees with Scribe too, but for one topic in hundreds."""
    keys = [key_of_partition(partition_of(name)) for name in names]
    owners = {min(range(len(peer_ids)), key=lambda position: nearness(key, peer_ids[position])) for key in keys}
    return tuple(sorted(owners))
