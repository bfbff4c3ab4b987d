"""Figures that compare approaches: the worst node and the spread over the nodes, each averaged over the levels.

The thesis (§4.2) defines them as "the maximum values, which represent the average of the highest latency or bandwidth
for the worst nodes at all levels", and "the average standard deviation across all levels". Turns rows into figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean
from typing import Final

from ringmq.experiments.studies.harness.approaches import SCRIBE, Approach
from ringmq.experiments.studies.harness.outcome import Quantity, Row


class Measure(StrEnum):
    """A measure of a node, by its name in the collector's table `boxes`."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"


class Statistic(StrEnum):
    """A statistic over the nodes, by its column in `boxes`."""

    MAXIMUM = "maximum"
    SPREAD = "deviation"


MEAN: Final = "mean"
"""The column of `boxes` with the mean over the nodes."""
WORDS: Final = {
    (Measure.LATENCY, Statistic.MAXIMUM): "highest average latency of a node",
    (Measure.LATENCY, Statistic.SPREAD): "spread of average latencies over the nodes",
    (Measure.BANDWIDTH, Statistic.MAXIMUM): "highest bandwidth of a node",
    (Measure.BANDWIDTH, Statistic.SPREAD): "spread of bandwidth over the nodes",
}

NO_TABLES: Final = "there are no tables of the collector"
WHY_LESS: Final = (
    "; with any approach, a subscriber's node receives and delivers every message, only the messages it relays differ"
)
WHY_SMALL: Final = ", and they are few in a small ring"

Boxes = Mapping[tuple[str, str], Mapping[Measure, Row]]
"""The rows of `boxes` by level and approach."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement of the thesis: by how many percent an approach is better than Scribe."""

    source: str
    approach: Approach
    measure: Measure
    statistic: Statistic
    percent: float

    def against(self, boxes: Boxes, ran: Approach, small: bool = False) -> Quantity:
        """Our figure beside theirs. `ran` was played in the place of the approach, with `small` in a small ring."""
        ours = lower_percent(boxes, ran, self.measure, self.statistic)
        if ours is None:
            note = f"no level has measurements of both Scribe and {ran.label}" if boxes else NO_TABLES
        else:
            note = _means(boxes, ran, self.measure, self.statistic)
            if ours < self.percent and self.measure is Measure.BANDWIDTH:
                note += WHY_LESS + (WHY_SMALL if small else "")
                if self.statistic is Statistic.MAXIMUM:
                    note += _even(boxes, ran)
        what = f"{WORDS[self.measure, self.statistic]}, {ran.label} below Scribe"
        return Quantity(what, self.source, self.percent, ours, "%", note=note)


def by_level(rows: Iterable[Row], runs: Mapping[str, tuple[str, str]]) -> dict[tuple[str, str], dict[Measure, Row]]:
    """The rows of `boxes` by level and approach; `runs` maps a run name to them. Rows of other runs are left out."""
    boxes: dict[tuple[str, str], dict[Measure, Row]] = {}
    for row in rows:
        level_and_approach = runs.get(str(row["run"]))
        if level_and_approach is not None:
            boxes.setdefault(level_and_approach, {})[Measure(str(row["measure"]))] = row
    return boxes


def common_levels(boxes: Boxes, approach: Approach, measure: Measure) -> list[str]:
    """The levels where this approach and Scribe were both measured."""
    levels = dict.fromkeys(level for level, _ in boxes)
    keys = (approach.key, SCRIBE.key)
    return [level for level in levels if all(measure in boxes.get((level, key), {}) for key in keys)]


def mean(boxes: Boxes, levels: Sequence[str], approach: Approach, measure: Measure, column: str) -> float:
    """Mean of a column of `boxes` over these levels, in the unit of the collector."""
    return fmean(_number(boxes[level, approach.key][measure][column]) for level in levels)


def lower_percent(boxes: Boxes, approach: Approach, measure: Measure, statistic: Statistic) -> float | None:
    """Percentage by which the average over the levels is lower than with Scribe. None without a common level."""
    levels = common_levels(boxes, approach, measure)
    if not levels:
        return None
    scribe = mean(boxes, levels, SCRIBE, measure, statistic)
    return 100 * (1 - mean(boxes, levels, approach, measure, statistic) / scribe) if scribe else None


def _means(boxes: Boxes, approach: Approach, measure: Measure, statistic: Statistic) -> str:
    levels = common_levels(boxes, approach, measure)
    ours, scribes = (mean(boxes, levels, compared, measure, statistic) for compared in (approach, SCRIBE))
    return f"{with_unit(measure, ours)} against {with_unit(measure, scribes)}"


def _even(boxes: Boxes, approach: Approach) -> str:
    """The best possible figure: the highest bandwidth if every node had the same load."""
    levels = common_levels(boxes, approach, Measure.BANDWIDTH)
    equal = mean(boxes, levels, approach, Measure.BANDWIDTH, MEAN)
    best = 100 * (1 - equal / mean(boxes, levels, SCRIBE, Measure.BANDWIDTH, Statistic.MAXIMUM))
    return f"; with an equal load at every node it would be {with_unit(Measure.BANDWIDTH, equal)}, {best:.1f} % below"


def with_unit(measure: Measure, value: float) -> str:
    """A value of the collector, converted to the unit for readers."""
    return f"{1e3 * value:.2f} ms" if measure is Measure.LATENCY else f"{1e-6 * value:.3f} Mbit/s"


def _number(value: object) -> float:
    assert isinstance(value, int | float), value
    return float(value)
