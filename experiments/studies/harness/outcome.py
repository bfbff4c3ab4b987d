"""Request and outcome of an experiment: equal for all experiments, so that one command can run and store them.

Knows neither rings nor files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

Row = Mapping[str, object]
"""A row of a table. All rows of a table have the same columns; column names end with their units, as in `latency_s`."""


class Progress(Protocol):
    """Receives the progress of an experiment, which first announces its steps and then reports each of them."""

    def begin(self, steps: int) -> None: ...

    def step(self, done: str) -> None: ...

    def say(self, text: str) -> None:
        """Report a remark for the user, such as a level that was left out because the machine is too small for it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One run of one experiment."""

    folder: Path
    """An empty folder for all files of the run."""
    quick: bool
    """Whether the run must take at most 3 minutes on two cores."""
    seed: int
    """Equal seeds give equal plans: ids, delays, positions of clients, victims."""
    progress: Progress


@dataclass(frozen=True, slots=True)
class Quantity:
    """A figure that a paper states, with our figure beside it."""

    what: str
    """Description, such as "maximum of the average latency, Direct against Scribe"."""
    source: str
    """Section of the paper that states the figure."""
    theirs: float | None
    """Figure of the paper; None if it states none."""
    ours: float | None
    """Our figure; None if it could not be measured, with the reason in `note`."""
    unit: str
    """Unit of both figures; "%" for shares, which are written as 40.0, not 0.4."""
    at_least: bool = True
    """Whether ours should be at least theirs; otherwise it should be at most theirs."""
    note: str = ""
    """Both figures, or the reason for a difference."""

    @property
    def holds(self) -> bool | None:
        """Whether our figure is as good as theirs; None if either is missing."""
        if self.ours is None or self.theirs is None:
            return None
        return self.ours >= self.theirs if self.at_least else self.ours <= self.theirs


@dataclass(slots=True)
class Outcome:
    """Results of an experiment. The outcome of an interrupted run has the results up to the interrupt."""

    quantities: list[Quantity] = field(default_factory=list)
    tables: dict[str, Sequence[Row]] = field(default_factory=dict)
    """Tables by name; the names become file names."""
    plots: list[Path] = field(default_factory=list)
    """Files of the plots, the most important plot first."""
    settings: dict[str, object] = field(default_factory=dict)
    """Everything that is needed to repeat the run."""
    left_out: list[str] = field(default_factory=list)
    """Levels that were not run and other restrictions of the results, each with the reason."""
    broken: bool = False
    """Whether a result is missing that every machine should produce; `left_out` has the reason."""
    interrupted: bool = False


Experiment = Callable[[Request], Outcome]
"""Runs an experiment. Raises ExperimentError if there is no result at all. On KeyboardInterrupt it ends its processes
and returns its results so far, marked as interrupted."""
