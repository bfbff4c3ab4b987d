"""Sweep over the nodes with subscribers (§4.2.1 of the thesis): from a quarter of the ring to all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringmq.experiments.studies.harness.approaches import DIRECT, guided
from ringmq.experiments.studies.harness.figures import Claim, Measure, Statistic
from ringmq.experiments.studies.harness.outcome import Outcome, Request
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL, Level, Sweep, TrialSize, conduct

SOURCE: Final = "§4.2.1"


def _levels(size: TrialSize, *percents: int) -> tuple[Level, ...]:
    return tuple(
        [Level(f"{percent} %", replace(size, subscribers=round(size.peers * percent / 100))) for percent in percents]
    )


SWEEP: Final = Sweep(
    name="subscribers",
    title="More subscribers",
    axis="nodes with a subscriber of all topics, % of all nodes",
    full=_levels(FULL, 25, 50, 75, 100),
    quick=_levels(SMALL, 50, 100),
    claims=(
        Claim(SOURCE, DIRECT, Measure.LATENCY, Statistic.MAXIMUM, 14),
        Claim(SOURCE, DIRECT, Measure.LATENCY, Statistic.SPREAD, 11),
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Statistic.MAXIMUM, 40),
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Statistic.SPREAD, 31),
    ),
)


def run(request: Request) -> Outcome:
    """Run the sweep."""
    return conduct(SWEEP, request)
