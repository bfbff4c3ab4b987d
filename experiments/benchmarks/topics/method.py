"""Sizes and durations of the patterns. Knows no process."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class TopicsPattern(StrEnum):
    """The patterns, in the order in which they are measured."""

    NEW = "new"
    AGAIN = "again"
    WILD = "wild"
    DEEP = "deep"
    FILTERS = "filters"
    CHURN = "churn"
    REQUEST = "request"
    CONNECTS = "connects"
    RETAINED = "retained"
    TAKEOVER = "takeover"


class Fault(StrEnum):
    """Events of the pattern `takeover`."""

    KILL = "kill"
    STOP = "stop"
    SILENT = "silent"
    """One peer is stopped, a coordinator and a shadow of many topics, while some messages are retained."""
    JOIN = "join"
    LEAVE = "leave"


class Third(StrEnum):
    """The coordinator that is concerned after its two neighbouring victims."""

    NEIGHBOUR = "neighbour"
    """The next neighbour, which takes over from them: with two shadows, all copies of a subscription are lost unless it
    has made new ones."""
    APART = "apart"
    """A coordinator on the other side of the ring: of nine peers, no topic has more than two victims among the peers
    that keep its subscriptions."""


COUNTS: Final = {
    TopicsPattern.NEW: 50_000,
    TopicsPattern.AGAIN: 50_000,
    TopicsPattern.WILD: 20_000,
    TopicsPattern.DEEP: 2_000,
    TopicsPattern.FILTERS: 20_000,
    TopicsPattern.CHURN: 2_000,
    TopicsPattern.REQUEST: 1_000,
    TopicsPattern.CONNECTS: 3_000,
    TopicsPattern.RETAINED: 20_000,
    TopicsPattern.TAKEOVER: 10_000,
}
"""Units of each pattern by default: topics, filters, pairs of packets, requests or clients."""
PEERS: Final = {TopicsPattern.WILD: 1, TopicsPattern.TAKEOVER: 9}
USUAL_PEERS: Final = 3
CLIENTS: Final = {
    TopicsPattern.WILD: (1000,),
    TopicsPattern.FILTERS: (10,),
    TopicsPattern.CHURN: (1, 100),
    TopicsPattern.CONNECTS: (10,),
}
"""Clients of a pattern by default. Those of `churn` are measured one number after the other."""
LEAST_TAKEOVER_PEERS: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsMethod:
    """How a pattern is measured."""

    count: int = 0
    clients: tuple[int, ...] = (1,)
    qos: int = 1
    levels: tuple[int, ...] = (10, 100)
    filters: int = 100_000
    """Filters of the ring in `takeover`."""
    rate_hz: float = 2000.0
    """Messages a second in `takeover`."""
    fault: Fault = Fault.KILL
    third: Third = Third.NEIGHBOUR
    load_s: float = 10.0
    """Duration of the load of `takeover` after its fault, and of each half of `deep` with other clients."""
    pause_s: float = 20.0
    """Pause before `again`."""
    rest_s: float = 5.0
    """Duration of a measurement at rest."""
    settle_s: float = 2.0
    """Pause before a measurement at rest."""
    timeout_s: float = 60.0
    """Longest duration of each work."""
    data: bool = False
    """Whether the peer of `retained` has a data folder, and is killed."""
    seed: int = 1


def method_of(
    pattern: TopicsPattern,
    count: int | None,
    clients: int | None,
    each: int | None,
    qos: int | None,
    usual: TopicsMethod,
) -> TopicsMethod:
    """The method of a pattern, with its defaults for everything that is None."""
    several = CLIENTS.get(pattern, (1,)) if clients is None else (clients,)
    units = COUNTS[pattern] if count is None else count
    if each is not None and pattern is TopicsPattern.FILTERS:
        units = several[0] * each
    if qos is None:
        qos = 0 if pattern is TopicsPattern.WILD else 1
    return replace(usual, count=units, clients=several, qos=qos)
