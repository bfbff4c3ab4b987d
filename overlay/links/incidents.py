"""Incidents caused from outside: counted always, logged once.

A misbehaving peer must fill neither the log nor, with the list of logged incidents, the memory.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import structlog

from ringmq.overlay.core.codec import one_line

logger = structlog.get_logger("overlay")

MAX_REMEMBERED: Final = 1024
"""Distinct (event, culprit) pairs that are logged; further pairs are only counted."""
MAX_CULPRITS: Final = 64
"""Culprits logged per event: the name is often the stranger's own claim, and a stranger can invent any number."""

MAX_TRACEBACKS: Final = 100
"""Tracebacks logged per kind of failure: a failure that repeats with every message must not fill the disk."""


class Incidents:
    """Counts events by name; the first incident of each event and culprit is a log line as well."""

    __slots__ = ("_culprits", "_logged", "counters")

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._logged: set[tuple[str, str]] = set()
        self._culprits: Counter[str] = Counter()

    def count(self, event: str, amount: int = 1) -> None:
        self.counters[event] += amount

    def warn(self, event: str, who: object, why: str) -> None:
        """Count, and log unless this event was logged for this culprit before."""
        self.counters[event] += 1
        # A culprit may be a stranger's own text, which must not forge log lines.
        key = (event, one_line(str(who)))
        if key in self._logged or len(self._logged) >= MAX_REMEMBERED or self._culprits[event] >= MAX_CULPRITS:
            return
        self._logged.add(key)
        self._culprits[event] += 1
        logger.warning(event, peer=key[1], reason=one_line(why))

    def forgive(self, event: str, who: object) -> None:
        """It went well again, so the next incident is logged again."""
        key = (event, one_line(str(who)))
        if key in self._logged:
            self._logged.discard(key)
            self._culprits[event] -= 1

    def failed(self, event: str) -> None:
        """Call it in an `except` block: our own code, or the application's, raised."""
        self.counters[event] += 1
        if self.counters[event] <= MAX_TRACEBACKS:
            logger.exception(event)
