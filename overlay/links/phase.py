"""The life of a link: its phases, its events and the table of transitions between them. Knows no sockets.

STRANGER ──OPENED──▶ OPEN ──FAREWELL──▶ CLOSING
    │                 │                    │
    └─────────────────┴────────────────────┴── HUNG_UP, ABORTED, LOST ──▶ CLOSED
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Phase(Enum):
    STRANGER = auto()
    """No HELLO of the other side was accepted yet."""
    OPEN = auto()
    CLOSING = auto()
    """We said GOODBYE for a harmless reason, and still receive the frames that the other side sent before it came."""
    CLOSED = auto()
    """Nothing goes in or out any more, except the bytes that the socket still has to write."""


class LinkEvent(Enum):
    OPENED = auto()
    """The handshake is done."""
    FAREWELL = auto()
    """We said GOODBYE to an open link for a harmless reason."""
    HUNG_UP = auto()
    """The other side said GOODBYE, or we did for any other reason: flush and close."""
    ABORTED = auto()
    """The socket is cut without a flush: linger_s is over, or the owner gives the connection up."""
    LOST = auto()
    """The socket is closed."""


TRANSITIONS: Final[dict[tuple[Phase, LinkEvent], Phase]] = {
    (Phase.STRANGER, LinkEvent.OPENED): Phase.OPEN,
    (Phase.STRANGER, LinkEvent.HUNG_UP): Phase.CLOSED,
    (Phase.STRANGER, LinkEvent.ABORTED): Phase.CLOSED,
    (Phase.STRANGER, LinkEvent.LOST): Phase.CLOSED,
    (Phase.OPEN, LinkEvent.FAREWELL): Phase.CLOSING,
    (Phase.OPEN, LinkEvent.HUNG_UP): Phase.CLOSED,
    (Phase.OPEN, LinkEvent.ABORTED): Phase.CLOSED,
    (Phase.OPEN, LinkEvent.LOST): Phase.CLOSED,
    (Phase.CLOSING, LinkEvent.HUNG_UP): Phase.CLOSED,
    (Phase.CLOSING, LinkEvent.ABORTED): Phase.CLOSED,
    (Phase.CLOSING, LinkEvent.LOST): Phase.CLOSED,
    # After each other end the socket closes, or linger_s passes before it has flushed.
    (Phase.CLOSED, LinkEvent.ABORTED): Phase.CLOSED,
    (Phase.CLOSED, LinkEvent.LOST): Phase.CLOSED,
}
