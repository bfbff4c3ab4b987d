"""What a load generator saw of a trial: what it published when, and what came to each subscriber when.

Owns the counting. Knows no socket and no clock: times are seconds since the first message was due.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

KEEPS_UP_S: Final = 0.25
"""A machine that takes longer than this for one message in a hundred measures itself: the emulated ways of a message
take some ten milliseconds."""
PERCENT: Final = 99


@dataclass(slots=True)
class Arrivals:
    """What came to one subscriber: numbers of messages, and when."""

    place: int
    numbers: array[int] = field(default_factory=lambda: array("L"))
    times: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class Traffic:
    """All of one trial. The number of a message is its place in `published_at`."""

    published_at: array[float] = field(default_factory=lambda: array("d"))
    publishers: array[int] = field(default_factory=lambda: array("L"))
    """Of each message the place of the peer where it was published."""
    arrivals: list[Arrivals] = field(default_factory=list)

    @property
    def published(self) -> int:
        return len(self.published_at)

    @property
    def arrived(self) -> int:
        """With what came twice."""
        return sum(len(one.numbers) for one in self.arrivals)


@dataclass(frozen=True, slots=True)
class Counts:
    """Of all subscribers together."""

    published: int
    wanted: int
    """Deliveries, if all had come to all."""
    received: int
    """Of those, each once."""
    twice: int
    p50_s: float
    p99_s: float
    """From the publishing client to the subscribed one, through both of their connections."""

    @property
    def missed(self) -> int:
        return self.wanted - self.received

    @property
    def keeps_up(self) -> bool:
        """Whether the machine had the time for all that was asked of it."""
        return self.p99_s <= KEEPS_UP_S


def counts(traffic: Traffic, since_s: float = 0.0) -> Counts:
    """What came of what was sent; latencies of what was published since then."""
    received = {one.place: set(one.numbers) for one in traffic.arrivals}
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
    """Of all that came, each time it came."""
    sent = traffic.published_at
    for one in traffic.arrivals:
        for number, at in zip(one.numbers, one.times, strict=True):
            if sent[number] >= since_s:
                yield at - sent[number]


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Of sorted values; of none it is 0."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0
