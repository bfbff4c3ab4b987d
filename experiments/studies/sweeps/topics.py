"""Sweep over the number of topics (§4.2.3 of the thesis): every publisher and subscriber uses all topics."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringmq.experiments.studies.harness.approaches import DIRECT, guided
from ringmq.experiments.studies.harness.figures import Claim, Measure, Statistic
from ringmq.experiments.studies.harness.outcome import Outcome, Request
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL, Level, Sweep, TrialSize, conduct

SOURCE: Final = "§4.2.3"


def _levels(size: TrialSize, *counts: int) -> tuple[Level, ...]:
    return tuple([Level(str(count), replace(size, topics=count)) for count in counts])


SWEEP: Final = Sweep(
    name="topics",
    title="More topics",
    axis="topics",
    full=_levels(FULL, 1, 3, 5, 7),
    quick=_levels(SMALL, 1, 2),
    claims=(
        Claim(SOURCE, DIRECT, Measure.LATENCY, Statistic.MAXIMUM, 7),
        Claim(SOURCE, DIRECT, Measure.LATENCY, Statistic.SPREAD, 26),
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Statistic.MAXIMUM, 75),
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Statistic.SPREAD, 89),
    ),
)


def run(request: Request) -> Outcome:
    """Run the sweep."""
    return conduct(SWEEP, request)
