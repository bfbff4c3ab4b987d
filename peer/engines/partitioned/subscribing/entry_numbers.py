"""The numbers of the entries of this home: (boot, count), each above all earlier ones."""

from __future__ import annotations

from ringmq.peer.messaging.context import MessagingContext
from ringmq.peer.replication.record import Number


class EntryNumbers:
    """One per engine."""

    __slots__ = ("_boot", "_count", "_state")

    def __init__(self, state: MessagingContext) -> None:
        self._state = state
        self._boot = 0
        self._count = 0

    def next(self, known_boot: int = 0, refused: bool = False) -> Number:
        """A number above all earlier ones, and above those of a boot that a coordinator knows. `refused`: an entry with
        a number of this boot was too low, so others have made up a higher count."""
        self._boot = max(self._boot, self._state.me.boot)
        if known_boot > self._boot or (refused and known_boot == self._boot):
            # The coordinator knows a number with a higher boot than the present one, whatever its count: every number
            # of that boot may be too low.
            self._boot = known_boot + 1
        self._count += 1
        return self._boot, self._count

    def highest(self) -> Number:
        return self._boot, self._count
