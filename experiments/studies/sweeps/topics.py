"""More and more topics (§4.2.3 of the thesis): all publishers and subscribers are on all of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringmq.experiments.studies.harness.approaches import DIRECT, guided
from ringmq.experiments.studies.harness.figures import Claim, Measure, Of
from ringmq.experiments.studies.harness.outcome import Outcome, Request
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL, Level, Size, Sweep, conduct

SOURCE: Final = "§4.2.3"


def _levels(size: Size, *counts: int) -> tuple[Level, ...]:
    return tuple([Level(str(count), replace(size, topics=count)) for count in counts])


SWEEP: Final = Sweep(
    name="topics",
    title="More topics",
    axis="topics",
    full=_levels(FULL, 1, 3, 5, 7),
    quick=_levels(SMALL, 1, 2),
    claims=(
        Claim(SOURCE, DIRECT, Measure.LATENCY, Of.MAXIMUM, 7),
        Claim(SOURCE, DIRECT, Measure.LATENCY, Of.SPREAD, 26),
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Of.MAXIMUM, 75),
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Of.SPREAD, 89),
    ),
)


def run(request: Request) -> Outcome:
    """Play it."""
    return conduct(SWEEP, request)
