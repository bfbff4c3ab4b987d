"""Victims of a run of `kill`, and the positions of its clients. Knows ids and positions, no process and no socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Final

from ringmq.dispatching.algorithms import Choice, algorithm
from ringmq.dispatching.plan import Hop
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.overlay.core.ids import Id, key_of, nearness
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.replication.space import key_of_partition

TOPICS: Final = 5
"""Topics of a run. The victims have a role for the first topic."""
SUBSCRIBERS: Final = 6
"""Peers with a subscriber of the first topic, before the choice of an interior victim among them."""
OTHER_SUBSCRIBERS: Final = 3
"""Peers with a subscriber of another topic, for each of the other topics."""
WILDCARDS: Final = 2
"""Peers with subscribers of all topics of the run."""
PUBLISHERS: Final = 5
LEAST_PEERS: Final = 8
TRIES: Final = 1000


class Kind(StrEnum):
    COORDINATOR = "coordinator"
    OWNERS = "owners"
    """The coordinator and all of its shadows except one."""
    INTERIOR = "interior"
    """A subscriber that relays messages in a tree."""


@dataclass(frozen=True, slots=True)
class KillPlan:
    """Victims and clients of a run. Peers are named by their positions in the list of the ring."""

    run: int
    kind: Kind
    victims: tuple[int, ...]
    publishers: tuple[int, ...]
    subscribers: tuple[tuple[int, ...], ...]
    """Positions of the subscribers of each topic, without victims."""
    wildcards: tuple[int, ...]
    """Positions of subscribers of all topics, without victims."""
    bystanders: tuple[int, ...]
    """All peers except the victims."""

    def topic(self, number: int) -> str:
        return f"kill/{self.run}/{number}"

    @property
    def all_topics(self) -> str:
        return f"kill/{self.run}/#"

    @property
    def fresh(self) -> list[int]:
        """Bystanders without a publisher."""
        return [peer for peer in self.bystanders if peer not in self.publishers]


def draw_plan(run: int, kind: Kind, ids: Sequence[Id], choice: Choice, shadows: int, seed: int) -> KillPlan:
    """Draw the plan of a run. Raises BenchError if no tree has an interior victim."""
    rng = Random(f"{seed} {run} {kind}")
    for _ in range(TRIES):
        drawn = _draw(run, kind, ids, choice, shadows, rng)
        if drawn is not None:
            return drawn
    raise BenchError(f"no subscriber relays messages with {choice.name} dispatching and fan-out {choice.fanout}")


def _draw(run: int, kind: Kind, ids: Sequence[Id], choice: Choice, shadows: int, rng: Random) -> KillPlan | None:
    topic = f"kill/{run}/0"
    key = key_of_partition(partition_of(topic))
    peers = list(range(len(ids)))
    owners = sorted(peers, key=lambda peer: nearness(key, ids[peer]))[: shadows + 1]
    victims = owners[:1] if kind is Kind.COORDINATOR else owners[: max(1, shadows)]
    rest = [peer for peer in peers if kind is Kind.INTERIOR or peer not in victims]
    publishers = rng.sample(rest, PUBLISHERS)
    wildcards = rng.sample(rest, WILDCARDS)
    subscribers = [rng.sample(rest, SUBSCRIBERS)]
    subscribers += [rng.sample(rest, OTHER_SUBSCRIBERS) for _ in range(TOPICS - 1)]
    if kind is Kind.INTERIOR:
        tree = sorted({*subscribers[0], *wildcards}, key=lambda peer: ids[peer])
        inner = {relay for origin in publishers for relay in relays(ids, origin, tree, choice, topic)}
        inner -= {*publishers, *owners}
        if not inner:
            return None
        victims = [rng.choice(sorted(inner))]
    bystanders = tuple(peer for peer in peers if peer not in victims)
    return KillPlan(
        run=run,
        kind=kind,
        victims=tuple(victims),
        publishers=tuple(publishers),
        subscribers=tuple(tuple(peer for peer in of_topic if peer not in victims) for of_topic in subscribers),
        wildcards=tuple(peer for peer in wildcards if peer not in victims),
        bystanders=bystanders,
    )


@dataclass(frozen=True, slots=True)
class _Leaf:
    id: int
    number: int


def relays(ids: Sequence[Id], origin: int, subscribers: Sequence[int], choice: Choice, topic: str) -> set[int]:
    """The subscribers that relay a message of `origin` to other subscribers."""
    leaves = [_Leaf(ids[subscriber], subscriber) for subscriber in subscribers]
    if choice.name == "direct" or len(leaves) <= choice.fanout:
        return set()
    planner = algorithm(choice.name)
    relaying: set[int] = set()
    hops: list[Hop[_Leaf]] = list(planner.first_hops(ids[origin], leaves, choice.fanout, key_of(topic)))
    while hops:
        hop = hops.pop()
        if hop.part:
            relaying.add(hop.to.number)
            hops += planner.next_hops(hop.part, choice.fanout)
    return relaying
