"""Client ids whose connections throw each other out: two clients have the same id, and each connects again when it is
closed.

Each further takeover within some seconds makes the next CONNECT wait longer, so that they do not keep the ring busy.
Counts takeovers at this peer, and knows neither connections nor timers.
"""

from __future__ import annotations

from typing import Final

PATIENT_TAKEOVERS: Final = 3
"""So many in `WINDOW_S` cost nothing: a client that moves from peer to peer may be as quick."""
WINDOW_S: Final = 10.0
FIRST_WAIT_S: Final = 1.0
"""Doubled with each further takeover, up to the longest wait. The front looks once a second."""
LONGEST_WAIT_S: Final = 5.0
MOST_RIVALS: Final = 10_000
"""Client ids whose takeovers are remembered; the oldest are forgotten first. An attacker who uses more has as many
connections, which have bounds of their own."""


class Rivals:
    """One per broker."""

    __slots__ = ("_named", "_news", "_takeovers")

    def __init__(self) -> None:
        self._takeovers: dict[str, list[float]] = {}
        """The times of the last takeovers of each client id."""
        self._named: set[str] = set()
        self._news: list[str] = []

    def taken_over(self, client_id: str, now: float) -> None:
        """A connection with this client id was closed, as another client has connected with it."""
        times = [at for at in self._takeovers.pop(client_id, ()) if at > now - WINDOW_S]
        # More would make no difference.
        self._takeovers[client_id] = [*times[-2 * PATIENT_TAKEOVERS :], now]
        if len(self._takeovers) > MOST_RIVALS:
            oldest = next(iter(self._takeovers))
            del self._takeovers[oldest]
            self._named.discard(oldest)

    def wait_s(self, client_id: str, now: float) -> float:
        """How long a CONNECT with this client id waits."""
        recent = sum(at > now - WINDOW_S for at in self._takeovers.get(client_id, ()))
        if recent < PATIENT_TAKEOVERS:
            return 0.0
        if client_id not in self._named:
            self._named.add(client_id)
            self._news.append(client_id)
        return min(LONGEST_WAIT_S, FIRST_WAIT_S * (1 << recent - PATIENT_TAKEOVERS))

    def take_news(self) -> list[str]:
        """Client ids that wait for the first time, for the log."""
        news, self._news = self._news, []
        return news
