"""Calls a core when its deadline has come. Knows no core.

Where the process was held up, by a long turn or a machine with too much to do, what others said meanwhile lies unread,
and the event loop has its timers first. So it is read before anybody is judged by silence, or asked once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

SOONEST_S: Final = 0.001
"""It never rings faster: a core whose deadline does not move must not spin."""
HELD_UP_S: Final = 0.1
"""So late it rings only if all was held up."""


class Timer:
    """One per core. Create inside a running event loop."""

    __slots__ = ("_call", "_loop", "_read_first", "_timer", "at")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._read_first = False
        self.at = inf
        """When it rings next. No deadline that is not sooner needs to be set."""

    def set(self, deadline: float) -> None:
        """Ring then. To ring too early is cheap, so no deadline takes one back.

        What is overdue keeps its time: put off at every call, it would never ring while there is much to do.
        """
        at = max(deadline, self._loop.time() + SOONEST_S)
        if at < self.at:
            if self._timer is not None:
                self._timer.cancel()
            self.at = at
            self._timer = self._loop.call_at(at, self._ring)

    def stop(self) -> None:
        """It rings no more."""
        self.at = -inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        now = self._loop.time()
        if now - self.at > HELD_UP_S and not self._read_first:
            self._read_first = True
            self._timer = self._loop.call_at(now + SOONEST_S, self._ring)
            return
        self._read_first = False
        self.at, self._timer = inf, None
        self._call()
