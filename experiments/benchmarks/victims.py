"""Who is killed in a run of `kill`, and where its clients are. Knows ids and places, no process and no socket."""

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
from ringmq.peer.messaging.partitions import key_of_place

TOPICS: Final = 5
"""Of each run. The first is the one whose peers are killed."""
SUBSCRIBERS: Final = 6
"""Peers with subscribers of the first topic that live on."""
OTHER_SUBSCRIBERS: Final = 3
"""Of each of the other topics."""
WILDCARDS: Final = 2
"""Peers with subscribers of all topics of the run."""
PUBLISHERS: Final = 5
LEAST_PEERS: Final = 8
TRIES: Final = 1000


class Kind(StrEnum):
    COORDINATOR = "coordinator"
    OWNERS = "owners"
    """The coordinator and all but one of its shadows."""
    INTERIOR = "interior"
    """A subscriber that passes messages on in a tree."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Who has a part in a run; peers by their place in the ring's list."""

    run: int
    kind: Kind
    victims: tuple[int, ...]
    publishers: tuple[int, ...]
    subscribers: tuple[tuple[int, ...], ...]
    """Those of each topic, without the victims."""
    wildcards: tuple[int, ...]
    bystanders: tuple[int, ...]
    """All but the victims."""

    def topic(self, number: int) -> str:
        return f"kill/{self.run}/{number}"

    @property
    def all_topics(self) -> str:
        return f"kill/{self.run}/#"

    @property
    def fresh(self) -> list[int]:
        """Those that live and do not publish."""
        return [one for one in self.bystanders if one not in self.publishers]


def cast(run: int, kind: Kind, ids: Sequence[Id], choice: Choice, shadows: int, seed: int) -> Cast:
    """Draw who has which part. Raises BenchError when a tree has nobody to be killed."""
    rng = Random(f"{seed} {run} {kind}")
    for _ in range(TRIES):
        drawn = _draw(run, kind, ids, choice, shadows, rng)
        if drawn is not None:
            return drawn
    raise BenchError(f"no subscriber passes messages on with {choice.name} dispatching and fan-out {choice.fanout}")


def _draw(run: int, kind: Kind, ids: Sequence[Id], choice: Choice, shadows: int, rng: Random) -> Cast | None:
    topic = f"kill/{run}/0"
    key = key_of_place(topic)
    everyone = list(range(len(ids)))
    owners = sorted(everyone, key=lambda one: nearness(key, ids[one]))[: shadows + 1]
    victims = owners[:1] if kind is Kind.COORDINATOR else owners[: max(1, shadows)]
    rest = [one for one in everyone if kind is Kind.INTERIOR or one not in victims]
    publishers = rng.sample(rest, PUBLISHERS)
    wildcards = rng.sample(rest, WILDCARDS)
    subscribers = [rng.sample(rest, SUBSCRIBERS)]
    subscribers += [rng.sample(rest, OTHER_SUBSCRIBERS) for _ in range(TOPICS - 1)]
    if kind is Kind.INTERIOR:
        among = sorted({*subscribers[0], *wildcards}, key=lambda one: ids[one])
        inner = {one for origin in publishers for one in passing_on(ids, origin, among, choice, topic)}
        inner -= {*publishers, *owners}
        if not inner:
            return None
        victims = [rng.choice(sorted(inner))]
    bystanders = tuple(one for one in everyone if one not in victims)
    return Cast(
        run=run,
        kind=kind,
        victims=tuple(victims),
        publishers=tuple(publishers),
        subscribers=tuple(tuple(one for one in some if one not in victims) for some in subscribers),
        wildcards=tuple(one for one in wildcards if one not in victims),
        bystanders=bystanders,
    )


@dataclass(frozen=True, slots=True)
class _Leaf:
    id: int
    number: int


def passing_on(ids: Sequence[Id], origin: int, subscribers: Sequence[int], choice: Choice, topic: str) -> set[int]:
    """The subscribers that send a message of `origin` on to others."""
    leaves = [_Leaf(ids[one], one) for one in subscribers]
    if choice.name == "direct" or len(leaves) <= choice.fanout:
        return set()
    planner = algorithm(choice.name)
    found: set[int] = set()
    hops: list[Hop[_Leaf]] = list(planner.first_hops(ids[origin], leaves, choice.fanout, key_of(topic)))
    while hops:
        hop = hops.pop()
        if hop.part:
            found.add(hop.to.number)
            hops += planner.next_hops(hop.part, choice.fanout)
    return found
