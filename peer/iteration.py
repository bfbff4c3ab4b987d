"""The one owner of an iteration of the event loop: its time, and the order in which it ends.

Whatever the loop calls (bytes of a socket, a timer, a future) begins with `begin`, which sets the time once. When all
that came in this iteration has been processed, it ends in this order:

    commit       every journal puts its changes on the disk
    acknowledge  peers get acknowledgements of the data that these commits made safe
    flush        sockets of clients and links to peers get their collected bytes
    continue     work beyond the limits of this iteration begins the next

So nothing is sent before it is safe. Each part adds its call to a list when it first has work for the end of this
iteration, and again in each later iteration with work: parts without work cost an iteration nothing. A call that is
added to a list after the calls of that list were made waits for the end of the next iteration, which then follows at
once.
Knows neither journals nor sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from ringmq.overlay.core.timers import TimerQueue
from ringmq.overlay.timer import Timer

Call = Callable[[], object]

FAILED: Final = "unhandled error at the end of an iteration"


class Iteration:
    """The iterations of one event loop. Create it inside the running loop."""

    __slots__ = (
        "_begun",
        "_loop",
        "acknowledgements",
        "commits",
        "continuations",
        "flushes",
        "loop_timers",
        "now",
        "time",
    )

    def __init__(self, time: Callable[[], float] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.time = time or self._loop.time
        """The clock that `now` is read from."""
        self.now = self.time()
        """The time of this iteration; it never goes back."""
        self.commits: list[Call] = []
        self.acknowledgements: list[Call] = []
        self.flushes: list[Call] = []
        self.continuations: list[Call] = []
        self.loop_timers: list[tuple[TimerQueue, Timer]] = []
        """The timer queue of each core, and the timer that is set for its first deadline."""
        self._begun = False

    def begin(self) -> float:
        """Set the time and schedule the end of the iteration, once per iteration. Every callback calls this first."""
        if not self._begun:
            self._begun = True
            now = self.time()
            if now > self.now:
                self.now = now
            # The remaining callbacks of this iteration run before `_end`: asyncio and uvloop both append to the queue.
            self._loop.call_soon(self._end)
        return self.now

    def advance(self, deadline: float) -> None:
        """Move `now` to the deadline of a timer that fired a little early, for the rest of this iteration too."""
        if deadline > self.now:
            self.now = deadline

    def _end(self) -> None:
        if self.commits:
            self._run(self.commits)
        if self.acknowledgements:
            self._run(self.acknowledgements)
            if self.commits:  # An acknowledgement changed a journal, and the flush may report that change.
                self._run(self.commits)
        if self.flushes:
            self._run(self.flushes)
        for timers, timer in self.loop_timers:
            if timers.next_at < timer.at:
                timer.set(timers.next_at)
        self._begun = False
        if self.commits or self.acknowledgements or self.flushes:
            self.begin()
        if self.continuations:
            self._run(self.continuations)

    def _run(self, calls: list[Call]) -> None:
        """Make these calls, but not the calls that they add. A call that fails does not prevent the others."""
        due = calls[:]
        calls.clear()
        for call in due:
            try:
                call()
            except Exception as error:  # noqa: BLE001 - the root of a callback: the loop's handler logs it
                self._loop.call_exception_handler({"message": FAILED, "exception": error})
