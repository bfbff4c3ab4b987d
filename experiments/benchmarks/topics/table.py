"""The figures of a pattern as a table, and as objects for JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final

from ringmq.experiments.benchmarks.median_interval import Estimate, estimate
from ringmq.experiments.benchmarks.report import MUCH_WAITING
from ringmq.experiments.benchmarks.topics.costs import Reading, Work

FORM: Final = "{:<10}{:<27}{:>10}{:>8}{:>11}{:>9}{:>9}{:>9}{:>9}  {}"
HEADS: Final = ("side", "unit", "µs of CPU", "ratio", "units/s", "units", "p50 ms", "p99 ms", "max ms")

Readings = Mapping[str, Sequence[Reading]]
"""All readings of one pattern, by the name of the side."""


def middle(values: Iterable[float]) -> float:
    """The median of the values that are numbers; NaN without any."""
    numbers = [value for value in values if not math.isnan(value)]
    return median(numbers) if numbers else math.nan


def table(head: str, readings: Readings) -> str:
    """Medians of all sides."""
    lines = [head, FORM.format(*HEADS, "").rstrip()]
    for side, found in readings.items():
        references = [reading.reference for reading in found]
        lines += [_line(side, works, references).rstrip() for works in _aligned(found)]
        lines += [f"{side:<10}{text}" for text in _notes(found)]
    return "\n".join(lines)


def _aligned(found: Sequence[Reading]) -> list[tuple[Work, ...]]:
    """The reference and each work, over all readings. A work that some reading lacks is left out."""
    return list(zip(*([reading.reference, *reading.works] for reading in found), strict=False))


def _line(side: str, works: Sequence[Work], references: Sequence[Work]) -> str:
    ratios = [work.cpu_us / reference.cpu_us for work, reference in zip(works, references, strict=True)]
    notes = []
    if not all(work.complete for work in works):
        notes.append(f"of {max(work.wanted for work in works)} at the timeout")
    if any(work.generator_bound for work in works):
        notes.append("the generator was the limit")
    waited = middle(work.waited for work in works)
    if waited > MUCH_WAITING:
        notes.append(f"other processes had {waited:.0%} of the cores")
    return FORM.format(
        side,
        works[0].name,
        _number(middle(work.cpu_us for work in works)),
        _number(middle(ratios)),
        _number(middle(work.rate_hz for work in works)),
        min(work.done for work in works),
        *(_number(middle(1000 * work.percentile_s(percent) for work in works)) for percent in (50, 99, 100)),
        "; ".join(notes),
    )


def _number(value: float) -> str:
    """Three digits or all digits before the point; empty for NaN."""
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _notes(found: Sequence[Reading]) -> list[str]:
    before, after = (middle(getattr(reading, f"rest_{when}") for reading in found) for when in ("before", "after"))
    notes = [f"at rest {before:.4f} cores before" + ("" if math.isnan(after) else f", {after:.4f} after")]
    each = middle(reading.unit_bytes for reading in found)
    if not math.isnan(each):
        notes[0] += f"; memory of a unit {_number(each)} B"
    extra = {name: middle(reading.extra[name] for reading in found if name in reading.extra) for name in found[0].extra}
    if extra:
        notes.append(", ".join(f"{name.replace('_', ' ')} {_number(value) or 'none'}" for name, value in extra.items()))
    return notes


def comparisons(this: Sequence[Reading], other: Sequence[Reading]) -> dict[str, Estimate]:
    """Processor time of a unit of each work, this version's divided by the other's, with the interval of the pairs."""
    found = {}
    for works in zip(_aligned(this), _aligned(other), strict=False):
        ratios = [ours.cpu_us / theirs.cpu_us for ours, theirs in zip(*works, strict=True)]
        if not any(map(math.isnan, ratios)):
            found[works[0][0].name] = estimate(ratios)
    return found
