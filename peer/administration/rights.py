"""Who may ask what: the one place where the rights of a request are checked, whatever way it came.

The links let in a request to the overlay port: in a ring with identity from a member, or over the socket in the data
folder; in a ring without, from everybody, as everybody could join it and do far more. A peer may ask everything, since
any peer can do worse. Over HTTP, only a token that may write changes things.
"""

from __future__ import annotations

from enum import Enum, auto

from ringmq.peer.administration.requests import CHANGES, Subject


class Asker(Enum):
    """Where a request came from."""

    PEER = auto()
    """Over a link of the ring."""
    OVERLAY_PORT = auto()
    """The command line, over a connection to the overlay port that is no link."""
    READER = auto()
    """Over HTTP, by somebody who may only read."""
    WRITER = auto()
    """Over HTTP, by somebody who may write."""


def refusal(asker: Asker, subject: Subject) -> str:
    """Why somebody must not ask this, as one line; empty: it is allowed."""
    if asker is Asker.READER and subject in CHANGES:
        return f"{subject} needs a token that may write"
    return ""
