"""Figures of a run of publish and subscribe, and totals of several runs."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    longest_suback_s: float
    losses: dict[str, int]
    """Excused losses by kind: pairs of a message and a subscription."""
    counters: dict[str, int]
    digest: int
    events: int
    events_per_s: float


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
    longest_suback_s: float = 0.0
    events: int = 0
    losses: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)

    def add(self, figures: PubSubFigures) -> None:
        self.held += 1
        for name in ("messages", "subscriptions", "deliveries", "joins", "crashes", "pauses", "events"):
            setattr(self, name, getattr(self, name) + getattr(figures, name))
        self.longest_suback_s = max(self.longest_suback_s, figures.longest_suback_s)
        for sums, more in ((self.losses, figures.losses), (self.counters, figures.counters)):
            for name, count in more.items():
                sums[name] = sums.get(name, 0) + count
