"""The plot of `failure`: the rate of deliveries over time, its recovery, and the total of deliveries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ringmq.experiments.studies.failure.recovery import Recovery, rate_over_time
from ringmq.experiments.studies.harness.approaches import WITHOUT_BOUND, Approach
from ringmq.experiments.studies.harness.trial import Trial
from ringmq.experiments.studies.sweeps.boxplots import DOTS_PER_INCH, colours

SIZE_INCHES: Final = (12.0, 8.0)
AROUND_S: Final = (1.0, 4.0)
"""Time before and after the kill in the panel with the close view."""
LEAST_S: Final = 0.5
"""Least range of the axis of recovery times."""


def draw(trials: Mapping[Approach, Trial], recoveries: Mapping[Approach, Recovery], file: Path) -> None:
    """Draw the plot into a file."""
    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    grid = figure.add_gridspec(2, 3)
    whole, near = figure.add_subplot(grid[0, :]), figure.add_subplot(grid[1, 0])
    figure.suptitle("All coordinators killed at once; with Scribe all roots")
    killed_s = min((trial.killed_s or 0.0 for trial in trials.values()), default=0.0)
    for panel, title in ((whole, "Deliveries to all clients"), (near, "Around the kill")):
        _rates(panel, title, trials, killed_s)
    handles, labels = whole.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize="small")
    near.set_xlim(killed_s - AROUND_S[0], killed_s + AROUND_S[1])
    whole.set_xlim(0.0, max((trial.plan.measured_s for trial in trials.values()), default=None))
    names = [approach.label for approach in recoveries]
    recovered, delivered = figure.add_subplot(grid[1, 1]), figure.add_subplot(grid[1, 2])
    bar_colours = [*colours([*recoveries]).values()]
    times_s = [recovery.recovered_s for recovery in recoveries.values()]
    bars = recovered.barh(names, [time_s or 0.0 for time_s in times_s], color=bar_colours)
    recovered.bar_label(bars, ["never" if time_s is None else f"{time_s:.1f}" for time_s in times_s], padding=3)
    recovered.set(title="Until the live clients' rate is back", xlabel="s after the kill")
    recovered.set_xlim(0.0, 1.25 * max([time_s or 0.0 for time_s in times_s] + [LEAST_S]))
    counts = [recovery.delivered for recovery in recoveries.values()]
    bars = delivered.barh(names, counts, color=bar_colours)
    delivered.bar_label(bars, [f"{count:,}" for count in counts], padding=3)
    delivered.set(title="Deliveries in all", xlabel="deliveries")
    delivered.margins(x=0.45)
    delivered.xaxis.set_major_locator(MaxNLocator(3))
    delivered.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for panel in (recovered, delivered):
        panel.invert_yaxis()
    figure.savefig(file, dpi=DOTS_PER_INCH)


def _rates(panel: Axes, title: str, trials: Mapping[Approach, Trial], killed_s: float) -> None:
    colour_of = colours([*trials])
    for approach, trial in trials.items():
        bins = rate_over_time(trial.traffic, trial.plan.measured_s)
        times, rates = [at for at, _ in bins], [rate for _, rate in bins]
        # Guided without a bound sends like Direct: its dashes leave the line of Direct below it visible.
        style = "--" if approach == WITHOUT_BOUND else "-"
        panel.plot(times, rates, style, label=approach.label, color=colour_of[approach], linewidth=1.2)
    panel.axvline(killed_s, color="black", linestyle=":", linewidth=1, label="killed")
    panel.set(title=title, xlabel="s since the first message", ylabel="deliveries/s")
    panel.set_ylim(bottom=0.0)
    panel.grid(visible=True, axis="y", alpha=0.3)
