"""Outbound links being opened: one dial per peer, with a bounded queue of messages for it.

Notifies `overlay.links.table` of failed dials. The table finishes a successful dial when the HELLO comes back.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.links.frames import DROPPABLE, HEADER_BYTES, Kind
from ringmq.overlay.links.handshake import LinkState, Reason
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.link import Link, Switchboard
from ringmq.overlay.links.phase import Phase
from ringmq.overlay.queries import cause, tls_options

MessageQueue = list[tuple[Kind, bytes]]

REDIALS: Final = 20
"""Repetitions, within handshake_s, of a dial that was refused as a duplicate, in case the other side's dial fails."""
_OUT_OF_SOCKETS: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL})
"""Shortages of this machine, which say nothing about the peer."""


@dataclass(slots=True, eq=False)
class Dial:
    """The opening of a link to one peer, with the messages that wait for it."""

    peer: Peer
    task: asyncio.Task[None] | None = None
    link: Link | None = None
    """The attempt under way."""
    over: asyncio.Future[tuple[Reason, str]] | None = None
    """The end of that attempt, unless it became a link."""
    queue: MessageQueue = field(default_factory=list)
    queued_bytes: int = 0

    def add(self, kind: Kind, body: bytes) -> None:
        self.queue.append((kind, body))
        self.queued_bytes += HEADER_BYTES + len(body)

    @property
    def greeted(self) -> bool:
        """Whether our HELLO was sent and not refused yet."""
        return self.link is not None and self.link.transport is not None and self.link.phase is Phase.STRANGER


class Dialer:
    """Calls `failed(peer, why, refused, parcels)` for each failed dial, with the parcels that waited for it.

    All other queued messages are lost.
    """

    def __init__(
        self,
        config: OverlayConfig,
        board: Switchboard,
        incidents: Incidents,
        failed: Callable[[Peer, str, bool, list[bytes]], None],
    ) -> None:
        self._config = config
        self._board = board
        self._incidents = incidents
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._dials: dict[Id, Dial] = {}
        self._unreachable: dict[Id, float] = {}
        """Peers that could not be dialled, and the time until which parcels for them are refused. At most max_dials."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def state_of(self, peer: Id) -> LinkState:
        dial = self._dials.get(peer)
        if dial is None:
            return LinkState.APART
        return LinkState.GREETED if dial.greeted else LinkState.CONNECTING

    def room(self, peer: Id) -> int:
        """Bytes of parcels that would be queued for this peer's link."""
        dial = self._dials.get(peer)
        return max(0, self._config.max_link_buffer_bytes - (dial.queued_bytes if dial is not None else 0))

    def enqueue(self, peer: Peer, kind: Kind, body: bytes) -> bool:
        """Queue a message for a peer without a link, and dial the peer if it is not dialled yet. False: refused."""
        dial = self._dials.get(peer.id)
        if (
            dial is not None
            and peer.boot > dial.peer.boot
            and (peer.host, peer.port) != (dial.peer.host, dial.peer.port)
        ):
            # It has started again at another address, so the old dial would fail.
            queue = self.finish(peer.id)
            dial = self._start(peer)
            for message in queue:
                dial.add(*message)
        elif dial is None:
            # Parcels only: a ping must still find out whether the peer lives.
            paused = kind == Kind.PARCEL and self._unreachable.get(peer.id, 0.0) > self._loop.time()
            if paused or self._closed or len(self._dials) >= self._config.max_dials:
                return False
            dial = self._start(peer)
        size = HEADER_BYTES + len(body)
        limit = self._config.max_link_buffer_bytes
        # The first message is queued in any size, as max_frame_bytes bounds it.
        if dial.queue and dial.queued_bytes + size > (limit if kind in DROPPABLE else limit + limit // 4):
            return False
        dial.add(kind, body)
        return True

    def finish(self, peer: Id, link: Link | None = None) -> MessageQueue:
        """End the dial to this peer, as `link` is open or another dial replaces it. Returns its queue."""
        dial = self._dials.pop(peer, None)
        if dial is None:
            return []
        if dial.task is not None and dial.link is not link:
            dial.task.cancel()
        if dial.link is not None and dial.link is not link:
            dial.link.close(Reason.DUPLICATE)
        if dial.over is not None and not dial.over.done():
            dial.over.cancel()
        return dial.queue

    def ended(self, link: Link, reason: Reason, detail: str) -> None:
        """A dialled connection has ended before it became a link."""
        dial = self._dials.get(link.dialled.id) if link.dialled is not None else None
        if dial is not None and dial.link is link and dial.over is not None and not dial.over.done():
            dial.over.set_result((reason, detail))

    async def close(self) -> None:
        """Start no further dial, and wait a little for the present ones; the rest is given up without `failed`."""
        self._closed = True
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=self._config.linger_s / 2)
        for peer in list(self._dials):
            self.finish(peer)
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _start(self, peer: Peer) -> Dial:
        dial = Dial(peer)
        self._dials[peer.id] = dial
        self._incidents.count("dials")
        dial.task = self._loop.create_task(self._run(dial), name=f"dial {peer}")
        self._tasks.add(dial.task)
        dial.task.add_done_callback(self._tasks.discard)
        return dial

    async def _run(self, dial: Dial) -> None:
        why, refused = "no answer in time", True
        try:
            async with asyncio.timeout(self._config.handshake_s):
                reason, why = await self._attempt(dial)
                while reason is Reason.DUPLICATE:
                    # The other side dials us, or holds a link for open that we lost. Both will end.
                    await asyncio.sleep(self._config.handshake_s / REDIALS)
                    reason, why = await self._attempt(dial)
                refused = reason is not Reason.FULL  # A peer that answers with FULL is alive.
        except (OSError, UnicodeError, OverflowError) as error:
            why = cause(error)
            refused = not (isinstance(error, OSError) and error.errno in _OUT_OF_SOCKETS)
        except Exception:  # noqa: BLE001 - a task's root: logged and counted
            self._incidents.failed("dial_errors")
        if self._dials.get(dial.peer.id) is dial:
            self._fail(dial, why, refused)

    async def _attempt(self, dial: Dial) -> tuple[Reason, str]:
        """Dial once. Returns the end of the connection, if it did not become a link."""
        link = dial.link = Link(self._board, self._config, dial.peer)
        over = dial.over = self._loop.create_future()
        connected = False
        try:
            tls = tls_options(self._config.credentials, self._config.handshake_s)
            await self._loop.create_connection(lambda: link, dial.peer.host, dial.peer.port, **tls)
            connected = True
            end: tuple[Reason, str] = await over
        finally:
            if not connected:
                # uvloop closes the transport of a cancelled dial without a call to its protocol.
                link.abort()
                link.connection_lost(None)
            elif link.phase is Phase.STRANGER:
                link.close(Reason.SLOW)
        return end

    def _fail(self, dial: Dial, why: str, refused: bool) -> None:
        del self._dials[dial.peer.id]
        now = self._loop.time()
        # Only a full table is worth the search for expired entries.
        if len(self._unreachable) >= self._config.max_dials:
            self._unreachable = {peer: until for peer, until in self._unreachable.items() if until > now}
        if len(self._unreachable) < self._config.max_dials:
            self._unreachable[dial.peer.id] = now + self._config.redial_s
        parcels = [body for kind, body in dial.queue if kind == Kind.PARCEL]
        self._incidents.count("parcels_lost", len(parcels))
        self._incidents.count("messages_lost", len(dial.queue) - len(parcels))
        self._failed(dial.peer, why, refused, parcels)
