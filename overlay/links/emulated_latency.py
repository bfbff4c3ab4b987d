"""Emulated latency: the delay of each pair of peers, and the line in which frames wait for it.

Owns no clock: the time is an argument.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import mmh3

from ringmq.overlay.core.ids import SPACE, Id

SLACK_S: Final = 0.0005
"""Frames may leave this much early: timers of an event loop have a resolution of a millisecond."""


def pair_delay_s(first: Id, second: Id, range_s: tuple[float, float], seed: int) -> float:
    """The one-way delay between two peers: the same at both ends and in every run with this seed."""
    low, high = range_s
    # The lower id first, so that both ends compute the same delay.
    name = min(first, second).packed() + max(first, second).packed() + seed.to_bytes(16, "big", signed=True)
    share = mmh3.hash128(name, signed=False) / SPACE
    # The sum may be rounded up, above the range.
    return min(high, low + (high - low) * share)


class DelayLine:
    """First in, first out, each chunk exactly `delay_s` after it came. The caller bounds `held_bytes`."""

    __slots__ = ("_chunks", "delay_s", "held_bytes")

    def __init__(self, delay_s: float) -> None:
        self.delay_s = delay_s
        self.held_bytes = 0
        self._chunks: deque[tuple[float, bytes]] = deque()

    def push(self, chunk: bytes, now: float) -> None:
        self._chunks.append((now + self.delay_s, chunk))
        self.held_bytes += len(chunk)

    def due(self, now: float) -> list[bytes]:
        """Remove and return the chunks whose time has come."""
        chunks, ready = self._chunks, []
        while chunks and chunks[0][0] <= now + SLACK_S:
            ready.append(chunks.popleft()[1])
        self.held_bytes -= sum(map(len, ready))
        return ready

    def flush(self) -> list[bytes]:
        """Remove and return all chunks, as the connection is about to end."""
        ready = [chunk for _, chunk in self._chunks]
        self._chunks.clear()
        self.held_bytes = 0
        return ready

    @property
    def deadline(self) -> float | None:
        """Due time of the next chunk; None: the line is empty."""
        return self._chunks[0][0] if self._chunks else None
