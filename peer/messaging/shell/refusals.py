"""The log of what the ring has refused to the clients here, as a bound was reached, and of false words of other peers.

A line a minute of each at most.
"""

from __future__ import annotations

from math import inf
from typing import Final

import structlog

from ringmq.peer.messaging.engine import Counted

log = structlog.get_logger("pubsub")

EVERY_S: Final = 60.0
"""Clients choose how often they are refused, so a line for each would let them fill the disk."""


LOOK_S: Final = 1.0
FALSE: Final = ("false_records", "far_stamps", "false_boots", "unreadable")
"""Counters of what other peers cannot have sent honestly."""


class RefusalLog:
    """One per adapter. Call `look` once a second or so."""

    __slots__ = ("_disbelieved", "_logged_at", "_next_look_at", "_seen")

    def __init__(self) -> None:
        self._seen = (0, 0)
        self._logged_at = -inf
        self._disbelieved: dict[str, int] = {}
        self._next_look_at = -inf

    def look(self, counters: Counted, now: float) -> None:
        """Log what was refused since the last line."""
        self._look_at_others(counters, now)
        refused = counters.refused_filters, counters.not_retained
        if refused == self._seen or now < self._logged_at + EVERY_S:
            return
        filters, retained = refused[0] - self._seen[0], refused[1] - self._seen[1]
        self._seen, self._logged_at = refused, now
        log.warning("refused, as partitions are full (docs/limits.md)", filters=filters, retained_messages=retained)

    def _look_at_others(self, counters: Counted, now: float) -> None:
        if now < self._next_look_at:
            return
        known = counters.as_dict()
        disbelieved = {name: known.get(name, 0) for name in FALSE}
        news = {name: count - self._disbelieved.get(name, 0) for name, count in disbelieved.items()}
        self._disbelieved = disbelieved
        self._next_look_at = now + (EVERY_S if any(news.values()) else LOOK_S)
        if any(news.values()):
            log.warning("ignored, as no honest peer can have sent it (docs/limits.md)", **news)
