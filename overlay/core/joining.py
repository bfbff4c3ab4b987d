"""Letting others in: one gap of the ring, one joining peer at a time.

Peers that join the same gap at once can split a Pastry ring for ever (Lu, Merz, Weidenbach 2011). So a gap belongs
to the active peer at its counterclockwise end, which grants it to one joining peer, waits until that one is active
or its time is over, and only then serves the next. What a granted peer does is `overlay.core.membership`'s business.
"""

from __future__ import annotations

from typing import Final

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import MAX_HOPS, Admit, Grant, Peer

MAX_WAITING: Final = 4096
"""Joining peers that may queue for a gap; those beyond ask again after join_s."""


class Gatekeeper:
    """Grants the gap clockwise of this peer. `admit` and `released` are its events."""

    __slots__ = ("_guest", "_state", "_until", "_waiting")

    def __init__(self, state: RingContext) -> None:
        self._state = state
        self._guest: Id | None = None
        self._until = 0.0
        self._waiting: dict[Id, Admit] = {}

    def admit(self, request: Admit) -> None:
        """Grant the gap, queue for it, or hand the request on to whose gap it is."""
        state = self._state
        joiner = request.joiner
        if joiner.id == state.me.id:
            return
        if not state.active:
            # Two restarted neighbours that waited for each other here would wait for ever.
            behind = (peer for peer in reversed(state.leaves.peers) if peer.id != joiner.id)
            self._hand_on(next(behind, None), request, back=True)
            return
        before = None if request.back else state.leaves.before(joiner.id)
        if before is not None:
            self._hand_on(before, request, back=False)
        elif self._guest in (None, joiner.id) or state.now >= self._until:
            self._grant(request)
        else:
            self._queue(request)

    def _hand_on(self, peer: Peer | None, request: Admit, *, back: bool) -> None:
        if request.hops >= MAX_HOPS:
            self._state.counters.looped += 1
        elif peer is not None:
            self._state.post(peer, Admit(request.joiner, request.rows, request.hops + 1, back))

    def _queue(self, request: Admit) -> None:
        if len(self._waiting) < MAX_WAITING or request.joiner.id in self._waiting:
            self._waiting[request.joiner.id] = request
        else:
            self._state.counters.overflowed += 1

    def _grant(self, request: Admit) -> None:
        state = self._state
        self._waiting.pop(request.joiner.id, None)
        self._guest = request.joiner.id
        self._extend()
        state.counters.joins_granted += 1
        leaves = tuple(peer for peer in state.leaves if peer.id != request.joiner.id)
        state.post(request.joiner, Grant(leaves, request.rows))

    def _extend(self) -> None:
        self._until = self._state.now + self._state.timing.grant_s
        self._state.timers.at(self._until, self._expire, self._guest)

    def _expire(self, now: float, subject: object) -> None:
        if self._guest == subject and now >= self._until:
            self.released(self._guest)

    def confirm(self, joiner: Peer) -> bool:
        """Whether the gap is still this one's, as its probe asks; if so, for another grant_s from now."""
        if joiner.id != self._guest or not self._state.active or self._state.now >= self._until:
            return False
        self._extend()
        return True

    def released(self, guest: Id | None) -> None:
        """The guest is active, dead, or out of time: serve those who wait."""
        if guest is not None and guest == self._guest:
            self._guest = None
            self.serve()

    def serve(self) -> None:
        """Look at all who wait again; also to be called when this peer has become active."""
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for request in waiting:
            self.admit(Admit(request.joiner, request.rows, request.hops, False))
