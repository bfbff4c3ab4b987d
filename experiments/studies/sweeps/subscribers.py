"""More and more nodes with subscribers (§4.2.1 of the thesis): a quarter of the ring, then all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringmq.experiments.studies.harness.approaches import DIRECT, guided
from ringmq.experiments.studies.harness.figures import Claim, Measure, Of
from ringmq.experiments.studies.harness.outcome import Outcome, Request
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL, Level, Size, Sweep, conduct

SOURCE: Final = "§4.2.1"


def _levels(size: Size, *percents: int) -> tuple[Level, ...]:
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
        Claim(SOURCE, DIRECT, Measure.LATENCY, Of.MAXIMUM, 14),
        Claim(SOURCE, DIRECT, Measure.LATENCY, Of.SPREAD, 11),
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Of.MAXIMUM, 40),
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Of.SPREAD, 31),
    ),
)


def run(request: Request) -> Outcome:
    """Play it."""
    return conduct(SWEEP, request)
