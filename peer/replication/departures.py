"""Departures of neighbours: whether all copies of a partition may be dead, or behind a cut, since just now.

Without that, a partition that nobody has coordinated, as far as the owners know, has never been used. Knows neither
partitions nor records.
"""

from __future__ import annotations

from collections import deque

from ringmq.peer.messaging.context import MessagingContext


class Departures:
    """One per engine."""

    __slots__ = ("_at", "_began_at", "_counted", "_state")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._began_at = state.clock.now
        self._counted = 0
        self._at: deque[float] = deque(maxlen=state.config.shadows + 1)
        """When the last neighbours left, as many as have copies of a partition."""

    def follow(self, count: int) -> bool:
        """So many neighbours have left since the start. Returns whether any has since the last call."""
        gone, self._counted = count - self._counted, count
        self._at.extend([self._state.clock.now] * gone)
        return gone > 0

    def took_copies(self, silent: int) -> bool:
        """Whether as many peers left lately as have copies, together with those that are silent. Longer ago, the
        entries in these copies have lapsed, or their homes have registered again."""
        config = self._state.config
        since = self._state.clock.now - config.void_s - config.entry_s
        return sum(at > since for at in self._at) + silent > config.shadows

    def trusted_until(self, silent: int) -> float:
        """Until when publishers may trust routes of coordinators that have left, or are silent."""
        now, void_s = self._state.clock.now, self._state.config.void_s
        if silent and self.took_copies(silent):
            return now + void_s
        return self._at[-1] + void_s if self._at else now

    @property
    def began_lately(self) -> bool:
        """Whether others may have started again together with this peer, which then saw nobody leave."""
        return self._state.clock.now < self._began_at + self._state.config.entry_s
