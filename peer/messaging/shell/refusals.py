"""The log of what the ring has refused to the clients here, as a bound was reached: a line a minute at most."""

from __future__ import annotations

from math import inf
from typing import Final

import structlog

from ringmq.peer.messaging.engine import Counted

log = structlog.get_logger("pubsub")

EVERY_S: Final = 60.0
"""Clients choose how often they are refused, so a line for each would let them fill the disk."""


class RefusalLog:
    """One per adapter. Call `look` once a second or so."""

    __slots__ = ("_logged_at", "_seen")

    def __init__(self) -> None:
        self._seen = (0, 0)
        self._logged_at = -inf

    def look(self, counters: Counted, now: float) -> None:
        """Log what was refused since the last line."""
        refused = counters.refused_filters, counters.not_retained
        if refused == self._seen or now < self._logged_at + EVERY_S:
            return
        filters, retained = refused[0] - self._seen[0], refused[1] - self._seen[1]
        self._seen, self._logged_at = refused, now
        log.warning("refused, as partitions are full (docs/limits.md)", filters=filters, retained_messages=retained)
