"""A survey: one request to all peers of a ring, of which nobody knows all members.

The peer that was asked asks the peers of its leaf set, and then all that the answers name in their leaf sets, until
nobody new is named: leaf sets overlap, so that is the whole ring. The routing table is a hint that saves rounds in a
large ring: its peers are asked at once, but not waited for unless a leaf set names them.

Owns whom to ask, the rows that have come, and when the answer is complete. No socket and no clock: its owner sends a
question to each peer of `take_asked`, calls `page` and `tick`, and looks at `done`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from ringmq.overlay.config import show
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.peer.administration.requests import Missing, NamedPeer, Page, Reply, Request, RequestError, checked_row

SILENT_S: Final = 1.5
"""How long a peer may say nothing before the answer goes on without it: above the time in which TCP repeats a lost
packet (1 s). Such a peer is named in the answer."""
ALL_S: Final = 2.5
"""How long a survey may take. Whoever asks waits for 3 s (`handshake_s`)."""
MAX_PEERS: Final = 1500
"""Peers that are asked. Each may need a link of its own, and there are 2,048 of them."""
MAX_UNASKED: Final = 100_000
"""Peers that are counted beyond them."""
MAX_AT_ONCE: Final = 128
"""Peers that are asked at the same time: each may need a dial, and sends a page of up to 256 KiB."""
MAX_REPLY_BYTES: Final = 16 << 20
"""Bytes of rows; some 50,000 clients. Further rows are left out, and counted."""

NO_ANSWER: Final = "no answer"
UNFINISHED: Final = "did not finish its answer"
UNASKED: Final = "not asked in time"


class Survey:
    """Call `begin`, and then the others."""

    def __init__(self, request: Request, now: float) -> None:
        self.request = request
        self._began_at = now
        self._members: set[Id] = set()
        """Peers that a leaf set has named, or that have answered."""
        self._waited_for: set[Id] = set()
        """Those of them that have not finished."""
        self._queue: dict[Id, Peer] = {}
        """Peers that are not asked yet."""
        self._heard_at: dict[Id, float] = {}
        """Peers that are asked and have not finished, with the time at which they were asked or last heard."""
        self._answered: set[Id] = set()
        self._begun: set[Id] = set()
        """Peers of which a page has come."""
        self._failed: dict[Id, str] = {}
        """Peers that will not be waited for, and why."""
        self._named: dict[Id, Peer] = {}
        """All of them."""
        self._rows: list[bytes] = []
        self._bytes = 0
        self._total = 0
        self._unasked: set[Id] = set()

    def begin(self, me: Peer, leaves: Iterable[Peer], hints: Iterable[Peer]) -> None:
        """Ask this peer itself, those of its leaf set, and perhaps some that lie far away."""
        self._add((me, *leaves), member=True)
        self._add(hints, member=False)

    def _add(self, peers: Iterable[Peer], member: bool) -> None:
        for peer in peers:
            known = self._named.get(peer.id)
            if known is None and len(self._named) >= MAX_PEERS:
                if member and len(self._unasked) < MAX_UNASKED:
                    self._unasked.add(peer.id)
                continue
            if known is None or known.boot < peer.boot:
                self._named[peer.id] = peer
                # A later start of a peer replaces its address, unless it is asked already.
                if known is None or peer.id in self._queue:
                    self._queue[peer.id] = peer
            if member:
                self._wait_for(peer.id)

    def _wait_for(self, peer: Id) -> None:
        if peer not in self._members:
            self._members.add(peer)
            if peer not in self._failed:
                self._waited_for.add(peer)

    def take_asked(self, now: float) -> list[Peer]:
        """The peers that must be asked now."""
        asked: list[Peer] = []
        while self._queue and len(self._heard_at) < MAX_AT_ONCE:
            # The first that was named: members of leaf sets near this peer, then hints, then their neighbours.
            peer_id = next(iter(self._queue))
            peer = self._queue.pop(peer_id)
            self._heard_at[peer_id] = now
            asked.append(peer)
        return asked

    def page(self, sender: Peer, page: Page, leaves: Iterable[Peer], last: bool, now: float) -> None:
        """A page of an answer has come."""
        if sender.id not in self._heard_at:
            return
        self._heard_at[sender.id] = now
        self._begun.add(sender.id)
        self._wait_for(sender.id)
        self._add(leaves, member=True)
        try:
            for row in page.rows:
                self._take_row(checked_row(self.request.about, row, sender.id.hex()))
        except RequestError as error:
            self._give_up(sender.id, str(error))
            return
        if page.fault:
            self._give_up(sender.id, page.fault)
        elif last:
            self._finish(sender.id)
            self._answered.add(sender.id)
            self._total += max(0, page.total)

    def _take_row(self, row: bytes) -> None:
        if len(self._rows) < self.request.limit and self._bytes + len(row) <= MAX_REPLY_BYTES:
            self._rows.append(row)
            self._bytes += len(row)

    def unreadable(self, sender: Peer, why: str) -> None:
        """A peer has sent no page."""
        if sender.id in self._heard_at:
            self._give_up(sender.id, why)

    def _give_up(self, peer: Id, why: str) -> None:
        self._finish(peer)
        self._failed[peer] = why

    def _finish(self, peer: Id) -> None:
        self._heard_at.pop(peer, None)
        self._queue.pop(peer, None)
        self._waited_for.discard(peer)

    def tick(self, now: float) -> None:
        """Give up peers that have been silent for too long, and at the end all that have not answered."""
        over = now >= self._began_at + ALL_S
        for peer, heard_at in list(self._heard_at.items()):
            if over or now >= heard_at + SILENT_S:
                self._give_up(peer, UNFINISHED if peer in self._begun else NO_ANSWER)
        if over:
            for peer in list(self._queue):
                self._give_up(peer, UNASKED)

    @property
    def done(self) -> bool:
        """Whether all that leaf sets name have answered or were given up."""
        return not self._waited_for

    def reply(self, now: float) -> bytes:
        """The answer as JSON. Peers that only a routing table names may be gone for long: they are not missing."""
        missing = [
            Missing(peer=peer.hex(), address=show((named.host, named.port)), why=self._failed[peer])
            for peer, named in self._named.items()
            if peer in self._failed and peer in self._members
        ]
        return msgspec.json.encode(
            Reply(
                rows=[msgspec.Raw(row) for row in self._rows],
                total=max(self._total, len(self._rows)),
                peers=[
                    NamedPeer(peer.hex(), show((named.host, named.port)))
                    for peer, named in self._named.items()
                    if peer in self._answered
                ],
                missing=missing,
                unasked=len(self._unasked),
                took_ms=round(1000 * (now - self._began_at), 1),
            )
        )
