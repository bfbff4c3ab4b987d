"""Sweep over the nodes with publishers (§4.2.2 of the thesis): from one node to more than a quarter of the ring."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringmq.experiments.studies.harness.approaches import guided
from ringmq.experiments.studies.harness.figures import Claim, Measure, Statistic
from ringmq.experiments.studies.harness.outcome import Outcome, Request
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL, Level, Sweep, TrialSize, conduct

SOURCE: Final = "§4.2.2"


def _levels(size: TrialSize, *counts: int) -> tuple[Level, ...]:
    return tuple([Level(f"{100 * count / size.peers:.0f} %", replace(size, publishers=count)) for count in counts])


SWEEP: Final = Sweep(
    name="publishers",
    title="More publishers",
    axis="nodes with a publisher to all topics, % of all nodes",
    full=_levels(FULL, 1, 5, 10, 14),
    quick=_levels(SMALL, 1, 4),
    claims=(
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Statistic.MAXIMUM, 45),
        Claim(SOURCE, guided(5), Measure.BANDWIDTH, Statistic.SPREAD, 64),
    ),
)


def run(request: Request) -> Outcome:
    """Run the sweep."""
    return conduct(SWEEP, request)
