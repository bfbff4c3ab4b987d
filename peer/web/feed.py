"""The feed of events: the state of the ring each second, for the pages that are looked at.

All readers share one question to the ring, and nobody is asked while there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec

from ringmq.peer.administration.requests import MAX_ROWS, Request, Subject
from ringmq.peer.administration.rights import Asker
from ringmq.peer.web.exchanges import RefusedError
from ringmq.peer.web.http_server import Exchange

PERIOD_S: Final = 1.0
MAX_READERS: Final = 64

Ask = Callable[[Request, Asker, Callable[[bytes], None]], None]


class Feed:
    """One per HTTP server. `me` returns the id of this peer."""

    def __init__(self, ask: Ask, me: Callable[[], str]) -> None:
        self._ask = ask
        self._me = me
        self._readers: set[Callable[[bytes], bool]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._asking = False
        self._last = b""
        """The event that was sent last, so that a new reader need not wait."""

    def join(self, exchange: Exchange) -> None:
        """Send events on this connection from now on. Raises RefusedError."""
        if len(self._readers) >= MAX_READERS:
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"there are {MAX_READERS} readers of events already")

        def ended() -> None:
            self._readers.discard(send)

        send = exchange.stream((), ended)
        send(b"data: " + msgspec.json.encode({"me": self._me()}) + b"\n\n" + (self._last if self._readers else b""))
        self._readers.add(send)
        if self._timer is None:
            self._look()

    def close(self) -> None:
        """Ask no more. The server ends the connections."""
        if self._timer is not None:
            self._timer.cancel()
        self._readers.clear()

    def _look(self) -> None:
        self._timer = None
        if not self._readers:
            return
        self._timer = asyncio.get_running_loop().call_later(PERIOD_S, self._look)
        # While a peer is silent an answer takes longer than a period.
        if not self._asking:
            self._asking = True
            self._ask(Request(about=Subject.PEERS, limit=MAX_ROWS), Asker.READER, self._take)

    def _take(self, reply: bytes) -> None:
        self._asking = False
        self._last = event = b"data: " + reply + b"\n\n"
        for send in list(self._readers):
            if not send(event):
                self._readers.discard(send)
