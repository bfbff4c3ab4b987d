"""What a core means to do later: a heap of due times. Knows no clock; `now` is handed in."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

Action = Callable[[float, object], None]


class TimerQueue:
    """Actions in the order of their time, those of the same time in the order of their entry.

    There is no cancelling: an action that finds itself overtaken does nothing.
    """

    __slots__ = ("_count", "_due", "next_at")

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Action, object]] = []
        self._count = 0
        self.next_at = inf
        """When `run` is wanted next; infinity when nothing is planned. Read at the end of every iteration."""

    def __len__(self) -> int:
        return len(self._due)

    def at(self, due: float, action: Action, subject: object = None) -> None:
        self._count += 1
        heappush(self._due, (due, self._count, action, subject))
        if due < self.next_at:
            self.next_at = due

    def run(self, now: float, most: float = inf) -> None:
        """Do what is due, but no more than so many actions: what is left is due still, so run it again.

        An action may plan others; what it plans for `now` is done too.
        """
        due = self._due
        while due and due[0][0] <= now and most > 0:
            _, _, action, subject = heappop(due)
            most -= 1
            self.next_at = due[0][0] if due else inf
            action(now, subject)
