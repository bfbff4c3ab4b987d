"""Emulated latency: how long a pair of peers is apart, and the line in which frames wait that long.

Owns no clock: the time is an argument.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import mmh3

from ringmq.overlay.core.ids import SPACE, Id

SLACK_S: Final = 0.0005
"""A frame may go this much early: timers of an event loop have a resolution of a millisecond."""


def pair_delay_s(one: Id, other: Id, range_s: tuple[float, float], seed: int) -> float:
    """The one-way delay between two peers: the same at both ends and in every run with this seed."""
    low, high = range_s
    name = min(one, other).packed() + max(one, other).packed() + seed.to_bytes(16, "big", signed=True)
    share = mmh3.hash128(name, signed=False) / SPACE
    return min(high, low + (high - low) * share)  # the sum may be rounded up


class DelayLine:
    """First in, first out, each chunk exactly `delay_s` after it came. The caller bounds `held_bytes`."""

    __slots__ = ("_line", "delay_s", "held_bytes")

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.held_bytes = 0
        self._line: deque[tuple[float, bytes]] = deque()

    def push(self, chunk: bytes, now: float) -> None:
        self._line.append((now + self.delay_s, chunk))
        self.held_bytes += len(chunk)

    def due(self, now: float) -> list[bytes]:
        """Take the chunks whose time has come."""
        line, ready = self._line, []
        while line and line[0][0] <= now + SLACK_S:
            ready.append(line.popleft()[1])
        self.held_bytes -= sum(map(len, ready))
        return ready

    def flush(self) -> list[bytes]:
        """Take all: the connection is about to end."""
        ready = [chunk for _, chunk in self._line]
        self._line.clear()
        self.held_bytes = 0
        return ready

    @property
    def deadline(self) -> float | None:
        """When the next chunk is due; None: the line is empty."""
        return self._line[0][0] if self._line else None
