"""The box plots of a sweep: a group for each level with a box for each approach. A box covers the nodes of a ring.

Turns rows of the collector's table `boxes` into PNG files.
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
"""Label of the axis for each measure, and the factor from the collector's unit to the unit of the axis."""
KEY: Final = "a line is the median, a triangle the mean, a dot a node beyond 1.5 times the height of its box"
GROUP: Final = 0.8
"""Share of the width of a level that its boxes take; the rest separates the levels."""
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
    """Common properties of all box plots of an experiment."""

    title: str
    axis: str
    """Description of the swept parameter, with its unit."""
    levels: Sequence[str]
    approaches: Sequence[Approach]


def colours(approaches: Sequence[Approach]) -> dict[Approach, tuple[float, float, float, float]]:
    """A colour for each approach, equal in all plots of an experiment."""
    return {approach: colormaps["tab10"](index) for index, approach in enumerate(approaches)}


def draw(frame: Frame, measure: Measure, boxes: Boxes, file: Path) -> None:
    """Draw the box plots of one measure into a file."""
    label, scale = UNITS[measure]
    approaches, levels = frame.approaches, frame.levels
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    panel = figure.subplots()
    panel.set(title=f"{frame.title}: {label}", xlabel=frame.axis, ylabel=label)
    panel.grid(visible=True, axis="y", alpha=0.3)
    width = GROUP / len(approaches)
    colour_of = colours(approaches)
    for centre, level in enumerate(levels):
        for index, approach in enumerate(approaches):
            row = boxes.get((level, approach.key), {}).get(measure)
            if row is not None:
                x = centre + (index - (len(approaches) - 1) / 2) * width
                _draw_box(panel, row, scale, x, 0.8 * width, colour_of[approach])
    panel.set_xticks(range(len(levels)), levels)
    panel.set_xlim(-0.5, len(levels) - 0.5)
    panel.set_ylim(bottom=0.0)
    handles = [Patch(facecolor=colour_of[approach], alpha=0.6, label=approach.label) for approach in approaches]
    # A legend below the axes cannot cover a box.
    figure.legend(handles=handles, loc="outside lower center", ncols=len(approaches), fontsize="small", title=KEY)
    figure.savefig(file, dpi=DOTS_PER_INCH)


def _draw_box(panel: Axes, row: Row, scale: float, x: float, width: float, colour: Any) -> None:
    panel.bxp(
        [box_statistics(row, scale)],
        positions=[x],
        widths=[width],
        patch_artist=True,
        showmeans=True,
        manage_ticks=False,
        boxprops={"facecolor": colour, "alpha": 0.6},
        medianprops={"color": "black"},
        meanprops={"marker": "^", "markerfacecolor": "white", "markeredgecolor": "black", "markersize": 4},
        flierprops={"marker": ".", "markeredgecolor": colour, "markersize": 4},
    )


def box_statistics(row: Row, scale: float) -> dict[str, Any]:
    """The statistics of a row, in the form that `Axes.bxp` takes."""
    cells: Mapping[str, Any] = row
    return {ours: scale * float(cells[theirs]) for ours, theirs in _CELLS.items()} | {
        "fliers": [scale * float(value) for value in cells.get("outliers") or ()]
    }
