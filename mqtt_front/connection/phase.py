"""The phases of a connection, as a table of transitions.

A client connects, sends its CONNECT, waits for the decision on it and for the end of other connections with its client
id, and is then served until the connection ends:

    NEW --CONNECT_RECEIVED--> DECIDING --ADMITTED--> ENROLLING --SETTLED--> OPEN
     |                            |                      |                   |
     +----------------------------+------ ENDED ---------+-------------------+--> CLOSED

Whatever is not in the table cannot happen. A connection ends once, whoever ends it: the client by DISCONNECT or by
closing its socket, the server by `fail`. So CLOSED has no transitions, and callers ask for it first.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final


class Phase(Enum):
    NEW = auto()
    """The client has not sent its CONNECT."""
    DECIDING = auto()
    """The gate decides on the CONNECT; the reader keeps all that follows it."""
    ENROLLING = auto()
    """The client is admitted. The cluster ends other connections with its client id, or the client must wait, as it is
    one of several that throw each other out; the reader keeps all that follows."""
    OPEN = auto()
    """The client has its CONNACK and a session."""
    CLOSED = auto()
    """The client has no session any more; its bytes are ignored."""


class Event(Enum):
    CONNECT_RECEIVED = auto()
    """A CONNECT that passes all checks which need no decision."""
    ADMITTED = auto()
    """The gate has admitted the client."""
    SETTLED = auto()
    """The client id is this front's alone, as far as the cluster can find out."""
    ENDED = auto()
    """The connection ends, for whatever reason."""


TRANSITIONS: Final = {
    Phase.NEW: {Event.CONNECT_RECEIVED: Phase.DECIDING, Event.ENDED: Phase.CLOSED},
    Phase.DECIDING: {Event.ADMITTED: Phase.ENROLLING, Event.ENDED: Phase.CLOSED},
    Phase.ENROLLING: {Event.SETTLED: Phase.OPEN, Event.ENDED: Phase.CLOSED},
    Phase.OPEN: {Event.ENDED: Phase.CLOSED},
    Phase.CLOSED: {},
}


def after(phase: Phase, event: Event) -> Phase:
    """The phase that follows. Raises KeyError for an event that is impossible in this phase."""
    return TRANSITIONS[phase][event]
