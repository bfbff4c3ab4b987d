"""Sweep over the number of nodes (§4.2.4 of the thesis): the clients stay the same, and added nodes have none."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ringmq.experiments.studies.harness.approaches import DIRECT
from ringmq.experiments.studies.harness.figures import Claim, Measure, Statistic
from ringmq.experiments.studies.harness.outcome import Outcome, Request
from ringmq.experiments.studies.sweeps.sweep import FULL, SMALL, Level, Sweep, TrialSize, conduct

SOURCE: Final = "§4.2.4"


def _levels(size: TrialSize, *counts: int) -> tuple[Level, ...]:
    """Levels in which the subscribers are at the nodes of the smallest ring."""
    few = replace(size, subscribers=counts[0], homes=counts[0])
    return tuple([Level(str(count), replace(few, peers=count)) for count in counts])


SWEEP: Final = Sweep(
    name="nodes",
    title="More nodes, with the same clients",
    axis="nodes of the ring",
    full=_levels(FULL, 20, 30, 40, 50),
    quick=_levels(SMALL, 8, 16),
    claims=(
        Claim(SOURCE, DIRECT, Measure.LATENCY, Statistic.MAXIMUM, 17),
        Claim(SOURCE, DIRECT, Measure.LATENCY, Statistic.SPREAD, 16),
        Claim(SOURCE, DIRECT, Measure.BANDWIDTH, Statistic.MAXIMUM, 44),
        Claim(SOURCE, DIRECT, Measure.BANDWIDTH, Statistic.SPREAD, 28),
    ),
)


def run(request: Request) -> Outcome:
    """Run the sweep."""
    return conduct(SWEEP, request)
