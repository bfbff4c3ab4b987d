"""What is compared between approaches: the worst node and the spread over the nodes, averaged over the levels.

As in the thesis (§4.2): "the maximum values, which represent the average of the highest latency or bandwidth for the
worst nodes at all levels", and "the average standard deviation across all levels". Rows go in, figures come out.
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
    """Of a node: what the collector's table `boxes` calls it."""

    LATENCY = "latency"
    BANDWIDTH = "bandwidth"


class Of(StrEnum):
    """Over the nodes: a column of `boxes`."""

    MAXIMUM = "maximum"
    SPREAD = "deviation"


MEAN: Final = "mean"
"""A column of `boxes`, too."""
WORDS: Final = {
    (Measure.LATENCY, Of.MAXIMUM): "highest average latency of a node",
    (Measure.LATENCY, Of.SPREAD): "spread of average latencies over the nodes",
    (Measure.BANDWIDTH, Of.MAXIMUM): "highest bandwidth of a node",
    (Measure.BANDWIDTH, Of.SPREAD): "spread of bandwidth over the nodes",
}

NO_TABLES: Final = "there are no tables of the collector"
WHY_LESS: Final = (
    "; each subscriber's node gets and gives out every message with any approach, only what it sends on differs"
)
WHY_SMALL: Final = ", which is little in a small ring"

Boxes = Mapping[tuple[str, str], Mapping[Measure, Row]]
"""The rows of `boxes` by level and approach."""


@dataclass(frozen=True, slots=True)
class Claim:
    """What the thesis says that an approach does better than Scribe, in percent."""

    source: str
    approach: Approach
    measure: Measure
    of: Of
    percent: float

    def against(self, boxes: Boxes, ran: Approach, small: bool = False) -> Quantity:
        """Ours beside theirs. `ran` is what stood for the approach, in a ring that is perhaps small."""
        found = lower_percent(boxes, ran, self.measure, self.of)
        if found is None:
            note = "Scribe and this were not both measured at any level" if boxes else NO_TABLES
        else:
            note = _means(boxes, ran, self.measure, self.of)
            if found < self.percent and self.measure is Measure.BANDWIDTH:
                note += WHY_LESS + (WHY_SMALL if small else "")
                if self.of is Of.MAXIMUM:
                    note += _even(boxes, ran)
        what = f"{WORDS[self.measure, self.of]}, {ran.label} below Scribe"
        return Quantity(what, self.source, self.percent, found, "%", note=note)


def by_level(rows: Iterable[Row], runs: Mapping[str, tuple[str, str]]) -> dict[tuple[str, str], dict[Measure, Row]]:
    """The rows of `boxes` in order, where `runs` says of which level and approach each run was."""
    found: dict[tuple[str, str], dict[Measure, Row]] = {}
    for row in rows:
        where = runs.get(str(row["run"]))
        if where is not None:
            found.setdefault(where, {})[Measure(str(row["measure"]))] = row
    return found


def both(boxes: Boxes, approach: Approach, measure: Measure) -> list[str]:
    """The levels where this approach and Scribe were both measured."""
    levels = dict.fromkeys(level for level, _ in boxes)
    return [level for level in levels if all(measure in boxes.get((level, one.key), {}) for one in (approach, SCRIBE))]


def mean(boxes: Boxes, levels: Sequence[str], approach: Approach, measure: Measure, column: str) -> float:
    """Of a column of `boxes` over these levels, in the unit of the collector."""
    return fmean(_number(boxes[level, approach.key][measure][column]) for level in levels)


def lower_percent(boxes: Boxes, approach: Approach, measure: Measure, of: Of) -> float | None:
    """How much lower than with Scribe it is, on the average over the levels. None if there is nothing to compare."""
    levels = both(boxes, approach, measure)
    if not levels:
        return None
    scribe = mean(boxes, levels, SCRIBE, measure, of)
    return 100 * (1 - mean(boxes, levels, approach, measure, of) / scribe) if scribe else None


def _means(boxes: Boxes, approach: Approach, measure: Measure, of: Of) -> str:
    levels = both(boxes, approach, measure)
    ours, scribes = (shown(measure, mean(boxes, levels, one, measure, of)) for one in (approach, SCRIBE))
    return f"{ours} against {scribes}"


def _even(boxes: Boxes, approach: Approach) -> str:
    """What nobody can do better than: the same load at every node."""
    levels = both(boxes, approach, Measure.BANDWIDTH)
    all_alike = mean(boxes, levels, approach, Measure.BANDWIDTH, MEAN)
    best = 100 * (1 - all_alike / mean(boxes, levels, SCRIBE, Measure.BANDWIDTH, Of.MAXIMUM))
    return f"; with as much at every node it would be {shown(Measure.BANDWIDTH, all_alike)}, {best:.1f} % below"


def shown(measure: Measure, value: float) -> str:
    """With the unit that people read it in."""
    return f"{1e3 * value:.2f} ms" if measure is Measure.LATENCY else f"{1e-6 * value:.3f} Mbit/s"


def _number(value: object) -> float:
    assert isinstance(value, int | float), value
    return float(value)
