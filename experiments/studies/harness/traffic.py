"""The messages of a trial as its load generator saw them: times of publication, and arrivals at each subscriber.

Owns the counting. Knows no socket and no clock; times are seconds since the first message was due.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

KEEPS_UP_S: Final = 0.25
"""Limit of the 99th percentile of the latency. A trial beyond it measures the machine: the emulated delays of a message
add up to some ten milliseconds."""
PERCENT: Final = 99


@dataclass(slots=True)
class Arrivals:
    """Messages that arrived at one subscriber: their numbers and times."""

    position: int
    numbers: array[int] = field(default_factory=lambda: array("L"))
    times: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class Traffic:
    """All messages of one trial. The number of a message is its index in `published_at`."""

    published_at: array[float] = field(default_factory=lambda: array("d"))
    publishers: array[int] = field(default_factory=lambda: array("L"))
    """For each message, the position of the peer where it was published."""
    arrivals: list[Arrivals] = field(default_factory=list)

    @property
    def published(self) -> int:
        return len(self.published_at)

    @property
    def arrived(self) -> int:
        """Arrivals at all subscribers, including duplicates."""
        return sum(len(arrivals.numbers) for arrivals in self.arrivals)


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts over all subscribers."""

    published: int
    wanted: int
    """Deliveries if every message had reached every subscriber."""
    received: int
    """Deliveries without duplicates."""
    twice: int
    p50_s: float
    p99_s: float
    """Percentiles of the latency from the publishing client to the subscribing client, including their connections."""

    @property
    def missed(self) -> int:
        return self.wanted - self.received

    @property
    def keeps_up(self) -> bool:
        """Whether the machine was fast enough for the load of the trial."""
        return self.p99_s <= KEEPS_UP_S


def counts(traffic: Traffic, since_s: float = 0.0) -> Counts:
    """Counts of all messages, with the latencies of messages that were published at `since_s` or later."""
    received = {arrivals.position: set(arrivals.numbers) for arrivals in traffic.arrivals}
    distinct = sum(map(len, received.values()))
    late = sorted(latencies(traffic, since_s))
    return Counts(
        published=traffic.published,
        wanted=traffic.published * len(traffic.arrivals),
        received=distinct,
        twice=traffic.arrived - distinct,
        p50_s=percentile(late, 50),
        p99_s=percentile(late, PERCENT),
    )


def latencies(traffic: Traffic, since_s: float = 0.0) -> Iterable[float]:
    """Latency of every arrival, including duplicates."""
    sent = traffic.published_at
    for arrivals in traffic.arrivals:
        for number, at in zip(arrivals.numbers, arrivals.times, strict=True):
            if sent[number] >= since_s:
                yield at - sent[number]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Percentile of sorted values; 0 without values."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0
