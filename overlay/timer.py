"""Calls a core when its deadline has come. Knows no core.

If the process was held up, by a long iteration or an overloaded machine, messages of others lie unread, and the event
loop runs its timers first. So these messages are read before a peer is suspected for its silence, or asked once more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

SOONEST_S: Final = 0.001
"""Shortest time between two calls: a core whose deadline does not move must not spin."""
HELD_UP_S: Final = 0.1
"""A call that is later than this shows that the whole process was held up."""


class Timer:
    """One per core. Create inside a running event loop."""

    __slots__ = ("_call", "_loop", "_timer", "at")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.Handle | None = None
        self.at = inf
        """Time of the next call. Only an earlier deadline needs to be set."""

    def set(self, deadline: float) -> None:
        """Call at the deadline, if that is sooner. An early call is cheap, so a later deadline changes nothing.

        An overdue call keeps its time: put off by every `set`, it would never come under load.
        """
        at = max(deadline, self._loop.time() + SOONEST_S)
        if at < self.at:
            if self._timer is not None:
                self._timer.cancel()
            self.at = at
            self._timer = self._loop.call_at(at, self._ring)

    def stop(self) -> None:
        """End: no call comes after this."""
        # No deadline is below this, so `set` has no effect any more.
        self.at = -inf
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        if self._loop.time() - self.at > HELD_UP_S:
            # uvloop runs a first `call_soon` before it reads the sockets, and a second, made by the first, afterwards.
            # A timer cannot do it: uvloop runs one that has become due meanwhile like a `call_soon`.
            self._timer = self._loop.call_soon(self._read_first)
        else:
            self._run()

    def _read_first(self) -> None:
        self._timer = self._loop.call_soon(self._run)

    def _run(self) -> None:
        self.at, self._timer = inf, None
        self._call()
