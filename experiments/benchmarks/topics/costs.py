"""Figures of the patterns: processor time of a unit, its ratio to a message to a topic in use, memory, time at rest.

Knows no process and no socket.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from ringmq.experiments.load.tally import percentile

BUSY: Final = 0.9
"""Share of a core from which on it counts as busy."""
PERCENTS: Final = (50, 99, 99.9)


@dataclass(slots=True)
class Work:
    """Equal units of work, from an idle server to an idle server."""

    name: str
    wanted: int
    """Units that were planned."""
    done: int = 0
    """Units that were complete at the end, or at the timeout."""
    seconds: float = 0.0
    cpu_s: float = 0.0
    """Processor time of all servers."""
    generator_s: float = 0.0
    """Processor time of the load generator."""
    waited_s: float = 0.0
    """Time in which other processes kept the servers, or the load generator, from their cores."""
    latencies_s: list[float] = field(default_factory=list)
    ends_when_quiet: bool = False
    """Whether the end is the moment when the servers are idle again, as no answer marks it."""

    @property
    def cpu_us(self) -> float:
        """Microseconds of a unit, summed over all servers."""
        return 1e6 * self.cpu_s / self.done if self.done else math.nan

    @property
    def rate_hz(self) -> float:
        return self.done / self.seconds if self.seconds else math.nan

    @property
    def complete(self) -> bool:
        return self.done >= self.wanted

    @property
    def waited(self) -> float:
        """The share of the time in which other processes had a core."""
        return self.waited_s / self.seconds if self.seconds else 0.0

    @property
    def generator_bound(self) -> bool:
        """Whether the load generator had no time left while the servers had, so that their rate is higher."""
        if not self.seconds:
            return False
        return self.generator_s / self.seconds >= BUSY and self.cpu_s / self.seconds < BUSY

    def percentile_s(self, percent: float) -> float:
        return percentile(sorted(self.latencies_s), percent)

    def figures(self, reference: Work) -> dict[str, float | None]:
        found = {
            "units": self.done,
            "wanted": self.wanted,
            "seconds": self.seconds,
            "rate_hz": self.rate_hz,
            "cpu_us": self.cpu_us,
            "ratio": self.cpu_us / reference.cpu_us if reference.done else math.nan,
            "waited_share": self.waited,
            "generator_share": self.generator_s / self.seconds if self.seconds else math.nan,
        }
        if self.latencies_s:
            found |= {f"latency_p{percent:g}_ms": 1000 * self.percentile_s(percent) for percent in PERCENTS}
            found["latency_max_ms"] = 1000 * max(self.latencies_s)
        return {name: None if math.isnan(value) else value for name, value in found.items()}


@dataclass(slots=True)
class Reading:
    """One pattern at the servers of one side."""

    reference: Work
    """QoS 1 messages to a topic in use, with a subscriber at another server."""
    works: list[Work] = field(default_factory=list)
    extra: dict[str, float] = field(default_factory=dict)
    """Further figures of the pattern; their names have the unit."""
    rest_before: float = math.nan
    """Cores that all servers together use at rest."""
    rest_after: float = math.nan
    """A pattern that goes on after its units sets it itself, and `memory_after` as well."""
    memory_before: int = 0
    memory_after: int = 0
    units: int = 0
    """Units that the memory is divided by."""
    lost: int = 0
    """Acknowledged messages that never came."""
    faults: list[str] = field(default_factory=list)
    """Descriptions of the first faults."""
    broken_off: bool = False
    """Whether the pattern ended early, with the reason as the last fault."""

    @property
    def unit_bytes(self) -> float:
        """Memory of a unit, summed over all servers."""
        return (self.memory_after - self.memory_before) / self.units if self.units else math.nan

    def figures(self) -> dict[str, object]:
        shown = {
            "rest_before_cores": self.rest_before,
            "rest_after_cores": self.rest_after,
            "memory_before_bytes": self.memory_before,
            "memory_after_bytes": self.memory_after,
            "unit_bytes": self.unit_bytes,
        }
        return {
            "reference": self.reference.figures(self.reference),
            "works": {work.name: work.figures(self.reference) for work in self.works},
            **{name: None if math.isnan(value) else value for name, value in (shown | self.extra).items()},
        }
