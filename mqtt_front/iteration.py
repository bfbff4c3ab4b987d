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
    """Called once at the end of this iteration, before anybody is told anything."""
    flushes: list[Callable[[], object]]
    """Called once after that: what has gathered is sent."""
    continuations: list[Callable[[], object]]
    """Called once after that: work for which this iteration had no room."""

    def begin(self) -> float:
        """To be called first by whatever the loop calls; returns `now`."""
