"""Figures of a run of publish and subscribe, and totals of several runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, slots=True)
class PubSubFigures:
    """Figures of one run without a broken invariant."""

    nodes: int
    seed: int
    trouble: str
    messages: int
    subscriptions: int
    deliveries: int
    joins: int
    crashes: int
    pauses: int
    races: int
    """SUBACKs with publications of other peers at that moment."""
    checked: dict[str, int]
    """Comparisons of the checks by kind."""
    longest_suback_s: float
    longest_puback_s: float
    losses: dict[str, int]
    """Excused losses by kind: pairs of a message and a subscription."""
    counters: dict[str, int]
    digest: int
    events: int
    events_per_s: float
    cpu_s: float
    """Time of the processor, checks included."""


SUMMED: Final = (
    "messages", "subscriptions", "deliveries", "joins", "crashes", "pauses", "races", "events", "cpu_s",
)  # fmt: skip


@dataclass(slots=True)
class Total:
    """Totals of several runs."""

    held: int = 0
    """Runs without a broken invariant."""
    messages: int = 0
    subscriptions: int = 0
    deliveries: int = 0
    joins: int = 0
    crashes: int = 0
    pauses: int = 0
    races: int = 0
    longest_suback_s: float = 0.0
    longest_puback_s: float = 0.0
    events: int = 0
    cpu_s: float = 0.0
    checked: dict[str, int] = field(default_factory=dict)
    losses: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)

    def add(self, figures: PubSubFigures) -> None:
        self.held += 1
        for name in SUMMED:
            setattr(self, name, getattr(self, name) + getattr(figures, name))
        self.longest_suback_s = max(self.longest_suback_s, figures.longest_suback_s)
        self.longest_puback_s = max(self.longest_puback_s, figures.longest_puback_s)
        added = ((self.checked, figures.checked), (self.losses, figures.losses), (self.counters, figures.counters))
        for sums, more in added:
            for name, count in more.items():
                sums[name] = sums.get(name, 0) + count
