"""The pulse of a peer: messages a second, and how late its event loop is, over the last ten seconds.

Reads three figures each second, so that the path of a message counts nothing more than it does anyway.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

BEAT_S: Final = 1.0
BEATS: Final = 10
"""Beats that the figures cover."""

Counts = tuple[int, int]


class Pulse:
    """Create it inside a running event loop; `start`, and `stop` at the end."""

    def __init__(self, counts: Callable[[], Counts]) -> None:
        """`counts` returns the messages in and out since the start."""
        self._counts = counts
        self._loop = asyncio.get_running_loop()
        self._beats: deque[tuple[float, Counts]] = deque(maxlen=BEATS + 1)
        self._late: deque[float] = deque(maxlen=BEATS)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        now = self._loop.time()
        self._beats.append((now, self._counts()))
        self._timer = self._loop.call_at(now + BEAT_S, self._beat, now + BEAT_S)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self, due: float) -> None:
        now = self._loop.time()
        self._late.append(max(0.0, now - due))
        self._beats.append((now, self._counts()))
        self._timer = self._loop.call_at(now + BEAT_S, self._beat, now + BEAT_S)

    @property
    def counts(self) -> Counts:
        return self._counts()

    @property
    def per_second(self) -> tuple[float, float]:
        """Messages in and out."""
        if not self._beats:
            return 0.0, 0.0
        began, before = self._beats[0]
        # Not up to now: a burst that has just begun, divided by a few milliseconds, would be no rate.
        ended, after = self._beats[-1]
        if ended <= began:
            return 0.0, 0.0
        span_s = ended - began
        return (after[0] - before[0]) / span_s, (after[1] - before[1]) / span_s

    @property
    def late_s(self) -> float:
        """The longest delay of a beat."""
        return max(self._late, default=0.0)
