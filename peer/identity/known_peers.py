"""Saves the addresses of the known peers in the data folder: of a new one soon, without one that has gone later.

After a power cut a peer waits for the peers that it knew before, so one that joined a moment ago must be among them.
One that has gone may come back, and costs nothing there meanwhile. Knows the ring as a list of addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

import structlog

from ringmq.overlay.config import Address
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity.data_folder import DataFolder

SOON_S: Final = 0.25
"""Pause before a new peer is saved. Peers that join within it cost one save."""
LATER_S: Final = 60.0
"""Pause before a save that only removes peers, and the time in which the right to one more quick save is earned."""
MOST_QUICK: Final = 60
"""Saves that may follow each other quickly, twice the peers of a file: the disk outlives a ring that never rests."""

log = structlog.get_logger()


class Timer(Protocol):
    def when(self) -> float: ...
    def cancel(self) -> None: ...


class Loop(Protocol):
    """The part of an event loop that is used here."""

    def time(self) -> float: ...
    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer: ...


class KnownPeers:
    """One per peer with a data folder."""

    def __init__(self, folder: DataFolder, known: Callable[[], Sequence[Address]], loop: Loop) -> None:
        """`known` returns the peers that are known now, and none while this peer is not in the ring."""
        self._folder = folder
        self._known = known
        self._loop = loop
        self._due: Timer | None = None
        self._quick = float(MOST_QUICK)
        self._earned_at = self._loop.time()

    def changed(self) -> None:
        """The known peers are others than before, or this peer has entered the ring."""
        known, saved = set(self._known()), set(self._folder.remembered)
        if known and known != saved:
            self._save_in(SOON_S if self._may_be_quick() and not known <= saved else LATER_S)

    def stop(self) -> None:
        """Save now if a save is due. Must be called while this peer is still in the ring."""
        if self._due is not None:
            self._due.cancel()
            self._save()

    def _may_be_quick(self) -> bool:
        now = self._loop.time()
        self._quick = min(MOST_QUICK, self._quick + (now - self._earned_at) / LATER_S)
        self._earned_at = now
        return self._quick >= 1.0

    def _save(self) -> None:
        self._due = None
        self._quick = max(0.0, self._quick - 1.0)
        try:
            self._folder.remember(self._known())
        except DataFolderError as error:
            log.warning("cannot save known peers", why=str(error))
            self._save_in(LATER_S)

    def _save_in(self, pause_s: float) -> None:
        """Save after the pause, unless a save is due before."""
        if self._due is not None:
            if self._due.when() <= self._loop.time() + pause_s:
                return
            self._due.cancel()
        self._due = self._loop.call_later(pause_s, self._save)
