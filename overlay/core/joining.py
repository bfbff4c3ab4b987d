"""Admission of joining peers: one gap of the ring, one joining peer at a time.

Peers that join the same gap at once can split a Pastry ring for ever (Lu, Merz, Weidenbach 2011). So a gap belongs
to the active peer at its counterclockwise end. It grants the gap to one joining peer, waits until that peer is active
or its time is over, and only then serves the next. `overlay.core.membership` is the joining peer's side.
"""

from __future__ import annotations

from typing import Final

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import MAX_HOPS, Admit, Grant, Peer

MAX_WAITING: Final = 4096
"""Joining peers that may queue for a gap; further peers ask again after join_s."""


class Gatekeeper:
    """Grants the gap clockwise of this peer. `admit` and `release` are its events."""

    __slots__ = ("_guest", "_state", "_until", "_waiting")

    def __init__(self, state: RingContext) -> None:
        self._state = state
        self._guest: Id | None = None
        self._until = 0.0
        self._waiting: dict[Id, Admit] = {}

    def admit(self, request: Admit) -> None:
        """Grant the gap, queue the request, or forward it to the peer whose gap it is."""
        state = self._state
        joiner = request.joiner
        if joiner.id == state.me.id:
            return
        if not state.active:
            # Only backwards, and never into the own queue: two restarted neighbours would wait for each other for ever.
            behind = (peer for peer in reversed(state.leaves.peers) if peer.id != joiner.id)
            self._forward(next(behind, None), request, back=True)
            return
        # A request that came back has passed an inactive neighbour, so the leaf set would send it there again.
        before = None if request.back else state.leaves.before(joiner.id)
        if before is not None:
            self._forward(before, request, back=False)
        # The guest asks again when its grant was lost on the way.
        elif self._guest in (None, joiner.id) or state.now >= self._until:
            self._grant(request)
        else:
            self._queue(request)

    def _forward(self, peer: Peer | None, request: Admit, *, back: bool) -> None:
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
        # No guest holds the gap for longer than that, or a joiner that died would keep all others out.
        self._extend()
        state.counters.joins_granted += 1
        # Its earlier incarnation may still be a member.
        leaves = tuple(peer for peer in state.leaves if peer.id != request.joiner.id)
        state.post(request.joiner, Grant(leaves, request.rows))

    def _extend(self) -> None:
        self._until = self._state.now + self._state.timing.grant_s
        self._state.timers.at(self._until, self._expire, self._guest)

    def _expire(self, now: float, subject: object) -> None:
        if self._guest == subject and now >= self._until:
            self.release(self._guest)

    def renew(self, joiner: Peer) -> bool:
        """Whether the gap is still reserved for this peer, as its probe asks; if so, for another grant_s from now."""
        if joiner.id != self._guest or not self._state.active or self._state.now >= self._until:
            return False
        self._extend()
        return True

    def release(self, guest: Id | None) -> None:
        """The guest is active, dead, or out of time: serve the queued requests."""
        if guest is not None and guest == self._guest:
            self._guest = None
            self.serve()

    def serve(self) -> None:
        """Decide all queued requests again. Also call it when this peer has become active."""
        # Emptied first: a request that still finds the gap taken queues again.
        waiting = list(self._waiting.values())
        self._waiting.clear()
        for request in waiting:
            self.admit(Admit(request.joiner, request.rows, request.hops, False))
