"""What a peer records of the messages that their origins have chosen: one record for each copy that comes here.

Knows neither a clock nor where records go: the shell hands in both. Nothing is done for a message that bears no trace.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ringmq.overlay.core.messages import Peer
from ringmq.peer.messaging.body import payload_bytes
from ringmq.peer.messaging.publication import Publication


class Witness(Protocol):
    """Who records: `logger.recorder.Recorder` says what its members are."""

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
        """A client here publishes it: its origin has it from nobody else."""
        trace = publication.trace
        if trace is not None:
            trace.sender, trace.received_ns = me.id, trace.sent_ns

    def comes(self, sender: Peer, publication: Publication) -> None:
        trace = publication.trace
        if trace is not None:
            trace.sender, trace.received_ns = sender.id, self.wall_ns()

    def ends(self, origin: Peer, publication: Publication, dispatching: str) -> None:
        """All has been done here that there was to do: record it."""
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
