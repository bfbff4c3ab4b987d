"""Admission: the SUBSCRIBEs and CONNECTs that wait while the ones before them are worked on.

A crowd of clients sends more filters in a second than a ring can take in a minute. If all were taken at once,
everything else would wait behind their work: acknowledgements, messages, and what keeps peers alive for each other. So
only some filters are without an answer at a time. Further SUBSCRIBEs wait, and the sockets that they came from are not
read meanwhile; those of all other clients are. Knows neither packets nor sockets.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ringmq.mqtt_front.connection.budget import ALL_BYTES, CONNECT_BYTES, Work
from ringmq.mqtt_front.sessions.session import SessionWriter

MOST_UNANSWERED: Final = 1024
"""Filters of SUBSCRIBEs without an answer, from which on further SUBSCRIBEs wait: as many as a peer registers in a ring
at a time."""
SHARE_BYTES: Final = ALL_BYTES // 4
"""The share of SUBSCRIBEs in the work of an iteration, where some of them wait."""
SHORT_BYTES: Final = 256
"""A SUBSCRIBE of up to this length goes ahead of long ones, until there are twice as many unanswered: the few filters
of one client need not wait for the thousands of others."""


class Admission:
    """One per broker. The shell sets `on_room`, and calls `next_connect` and `next_subscribe` then."""

    __slots__ = ("_admitted", "_connects", "_subscribes", "_work", "on_room", "unanswered")

    def __init__(self, work: Work) -> None:
        self._work = work
        self.on_room: Callable[[], None] = _nothing
        """Called when somebody who waits may be admitted, in the next iteration."""
        self.unanswered = 0
        """Filters that SUBSCRIBEs have announced to the cluster, and that it has not answered."""
        self._connects: dict[SessionWriter, None] = {}
        self._subscribes: dict[SessionWriter, None] = {}
        self._admitted: SessionWriter | None = None
        """The one that does not wait any more."""

    @property
    def waiting(self) -> int:
        return len(self._connects) + len(self._subscribes)

    def holds_connect(self, writer: SessionWriter) -> bool:
        """Whether a CONNECT must wait, until `next_connect` gives its writer. Otherwise it is charged for."""
        if writer is not self._admitted and (self._connects or self._work.left <= 0):
            self._connects[writer] = None
            self.on_room()
            return True
        self._work.left -= CONNECT_BYTES
        return False

    def holds_subscribe(self, writer: SessionWriter, size_bytes: int) -> bool:
        """Whether a SUBSCRIBE of this length must wait, until `next_subscribe` gives its writer."""
        if writer is self._admitted:
            return False
        if size_bytes <= SHORT_BYTES:
            if self.unanswered < 2 * MOST_UNANSWERED:
                return False
        elif not self._subscribes and self._has_room:
            return False
        self._subscribes[writer] = None
        if self.unanswered < MOST_UNANSWERED:
            self.on_room()
        return True

    @property
    def _has_room(self) -> bool:
        return self.unanswered < MOST_UNANSWERED and self._work.left > ALL_BYTES - SHARE_BYTES

    def answered(self) -> None:
        """The cluster has answered a filter."""
        self.unanswered -= 1
        if self._subscribes and self.unanswered < MOST_UNANSWERED:
            self.on_room()

    def next_connect(self) -> SessionWriter | None:
        """The next one whose CONNECT waits no more; None if no other may be admitted in this iteration."""
        return self._next(self._connects, self._work.left > 0)

    def next_subscribe(self) -> SessionWriter | None:
        """The same for SUBSCRIBEs."""
        return self._next(self._subscribes, self._has_room)

    def _next(self, waiting: dict[SessionWriter, None], room: bool) -> SessionWriter | None:
        self._admitted = next(iter(waiting)) if waiting and room else None
        if self._admitted is not None:
            del waiting[self._admitted]
        elif waiting and (waiting is self._connects or self.unanswered < MOST_UNANSWERED):
            # Only the work of this iteration holds them up.
            self.on_room()
        return self._admitted


def _nothing() -> None:
    """There is no shell: nobody ever waits for an iteration."""
