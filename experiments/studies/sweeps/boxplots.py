"""The box plots of a sweep: a group for each level, in it a box for each approach, over the nodes of a ring.

Rows of the collector's table `boxes` go in, PNG files come out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ringmq.experiments.studies.harness.approaches import Approach
from ringmq.experiments.studies.harness.figures import Boxes, Measure
from ringmq.experiments.studies.harness.outcome import Row

SIZE_INCHES: Final = (11.0, 5.5)
DOTS_PER_INCH: Final = 120
UNITS: Final = {
    Measure.LATENCY: ("average delivery latency of a node, ms", 1e3),
    Measure.BANDWIDTH: ("bandwidth of a node, in and out, Mbit/s", 1e-6),
}
"""What is on the axis, and by how much what the collector says is to be multiplied."""
KEY: Final = "a line is the median, a triangle the mean, a dot a node beyond 1.5 times the height of its box"
GROUP: Final = 0.8
"""Of the room of a level, the rest is between two of them."""
_CELLS: Final = {
    "q1": "quartile_1",
    "med": "median",
    "q3": "quartile_3",
    "whislo": "low_whisker",
    "whishi": "high_whisker",
    "mean": "mean",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """What the box plots of an experiment have in common."""

    title: str
    axis: str
    """What is swept, with its unit."""
    levels: Sequence[str]
    approaches: Sequence[Approach]


def colours(approaches: Sequence[Approach]) -> dict[Approach, tuple[float, float, float, float]]:
    """The same for all plots of an experiment."""
    return {approach: colormaps["tab10"](place) for place, approach in enumerate(approaches)}


def draw(frame: Frame, measure: Measure, boxes: Boxes, file: Path) -> None:
    """Make the file."""
    what, scale = UNITS[measure]
    approaches, levels = frame.approaches, frame.levels
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    panel = figure.subplots()
    panel.set(title=f"{frame.title}: {what}", xlabel=frame.axis, ylabel=what)
    panel.grid(visible=True, axis="y", alpha=0.3)
    width = GROUP / len(approaches)
    painted = colours(approaches)
    for place, level in enumerate(levels):
        for beside, approach in enumerate(approaches):
            row = boxes.get((level, approach.key), {}).get(measure)
            if row is not None:
                at = place + (beside - (len(approaches) - 1) / 2) * width
                _box(panel, row, scale, at, 0.8 * width, painted[approach])
    panel.set_xticks(range(len(levels)), levels)
    panel.set_xlim(-0.5, len(levels) - 0.5)
    panel.set_ylim(bottom=0.0)
    handles = [Patch(facecolor=painted[one], alpha=0.6, label=one.label) for one in approaches]
    # Below the axes, where no box can be.
    figure.legend(handles=handles, loc="outside lower center", ncols=len(approaches), fontsize="small", title=KEY)
    figure.savefig(file, dpi=DOTS_PER_INCH)


def _box(panel: Axes, row: Row, scale: float, at: float, width: float, colour: Any) -> None:
    panel.bxp(
        [box(row, scale)],
        positions=[at],
        widths=[width],
        patch_artist=True,
        showmeans=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "alpha": 0.6},
        medianprops={"color": "black"},
        meanprops={"marker": "^", "markerfacecolor": "white", "markeredgecolor": "black", "markersize": 4},
        flierprops={"marker": ".", "markeredgecolor": colour, "markersize": 4},
    )


def box(row: Row, scale: float) -> dict[str, Any]:
    """A row of the table, as matplotlib wants it."""
    cells: Mapping[str, Any] = row
    return {ours: scale * float(cells[theirs]) for ours, theirs in _CELLS.items()} | {
        "fliers": [scale * float(value) for value in cells.get("outliers") or ()]
    }
