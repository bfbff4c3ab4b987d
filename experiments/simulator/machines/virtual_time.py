"""Virtual time: the clock of all machines of a simulation, what will happen, and what has happened lately.

All that happens is a call at a time; calls of the same time are made in the order in which they were arranged. So a
seed determines a run, as far as the machines depend on nothing else.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random
from typing import Final

LAST_NOTES: Final = 60
"""Notes that are kept for an error."""
BEGIN_S: Final = 1_700_000_000.0
"""The time of day at the start of each simulation."""
MOST_AT_ONCE: Final = 200_000
"""Calls without any progress of time: somebody calls himself for ever."""


class StuckError(AssertionError):
    """Time does not go on."""


class VirtualTime:
    """One per simulation."""

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.random = Random(f"machines {seed}")
        self.calls = 0
        self.faults: list[str] = []
        """Errors of the programs, which none of them expected: each is a fault of the program."""
        self._due: list[tuple[float, int, Callable[..., object], tuple[object, ...]]] = []
        self._arranged = 0
        self._notes: deque[str] = deque(maxlen=LAST_NOTES)

    def of_day(self) -> float:
        """The time of day, as the clocks of all machines show it."""
        return BEGIN_S + self.now

    def after(self, delay_s: float, call: Callable[..., object], *arguments: object) -> None:
        """Make a call later."""
        self._arranged += 1
        heappush(self._due, (self.now + max(0.0, delay_s), self._arranged, call, arguments))

    def run(self, done: Callable[[], bool]) -> None:
        """Let time go on until the condition holds, which is looked at after each call. Raises StuckError."""
        due, since = self._due, 0
        while not done():
            if not due:
                raise StuckError(f"nothing happens any more at {self.now:.3f} s")
            at, _, call, arguments = heappop(due)
            since = 0 if at > self.now else since + 1
            if since > MOST_AT_ONCE:
                raise StuckError(f"time stands still at {self.now:.6f} s, with {call}")
            self.now = at
            self.calls += 1
            call(*arguments)

    def note(self, text: str) -> None:
        """Keep a line about what happens now, for an error."""
        self._notes.append(f"{self.now:.6f} {text}")

    def last(self) -> list[str]:
        """The last notes, the oldest first."""
        return list(self._notes)
