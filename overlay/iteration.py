"""The owner of the event loop's iteration, as far as the overlay needs it. `peer.iteration` is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringmq.overlay.core.timers import TimerQueue
from ringmq.overlay.timer import Timer


class IterationOwner(Protocol):
    """Links add a call to `flushes` when frames gather, so that all frames of an iteration share a write."""

    now: float
    """The time of this iteration."""
    flushes: list[Callable[[], object]]
    """Called once at the end of this iteration, when everything that they send is safe to be sent."""
    continuations: list[Callable[[], object]]
    """Called once after that: work that must leave room for others."""
    loop_timers: list[tuple[TimerQueue, Timer]]
    """Timer queues that are looked at when an iteration ends, each with the alarm set for its first deadline."""

    def begin(self) -> float:
        """To be called first by whatever the loop calls; returns `now`."""
