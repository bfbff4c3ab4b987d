"""What the commands of `ringmq simulate` share: options, progress, runs in several processes, and the report.

Knows no scenario.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from math import isnan
from typing import Final, TypeVar

import click

from ringmq.experiments.scenarios.building import Progress
from ringmq.overlay.core.timing import PRESETS

STEPS: Final = 1000
"""Resolution of the progress bar."""

Figures = dict[str, object]
Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Number(click.FloatRange):
    """A number in a range. Refuses "nan" as well, which passes the comparisons of click."""

    def convert(self, value: float, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if isnan(number):
            self.fail("nan is not a number in this range", param, ctx)
        return number


class ScenarioReport:
    """Collects the figures of a scenario, prints them, and decides on the exit status."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._figures: dict[str, object] = {}
        self._broken: list[str] = []

    def add(self, name: str, figures: Figures) -> None:
        self._figures[name] = figures
        if not self.as_json:
            click.echo(f"{name}")
            for key, value in figures.items():
                click.echo(f"  {key:<22} {_formatted(value)}")

    def add_table(self, name: str, rows: list[Figures], lines: list[str]) -> None:
        """Add one table in two forms: `rows` for JSON, `lines` for the terminal."""
        self._figures[name] = rows
        if not self.as_json:
            click.echo("\n".join((name, *lines)))

    def must(self, holds: bool, otherwise: str) -> None:
        if not holds:
            self._broken.append(otherwise)

    def end(self) -> None:
        """Print the remaining output. Exits with status 1 if a condition did not hold."""
        memory_mb = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        if self.as_json:
            click.echo(json.dumps({**self._figures, "memory_mb": memory_mb, "broken": self._broken}, indent=2))
        else:
            click.echo(f"memory: {memory_mb} MB")
            for text in self._broken:
                click.echo(f"broken: {text}", err=True)
        if self._broken:
            raise SystemExit(1)


def _formatted(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_formatted(each)}" for key, each in value.items())
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, tuple):
        return " ".join(_formatted(each) for each in value)
    return "-" if value is None else str(value)


@contextmanager
def progress_bar(label: str, as_json: bool) -> Iterator[Progress]:
    """A progress bar with the time left, on standard error; hidden if the output is JSON."""
    done = 0
    with click.progressbar(length=STEPS, label=label, file=sys.stderr, hidden=as_json) as bar:

        def show(share: float) -> None:
            nonlocal done
            steps = max(0, int(share * STEPS) - done)
            done += steps
            bar.update(steps)

        yield show
        show(1.0)


def common_options(nodes: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        command = click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")(command)
        command = click.option("--seed", default=1, show_default=True, help="The same seed gives the same run.")(
            command
        )
        count = click.IntRange(2, 2_000_000)
        return click.option("--nodes", default=nodes, type=count, show_default=True, help="Peers.")(command)

    return decorate


timing_option = click.option(
    "--timing", type=click.Choice(list(PRESETS)), default="lan", show_default=True, help="Preset of all periods."
)


def in_pool(call: Callable[[Argument], Result], arguments: Sequence[Argument]) -> Iterator[Result]:
    """The results in the order of the arguments, with a process for each core. A single call stays in this process."""
    if len(arguments) == 1:
        yield call(arguments[0])
        return
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        yield from pool.map(call, arguments)
