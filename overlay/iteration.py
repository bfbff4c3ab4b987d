"""The owner of the event loop's iteration, as far as the overlay needs it. `peer.iteration` implements it."""

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
    """Called once at the end of this iteration, when all state that they send is committed."""
    continuations: list[Callable[[], object]]
    """Called once after that: long work, which other links and due timers must come before."""
    loop_timers: list[tuple[TimerQueue, Timer]]
    """Timer queues that are looked at when an iteration ends, each with the timer set for its first deadline."""

    def begin(self) -> float:
        """Every callback of the event loop calls this first; returns `now`."""
