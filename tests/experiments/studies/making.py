"""Made-up plans, trials and rows for tests."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringmq.experiments.studies.harness.approaches import DIRECT
from ringmq.experiments.studies.harness.outcome import Request
from ringmq.experiments.studies.harness.plan import Plan
from ringmq.experiments.studies.harness.traffic import Arrivals, Traffic
from ringmq.experiments.studies.harness.trial import Trial


def plan(**changes: Any) -> Plan:
    """A plan with three peers, a publisher at one and subscribers at two, unless changed."""
    usual: dict[str, Any] = {
        "run": "made-up",
        "approach": DIRECT,
        "peers": 3,
        "publishers": (0,),
        "subscribers": (1, 2),
        "topics": ("topic-1", "topic-2"),
        "rate_hz": 10.0,
        "warm_s": 0.0,
        "measured_s": 1.0,
        "seed": 1,
    }
    return Plan(**usual | changes)


def traffic(
    publishers: Iterable[int],
    published_at: Iterable[float],
    arrivals: Sequence[tuple[int, Sequence[tuple[int, float]]]],
) -> Traffic:
    """Messages by the positions of their publishers and their times.

    A subscriber is its position with the (number, time) pairs of its arrivals.
    """
    observed = Traffic(array("d", published_at), array("L", publishers))
    for position, came in arrivals:
        numbers, times = [number for number, _ in came], [at for _, at in came]
        observed.arrivals.append(Arrivals(position, array("L", numbers), array("d", times)))
    return observed


def steady(
    messages: int, every_s: float, publishers: Sequence[int], subscribers: Sequence[int], latency_s: float = 0.01
) -> Traffic:
    """Publishers take turns, and every message reaches every subscriber."""
    times = [number * every_s for number in range(messages)]
    came = [(number, at + latency_s) for number, at in enumerate(times)]
    rotation = [publishers[number % len(publishers)] for number in range(messages)]
    return traffic(rotation, times, [(position, came) for position in subscribers])


def trial(of: Plan | None = None, observed: Traffic | None = None, killed_s: float | None = None) -> Trial:
    """A trial in which every message reached every subscriber, unless other traffic is given."""
    of = of or plan()
    if observed is None:
        observed = steady(of.messages, 1 / of.published_hz, of.publishers, of.subscribers)
    return Trial(plan=of, traffic=observed, ready_s=1.0, killed_s=killed_s, records=7)


def box(run: str, measure: str, maximum: float, deviation: float, **cells: Any) -> dict[str, Any]:
    """A row of the collector's table `boxes`."""
    usual = dict.fromkeys(("minimum", "quartile_1", "median", "quartile_3", "mean"), maximum / 2)
    usual |= {"low_whisker": maximum / 4, "high_whisker": maximum, "maximum": maximum, "deviation": deviation}
    return {"run": run, "dispatching": "direct", "measure": measure, **usual, "outliers": [maximum], **cells}


@dataclass
class ProgressLog:
    """Remembers all calls of a progress."""

    steps: int = 0
    done: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def begin(self, steps: int) -> None:
        self.steps = steps

    def step(self, done: str) -> None:
        self.done.append(done)

    def say(self, text: str) -> None:
        self.said.append(text)


def request(folder: Path, quick: bool = True, seed: int = 1) -> tuple[Request, ProgressLog]:
    progress = ProgressLog()
    return Request(folder=folder, quick=quick, seed=seed, progress=progress), progress
