"""The figures of a benchmark as output: tables with the verdicts on goals, or JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Final

import click

from ringmq.experiments.benchmarks.comparison import Result
from ringmq.experiments.benchmarks.figures import Figures
from ringmq.experiments.benchmarks.goals import Verdict

MUCH_WAITING: Final = 0.1
"""Share of the cores used by other processes from which on a warning is shown."""
_FORM: Final = "{:>11}{:>12}{:>8}{:>8}{:>6}{:>6}{:>14}{:>9}{:>9}"


class Report:
    """Shows figures as they come; on standard error if the output is JSON."""

    def __init__(self, as_json: bool, verbose: bool) -> None:
        self._as_json = as_json
        self._verbose = verbose
        self._figures: dict[str, object] = {}
        self._verdicts: list[Verdict] = []

    def say(self, text: str) -> None:
        """Show progress on standard error, so that the output has only the results."""
        click.echo(text, err=True)

    def measured(self, name: str, figures: Figures) -> None:
        if self._verbose:
            self.say(f"  {name:<10}{line(figures)}")

    def detail(self, text: str) -> None:
        if self._verbose:
            self.say(text)

    def add_pattern(self, pattern: str, results: Mapping[str, Result]) -> None:
        self._keep(pattern, results)
        click.echo(table(pattern, results), err=self._as_json)
        self._warn(results.values())

    def add_patterns(self, patterns: Mapping[str, Mapping[str, Result]]) -> None:
        """Show several patterns in one table."""
        for pattern, results in patterns.items():
            self._keep(pattern, results)
        click.echo(one_table(patterns), err=self._as_json)
        self._warn([result for results in patterns.values() for result in results.values()])

    def _keep(self, pattern: str, results: Mapping[str, Result]) -> None:
        self._figures[pattern] = {name: as_figures(result) for name, result in results.items()}

    def _warn(self, results: Iterable[Result]) -> None:
        disturbed = median([figures.waited for result in results for figures in result.limits] or [0.0])
        if disturbed > MUCH_WAITING:
            self.say(f"other processes had {disturbed:.0%} of the cores: only the ratios are meaningful")

    def add(self, name: str, figures: Mapping[str, float]) -> None:
        self._figures[name] = figures
        text = ", ".join(f"{key} {value:.4g}" for key, value in figures.items())
        click.echo(f"{name}: {text}", err=self._as_json)

    def add_table(self, name: str, figures: object, text: str) -> None:
        """Figures of any form, and the table of them that people read."""
        self._figures[name] = figures
        click.echo(text, err=self._as_json)

    def judge(self, verdicts: Sequence[Verdict]) -> None:
        self._verdicts += verdicts
        for verdict in verdicts:
            click.echo(str(verdict), err=self._as_json)

    def end(self) -> None:
        if self._as_json:
            verdicts = [{**asdict(verdict), "reached": verdict.reached} for verdict in self._verdicts]
            click.echo(json.dumps({**self._figures, "goals": verdicts}, indent=2))


def line(figures: Figures) -> str:
    """One measurement as a line."""
    return (
        f"{figures.offered_hz:>9.0f}/s: in {figures.ingress_hz:>8.0f} out {figures.egress_hz:>9.0f} "
        f"{'keeps up' if figures.keeps_up else 'does not'} loss {figures.loss:.2%} "
        f"p50 {figures.percentile_s(50) * 1000:.2f} p99 {figures.percentile_s(99) * 1000:.2f} ms "
        f"cpu {figures.server_cpu:.0%} generator {figures.generator_cpu:.0%} "
        f"waited {figures.server_waited:.0%} {figures.generator_waited:.0%} blocked {figures.blocked:.0%}"
    )


def table(pattern: str, results: Mapping[str, Result]) -> str:
    """The results of one pattern: figures at the limits, then latencies at one rate for all servers."""
    lines = [pattern, f"{'server':<12}{_heads('egress/cpu s')}"]
    for name, result in results.items():
        costs = [figures.egress_per_cpu_s for figures in result.limits]
        lines.append(f"{name:<12}{_cells(result, f'{median(costs):.0f}' if costs else '')}")
    return "\n".join(lines)


def one_table(patterns: Mapping[str, Mapping[str, Result]]) -> str:
    """The results of several patterns, with the processor time of all servers for a million deliveries."""
    width = max(12, *(len(pattern) + 2 for pattern in patterns))
    lines = [f"{'pattern':<{width}}{'servers':<12}{_heads('cpu s/million')}"]
    for pattern, results in patterns.items():
        for name, result in results.items():
            costs = [figures.cpu_s_per_million for figures in result.limits]
            lines.append(f"{pattern:<{width}}{name:<12}{_cells(result, f'{median(costs):.2f}' if costs else '')}")
    return "\n".join(lines)


def _heads(cost: str) -> str:
    return _FORM.format("ingress/s", "egress/s", "spread", "loss", "cpu", "gen.", cost, "p50 ms", "p99 ms")


def _cells(result: Result, cost: str) -> str:
    limits = result.limits
    if not limits:
        return " never kept up"
    egress = [figures.egress_hz for figures in limits]
    return _FORM.format(
        f"{median(figures.ingress_hz for figures in limits):.0f}",
        f"{'>=' if result.lower_bound else ''}{median(egress):.0f}",
        f"{(max(egress) - min(egress)) / median(egress):.0%}",
        f"{median(figures.loss for figures in limits):.2%}",
        f"{median(figures.server_cpu for figures in limits):.0%}",
        f"{median(figures.generator_cpu for figures in limits):.0%}",
        cost,
        *(f"{result.percentile_s(percent) * 1000:.2f}" for percent in (50, 99)),
    )


def as_figures(result: Result) -> dict[str, object]:
    return {
        "lower_bound": result.lower_bound,
        "at_limit": [_with_percentiles(figures) for figures in result.limits],
        "at_half": [_with_percentiles(figures) for figures in result.at_half],
    }


def _with_percentiles(figures: Figures) -> dict[str, object]:
    """The figures with percentiles of the latency in the place of all latencies."""
    shown = {key: value for key, value in asdict(figures).items() if key != "latencies_s"}
    for percent in (50, 90, 99, 99.9):
        latency_s = figures.percentile_s(percent)
        shown[f"latency_p{percent:g}_s"] = None if math.isnan(latency_s) else latency_s
    return shown
