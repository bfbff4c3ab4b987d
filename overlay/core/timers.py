"""Timer queue of a core: a heap of due times. Knows no clock; `now` is an argument."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

Action = Callable[[float, object], None]


class TimerQueue:
    """Actions in the order of their time; actions of the same time in the order in which they were added.

    There is no cancelling: an action whose reason is gone does nothing.
    """

    __slots__ = ("_count", "_due", "next_at")

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Action, object]] = []
        self._count = 0
        self.next_at = inf
        """Time of the next action, infinity without any. An attribute, as it is read at the end of every iteration."""

    def __len__(self) -> int:
        return len(self._due)

    def at(self, due: float, action: Action, subject: object = None) -> None:
        # The count decides among equal times, and keeps the heap from comparing functions.
        self._count += 1
        heappush(self._due, (due, self._count, action, subject))
        if due < self.next_at:
            self.next_at = due

    def run(self, now: float, most: float = inf) -> None:
        """Run at most `most` due actions; the rest stays due, so run it again.

        An action may add others, and an action added for `now` runs too.
        """
        due = self._due
        while due and due[0][0] <= now and most > 0:
            _, _, action, subject = heappop(due)
            most -= 1
            # Before the action runs, which may add a timer or raise.
            self.next_at = due[0][0] if due else inf
            action(now, subject)
