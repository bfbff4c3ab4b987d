"""The streams between this peer and each other peer, by the boot of the other one.

Decides which boot counts, and which streams are over. Sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

from ringmq.overlay.core.messages import Peer
from ringmq.peer.streams.incoming_stream import IncomingStream
from ringmq.peer.streams.outgoing_stream import OutgoingStream

MAX_CLOSED: Final = 4096
"""Closed pairs whose old streams are still refused by number, the oldest forgotten first: the peers that may be thought
dead, and come back, within the time that a batch can be late."""


MOST_LATE: Final = 32
"""Messages of a boot that is over which may still come: some windows of batches, and their acknowledgements."""


class Pair:
    """This peer and one boot of another."""

    __slots__ = ("boot", "denied", "false_boot", "heard", "heard_at", "incoming", "outgoing", "peer", "refused")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.boot = peer.boot
        self.heard = False
        """Whether this boot has sent anything. Otherwise it is known from others, who may be wrong."""
        self.heard_at = -inf
        """When it has sent something for the last time."""
        self.denied = 0
        """Messages of an earlier boot since then, while nothing was heard of this one."""
        self.false_boot = 0
        """A higher boot that others have named and the peer itself has denied: up to it, only the peer is believed."""
        self.outgoing: OutgoingStream | None = None
        """A closed stream stays here until `lost` has been called: items sent meanwhile are lost with it."""
        self.incoming: IncomingStream | None = None
        self.refused = 0
        """Streams of the peer up to this number were closed here."""

    @property
    def used(self) -> bool:
        """Whether the end of this pair is a loss: something was sent, or something came."""
        # The loss of a closed stream has been reported, or soon will be.
        sent = self.outgoing is not None and not self.outgoing.closed
        return sent or (self.incoming is not None and self.incoming.used)

    def begin(self, number: int, known: bool) -> IncomingStream | None:
        """The stream that a batch with this number belongs to. None: it is older, closed here, or forgotten.

        `known`: this peer has acknowledged a batch of it.
        """
        incoming = self.incoming
        if incoming is not None and number <= incoming.number:
            return incoming if number == incoming.number else None
        # This peer knows nothing of batches that it has acknowledged: it has forgotten them, whatever the number says.
        # A new stream whose first batch got lost has no acknowledgement yet.
        if number <= self.refused or known:
            return None
        if incoming is not None:
            incoming.closed = True
        self.incoming = IncomingStream(self.peer, number)
        return self.incoming

    def forgets(self, number: int) -> bool:
        """Whether the sender of a stream that `begin` has no place for must begin another: no later one has come."""
        return self.incoming is None or number > self.incoming.number

    def refuse(self) -> None:
        """Close the incoming stream. Its batches that come late are not processed."""
        if self.incoming is not None:
            self.incoming.closed = True
            self.refused = self.incoming.number
            self.incoming = None

    def close(self) -> None:
        if self.outgoing is not None:
            self.outgoing.close()
            self.outgoing = None
        self.refuse()


class PairTable:
    """One per engine."""

    __slots__ = ("_closed", "_lose", "by_id")

    def __init__(self, lose: Callable[[Peer], None]) -> None:
        """`lose` is called with the older boot of a peer that has started again, if it was in use."""
        self._lose = lose
        self.by_id: dict[int, Pair] = {}
        """A peer that starts again replaces its older boot."""
        self._closed: dict[int, None] = {}
        """Ids of closed pairs, the oldest first."""

    def meet(self, peer: Peer, heard: bool = False) -> Pair | None:
        """The pair with this boot of a peer, a new one if it is the first, or higher than the known one. None: a boot
        that is over, or that only others name while the peer itself says otherwise.

        `heard`: the peer itself has sent something just now. If it goes on so, it has this boot, whatever others say.
        """
        known = self.by_id.get(peer.id)
        if known is not None:
            if known.boot == peer.boot:
                known.heard |= heard
                return known
            if known.boot > peer.boot:
                known.denied += heard and not known.heard
                if known.denied <= MOST_LATE:
                    return None
                return self._replace(known, peer, heard, false_boot=known.boot)
            if not heard and peer.boot <= known.false_boot:
                return None
        return self._replace(known, peer, heard)

    def deny(self, peer: Peer) -> Pair:
        """The peer itself has answered what was sent to a higher boot of it: others were wrong about that one."""
        known = self.by_id[peer.id]
        return self._replace(known, peer, heard=True, false_boot=known.boot)

    def _replace(self, known: Pair | None, peer: Peer, heard: bool, false_boot: int = 0) -> Pair:
        if known is not None:
            if known.used:
                self._lose(known.peer)
            known.close()
            self._closed.pop(peer.id, None)
        pair = self.by_id[peer.id] = Pair(peer)
        pair.heard, pair.false_boot = heard, false_boot
        return pair

    def close(self, peer: Peer) -> None:
        """Close the pair with this boot of a peer, or with an earlier one. Its number of refused streams stays."""
        pair = self.by_id.get(peer.id)
        if pair is not None and pair.boot <= peer.boot:
            pair.close()
            self._closed.pop(peer.id, None)
            self._closed[peer.id] = None
            if len(self._closed) > MAX_CLOSED:
                self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = next(iter(self._closed))
        del self._closed[oldest]
        pair = self.by_id[oldest]
        # It may have come back since.
        if pair.outgoing is None and pair.incoming is None:
            del self.by_id[oldest]
