"""Patience: how much longer than its timing a peer waits for others, as it is late itself, or they say that they are.

A peer that is short of processor time runs its timers late, answers late, and takes others for silent whose messages it
has not read yet. So it doubts itself first: by how late its own timers are, it waits longer before it holds others for
dead. And it tells its leaf set (`Late`), which waits as much longer for it. Both end by themselves some seconds after
the last late timer. Knows no suspicion.
"""

from __future__ import annotations

from math import inf
from typing import Final

from ringmq.overlay.core.context import RingContext
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import MAX_LATE_MS, Late, Peer

LEAST_LATE_S: Final = 0.1
"""A timer that is less late than this says nothing: a garbage collection or a commit may take as long."""
FACTOR: Final = 3.0
"""Waits are longer by this multiple of the lateness: an answer takes an iteration at each end, and the next iterations
may be longer."""
WINDOW_S: Final = 5.0
"""Late timers count for this time, and for as long again."""
GRANTED_S: Final = 10.0
"""For how long a `Late` counts after it has come. For its sender it counts from when it was sent, so it ends sooner."""
GROWTH: Final = 1.5
"""A peer that becomes later by this factor says so at once."""


class Patience:
    """One per ring core; part of its failure detector."""

    __slots__ = ("_before_s", "_granted", "_late_s", "_said_at", "_said_s", "_state", "_window_at")

    def __init__(self, state: RingContext) -> None:
        self._state = state
        self._late_s = self._before_s = 0.0
        """How late a timer was at most, in this window and in the window before."""
        self._window_at = -inf
        self._granted: dict[Id, tuple[float, float]] = {}
        """What members of the leaf set have asked for, and until when."""
        self._said_s, self._said_at = 0.0, -inf

    @property
    def own_s(self) -> float:
        """How much longer this peer waits for any other."""
        self._turn()
        late_s = max(self._late_s, self._before_s)
        return min(FACTOR * late_s, self._state.timing.most_late_s) if late_s > LEAST_LATE_S else 0.0

    def of(self, peer_id: Id) -> float:
        """How much longer this peer waits for another."""
        own_s = self.own_s
        granted_s, until = self._granted.get(peer_id, (0.0, -inf))
        return granted_s if granted_s > own_s and self._state.now < until else own_s

    @property
    def assured_s(self) -> float:
        """How much longer the leaf set waits for this peer: it was told so."""
        return self._said_s if self._state.now < self._said_at + GRANTED_S else 0.0

    def ran(self, late_s: float) -> None:
        """A timer ran so much after its time."""
        self._turn()
        if late_s > self._late_s:
            self._late_s = late_s
            if late_s > LEAST_LATE_S and self.own_s > GROWTH * self.assured_s:
                self._say()

    def _turn(self) -> None:
        """Begin another window when the present one is over."""
        now = self._state.now
        if now >= self._window_at + WINDOW_S:
            self._before_s = self._late_s if now < self._window_at + 2 * WINDOW_S else 0.0
            self._late_s = 0.0
            self._window_at = now

    def remind(self) -> None:
        """Call it with each heartbeat: what was said is said again before it ends, or else ends."""
        if self._state.now >= self._said_at + GRANTED_S / 2 and self.own_s:
            self._say()

    def _say(self) -> None:
        state = self._state
        self._said_s, self._said_at = self.own_s, state.now
        message = Late(min(int(self._said_s * 1000), MAX_LATE_MS))
        for peer in state.leaves:
            state.post(peer, message)

    def met(self, peer: Peer) -> None:
        """A peer has entered the leaf set: it must know what the others know."""
        if self.assured_s:
            self._state.post(peer, Late(min(int(self._said_s * 1000), MAX_LATE_MS)))

    def on_late(self, sender: Peer, message: Late) -> None:
        """Another peer is late: wait longer for it, within this peer's own bound."""
        state = self._state
        if sender.id in state.leaves:
            more_s = min(message.more_ms / 1000, state.timing.most_late_s)
            self._granted[sender.id] = more_s, state.now + GRANTED_S

    def left(self, peer_id: Id) -> None:
        """A peer has left the leaf set."""
        self._granted.pop(peer_id, None)
