"""The plot of `scale`: all sizes of ring on one page, with lines for simulated rings and marks for real rings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from ringmq.experiments.studies.harness.approaches import ALL, DIRECT
from ringmq.experiments.studies.scale.figures import MEASURES, REAL, SIMULATED, STATISTICS, RingFigures

SIZE_INCHES: Final = (15.0, 12.0)
DOTS_PER_INCH: Final = 110
COLOURS: Final = dict(
    zip(
        [approach.key for approach in ALL],
        ("tab:red", "tab:blue", "tab:green", "tab:olive", "tab:purple", "tab:cyan"),
        strict=True,
    )
)
TITLES: Final = {
    "messages": ("Messages", "sent and received by a node,\nfor each one published"),
    "bytes": ("Bytes", "kB sent and received by a node,\nfor each message published"),
    "latency_ms": ("Latency", "average delivery latency\nof a node, ms"),
}
HARDLY_CHANGING: Final = (("messages", "mean"), ("bytes", "mean"))
"""Figures that hardly depend on approach and size, since each node gets each message once. Their axes are linear."""
PLAIN: Final = FuncFormatter(lambda value, _: f"{value:,g}")
WHICH: Final = {"mean": "mean of all nodes", "maximum": "the node with the most", "deviation": "standard deviation"}


def write(rings: Sequence[RingFigures], folder: Path) -> Path:
    """Draw the page into a file."""
    file = folder / "scale.png"
    draw(rings).savefig(file, dpi=DOTS_PER_INCH)
    return file


def draw(rings: Sequence[RingFigures]) -> Figure:
    """Draw panels in rows for mean, maximum and deviation, and in columns for the measures."""
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    figure.suptitle("From a dozen nodes to many thousands: all subscribe to all topics, 4 KB, 1-10 ms a link")
    panels = figure.subplots(len(STATISTICS), len(MEASURES))
    for across, statistic in zip(panels, STATISTICS, strict=True):
        for panel, measure in zip(across, MEASURES, strict=True):
            _lines(panel, rings, measure, statistic)
    drawn = {ring.approach.key for ring in rings}
    handles = [
        Line2D([], [], color=COLOURS[approach.key], linestyle=_style(approach.key), label=approach.label)
        for approach in ALL
        if approach.key in drawn
    ]
    handles.append(Line2D([], [], color="black", marker=".", label="simulated"))
    handles.append(
        Line2D([], [], color="black", marker="o", markersize=9, fillstyle="none", linestyle="", label="real peers")
    )
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _style(key: str) -> Literal["-", "--"]:
    """Guided without a bound sends like Direct: its dashes leave the line of Direct below it visible."""
    return "--" if key == ALL[-1].key else "-"


def _lines(panel: Axes, rings: Sequence[RingFigures], measure: str, statistic: str) -> None:
    scale = 1e-3 if measure == "bytes" else 1.0
    for approach in ALL:
        for source in (SIMULATED, REAL):
            series = [ring for ring in rings if (ring.approach.key, ring.source) == (approach.key, source)]
            series.sort(key=lambda ring: ring.nodes)
            sizes = [ring.nodes for ring in series]
            values = [scale * getattr(ring.measures[measure], statistic) for ring in series]
            if source == SIMULATED:
                width = 3.5 if approach == DIRECT else 1.5
                line = panel.plot(sizes, values, marker=".", color=COLOURS[approach.key], linewidth=width)[0]
                line.set_linestyle(_style(approach.key))
            else:
                look = {"marker": "o", "markersize": 9, "fillstyle": "none", "linestyle": ""}
                panel.plot(sizes, values, color=COLOURS[approach.key], **look)  # type: ignore[arg-type]
    name, ylabel = TITLES[measure]
    panel.set(title=f"{name}: {WHICH[statistic]}", xlabel="nodes", ylabel=ylabel, xscale="log")
    panel.xaxis.set_major_formatter(PLAIN)
    if (measure, statistic) in HARDLY_CHANGING:
        panel.set_ylim(0, 1.1 * panel.get_ylim()[1])
    else:
        panel.set_yscale("log")
        panel.yaxis.set_major_formatter(PLAIN)
    panel.grid(visible=True, which="major", alpha=0.3)
