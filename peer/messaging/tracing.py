"""Records of the messages that their publishers have chosen: one record for each copy that comes to this peer.

Knows neither a clock nor the sink of records: the shell passes in both. Does nothing for a message without a trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.body import payload_bytes
from ringmq.peer.messaging.publication import Publication


class Witness(Protocol):
    """The recorder; `logger.recorder.Recorder` explains its members."""

    def delivered(
        self,
        origin: str,
        origin_boot: int,
        sequence: int,
        topic: str,
        dispatching: str,
        sender: str,
        sent_ns: int,
        received_ns: int,
        hops: int,
        size: int,
        clients: int,
        sends: int,
        duplicate: bool = False,
    ) -> None: ...


class Tracing:
    """One per core. Without a witness nothing is recorded."""

    __slots__ = ("wall_ns", "witness")

    def __init__(self) -> None:
        self.witness: Witness | None = None
        """Gets the records. None: this peer records nothing."""
        self.wall_ns: Callable[[], int] = _no_clock
        """Nanoseconds since 1970."""

    def begin(self, witness: Witness, wall_ns: Callable[[], int]) -> None:
        """Record from now on. To be called before messages come."""
        self.witness, self.wall_ns = witness, wall_ns

    def begins(self, me: Peer, publication: Publication) -> None:
        """A client here publishes a message."""
        trace = publication.trace
        if trace is not None:
            # The clock is not read again: a second reading would give the first peer a latency of its own.
            trace.received(me.id, trace.sent_ns)

    def comes(self, sender: Peer, publication: Publication) -> None:
        trace = publication.trace
        if trace is not None:
            trace.received(sender.id, self.wall_ns())

    def ends(self, origin: Peer, publication: Publication, dispatching: str) -> None:
        """This peer has delivered the message and passed it on: record it."""
        trace = publication.trace
        if trace is not None and self.witness is not None:
            self.witness.delivered(
                origin.id.hex(),
                publication.boot,
                publication.seq,
                publication.topic,
                dispatching,
                trace.sender.hex(),
                trace.sent_ns,
                trace.received_ns,
                trace.hops,
                payload_bytes(publication.body),
                trace.clients,
                trace.sends,
                trace.duplicate,
            )


def _no_clock() -> int:
    """The time of a trace while nothing is recorded."""
    return 0
