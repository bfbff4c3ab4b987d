"""The plot of `failure`: the rate of deliveries over time, how it recovers, and what arrived in all."""

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
"""Before and after the kill, what the close look shows."""
LEAST_S: Final = 0.5
"""What the axis of times shows, even if all are shorter."""


def draw(trials: Mapping[Approach, Trial], found: Mapping[Approach, Recovery], file: Path) -> None:
    """Make the file."""
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
    names = [approach.label for approach in found]
    recovered, delivered = figure.add_subplot(grid[1, 1]), figure.add_subplot(grid[1, 2])
    painted = [*colours([*found]).values()]
    seconds = [one.recovered_s for one in found.values()]
    bars = recovered.barh(names, [one or 0.0 for one in seconds], color=painted)
    recovered.bar_label(bars, ["never" if one is None else f"{one:.1f}" for one in seconds], padding=3)
    recovered.set(title="Until the live clients' rate is back", xlabel="s after the kill")
    recovered.set_xlim(0.0, 1.25 * max([one or 0.0 for one in seconds] + [LEAST_S]))
    bars = delivered.barh(names, [one.delivered for one in found.values()], color=painted)
    delivered.bar_label(bars, [f"{one.delivered:,}" for one in found.values()], padding=3)
    delivered.set(title="Deliveries in all", xlabel="deliveries")
    delivered.margins(x=0.45)
    delivered.xaxis.set_major_locator(MaxNLocator(3))
    delivered.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    for panel in (recovered, delivered):
        panel.invert_yaxis()
    figure.savefig(file, dpi=DOTS_PER_INCH)


def _rates(panel: Axes, title: str, trials: Mapping[Approach, Trial], killed_s: float) -> None:
    painted = colours([*trials])
    for approach, trial in trials.items():
        points = rate_over_time(trial.traffic, trial.plan.measured_s)
        times, rates = [at for at, _ in points], [rate for _, rate in points]
        # Direct lies below Guided without a bound, which does the same.
        style = "--" if approach == WITHOUT_BOUND else "-"
        panel.plot(times, rates, style, label=approach.label, color=painted[approach], linewidth=1.2)
    panel.axvline(killed_s, color="black", linestyle=":", linewidth=1, label="killed")
    panel.set(title=title, xlabel="s since the first message", ylabel="deliveries/s")
    panel.set_ylim(bottom=0.0)
    panel.grid(visible=True, axis="y", alpha=0.3)
