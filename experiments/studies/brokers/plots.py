"""The plot of `brokers`: throughput, latency and cost of each side, by pattern."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.studies.brokers.figures import Found, cpu_s_per_million, latency_ms

SIZE_INCHES: Final = (13.0, 5.0)
DOTS_PER_INCH: Final = 120
NAMES: Final = {
    "ringmq": "ring of peers",
    "bridged": "bridged Mosquittos",
    "nodelay": "bridged Mosquittos, TCP_NODELAY",
    "mosquitto": "one Mosquitto",
}
COLOURS: Final = {"ringmq": "tab:blue", "bridged": "tab:orange", "nodelay": "tab:olive", "mosquitto": "tab:gray"}

Value = Callable[[Result], float | None]


def write(found: Found, folder: Path) -> Path:
    """Draw the plot into a file."""
    file = folder / "brokers.png"
    draw(found).savefig(file, dpi=DOTS_PER_INCH)
    return file


def draw(found: Found) -> Figure:
    """A panel each for throughput, latency and cost."""
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    figure.suptitle("Patterns of Banno et al. (2019) on one core: 32 bytes, QoS 0, 50 publishers and 50 subscribers")
    limits, latencies, costs = figure.subplots(1, 3)
    _bars(limits, found, lambda result: result.limit_hz() or None, "At the limit", "deliveries/s")
    _spread(limits, found)
    limits.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value / 1000:,.0f} k"))
    title = "At half load: median, and a line up to p99"
    _bars(latencies, found, lambda result: latency_ms(result, 50), title, "latency, ms")
    _tails(latencies, found)
    if any(result.at_half for sides in found.values() for result in sides.values()):
        latencies.set_yscale("log")
        latencies.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    _bars(costs, found, cpu_s_per_million, "Processor time at the limit", "CPU s per million deliveries")
    handles, labels = limits.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(NAMES), fontsize="small")
    return figure


def _sides(found: Found) -> list[str]:
    present = {side for sides in found.values() for side in sides}
    return [side for side in NAMES if side in present]


def _bars_of(found: Found, side: str) -> tuple[list[tuple[float, Result]], float]:
    """The bars of a side, each with its x and its result, and their width."""
    sides = _sides(found)
    width = 0.8 / len(sides)
    shift = (sides.index(side) - (len(sides) - 1) / 2) * width
    return [(centre + shift, found[name][side]) for centre, name in enumerate(found) if side in found[name]], width


def _bars(panel: Axes, found: Found, value: Value, title: str, ylabel: str) -> None:
    for side in _sides(found):
        bars, width = _bars_of(found, side)
        heights = [value(result) or float("nan") for _, result in bars]
        panel.bar([x for x, _ in bars], heights, width, label=NAMES[side], color=COLOURS[side])
    panel.set_xticks(range(len(found)), list(found))
    panel.set(title=title, xlabel="pattern", ylabel=ylabel)
    panel.grid(visible=True, axis="y", alpha=0.3)


def _spread(panel: Axes, found: Found) -> None:
    """A line from the lowest to the highest repetition, with an arrow if the load generator could not offer more."""
    for side in _sides(found):
        for x, result in _bars_of(found, side)[0]:
            egress = [figures.egress_hz for figures in result.limits]
            if egress:
                panel.vlines(x, min(egress), max(egress), color="black", linewidth=1.2)
            if result.lower_bound:
                panel.annotate("↑", (x, max(egress)), ha="center", va="bottom")


def _tails(panel: Axes, found: Found) -> None:
    for side in _sides(found):
        for x, result in _bars_of(found, side)[0]:
            middle, late = latency_ms(result, 50), latency_ms(result, 99)
            if middle is not None and late is not None:
                panel.vlines(x, middle, late, color="black", linewidth=1.2)
