"""The time, as the front's core reads it, and the owner of the event loop's iteration, as the front's shell needs it.

`peer.iteration` is such an owner, and a clock at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    now: float


class StillClock:
    """A clock that stands still until somebody sets it."""

    __slots__ = ("now",)

    def __init__(self, now: float = 0.0) -> None:
        self.now = now


class IterationOwner(Clock, Protocol):
    time: Callable[[], float]
    """The clock that `now` is read from."""
    commits: list[Callable[[], object]]
    """Called once at the end of this iteration, before anything is sent."""
    flushes: list[Callable[[], object]]
    """Called once after the commits: each sends its gathered bytes."""
    continuations: list[Callable[[], object]]
    """Called once after the flushes: work for which this iteration had no budget."""

    def begin(self) -> float:
        """Set `now` and return it. Every callback of the loop calls this first."""
