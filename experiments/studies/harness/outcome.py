"""What an experiment is asked for, and what it gives: the same for all, so that one command can run and keep them.

Knows neither rings nor files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

Row = Mapping[str, object]
"""Of a table: the same columns in all rows of it. Units stand in the names, as in `latency_s`."""


class Progress(Protocol):
    """How far it is. An experiment says beforehand how many steps it has, and calls this after each."""

    def begin(self, steps: int) -> None: ...

    def step(self, done: str) -> None: ...

    def say(self, text: str) -> None:
        """What somebody should know, such as that a level is left out since the machine is too small for it."""


@dataclass(frozen=True, slots=True)
class Request:
    """One run of one experiment."""

    folder: Path
    """Which is there and empty: all that is kept of the run goes into it."""
    quick: bool
    """At most 3 minutes on two cores."""
    seed: int
    """The same gives the same plan: ids, delays, places of clients, victims."""
    progress: Progress


@dataclass(frozen=True, slots=True)
class Quantity:
    """One figure that a paper states, and ours beside it."""

    what: str
    """Such as "maximum of the average latency, Direct against Scribe"."""
    source: str
    """Where it is stated: the section of the thesis."""
    theirs: float | None
    """None if it says no number."""
    ours: float | None
    """None if it could not be measured; `note` says why."""
    unit: str
    """ "%" for shares, which are 40.0 and not 0.4."""
    at_least: bool = True
    """Ours is expected to be at least theirs, not at most."""
    note: str = ""
    """The reason, where ours is another."""

    @property
    def holds(self) -> bool | None:
        """Whether ours is as good as theirs; None without one of both."""
        if self.ours is None or self.theirs is None:
            return None
        return self.ours >= self.theirs if self.at_least else self.ours <= self.theirs


@dataclass(slots=True)
class Outcome:
    """What was found. Also of a run that was cut short: then what there was until then."""

    quantities: list[Quantity] = field(default_factory=list)
    tables: dict[str, Sequence[Row]] = field(default_factory=dict)
    """By their names, which become names of files."""
    plots: list[Path] = field(default_factory=list)
    """The most important one first."""
    settings: dict[str, object] = field(default_factory=dict)
    """The plan: all that another run needs to be the same."""
    left_out: list[str] = field(default_factory=list)
    """Levels that were not run, each with the reason."""
    broken: bool = False
    """Whether something was not found that should have been, on any machine; `left_out` says why."""
    interrupted: bool = False


Experiment = Callable[[Request], Outcome]
"""Raises ExperimentError when nothing can be found at all. On KeyboardInterrupt it ends what it has started, and
returns what it has, marked as interrupted."""
