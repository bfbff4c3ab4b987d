"""After a start from a data folder: is the ring together again that this peer knew before?

After a power cut the first peers that are back know the lasting entries of their own copies alone. A message that is
published before the others are there would miss kept sessions of which only the others know, and be acknowledged. So
publications wait here until all peers of before are back, for the length of a lease at most. A ring without more peers
than copies of a partition waits for nobody: each disk has everything. Knows no publications.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from ringmq.peer.messaging.context import MessagingContext

LOOKS: Final = 4
"""Looks at the ring within `slow_retry_s`. All peers must be there for that long, in which the new coordinators collect
what these have on their disks."""

Address = tuple[str, int]


class Assembly:
    """One per engine."""

    __slots__ = ("_complete", "_former", "_over", "_state", "_until")

    def __init__(self, state: MessagingContext, former: Collection[Address], over: Callable[[], None]) -> None:
        """`former` are the addresses of the peers that this one knew before, `over` is called when nobody waits."""
        self._state = state
        self._former = frozenset(former)
        self._over = over
        self._until = 0.0
        self._complete = 0
        """Looks in a row at which all were there."""

    def begin(self) -> bool:
        """This peer has just become active. Returns whether publications must wait."""
        if len(self._former) <= self._state.config.shadows or self._is_complete():
            return False
        self._until = self._state.clock.now + self._state.config.entry_s
        self._look_later()
        return True

    def _is_complete(self) -> bool:
        return self._former <= {(peer.host, peer.port) for peer in self._state.overlay.leaves}

    def _look_later(self) -> None:
        self._state.after(self._state.config.slow_retry_s / LOOKS, self._look)

    def _look(self) -> None:
        self._complete = self._complete + 1 if self._is_complete() else 0
        if self._complete > LOOKS or self._state.clock.now >= self._until:
            self._over()
        else:
            self._look_later()
