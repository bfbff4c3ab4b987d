"""One connection to another peer: frames in and out, bounded both ways, and an orderly end.

A thin asyncio protocol. Who may talk, and which of two connections stays, `overlay.links.table` decides; it is told of
each HELLO, each message and the end. Outgoing frames are gathered and written once per turn of the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from enum import Enum, auto
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Final, Protocol, cast

from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.codec import decode
from ringmq.overlay.core.messages import Message, Peer
from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.iteration import IterationOwner
from ringmq.overlay.links.emulated_latency import DelayLine
from ringmq.overlay.links.frames import HEADER_BYTES, FrameReader, Kind, header
from ringmq.overlay.links.handshake import (
    HARMLESS,
    MAX_HELLO_BYTES,
    Hello,
    Reason,
    decode_goodbye,
    decode_hello,
    encode_goodbye,
)

LONG_S: Final = 0.05
"""What came in one go takes longer than this: all others, and what is due, come before the rest of it, and before more
is read. uvloop would read on, up to 8 MB, which takes seconds where each message is a small one."""
LARGE_BYTES: Final = 4096
"""Only after such frames is it asked how late it is."""
WRITE_BYTES: Final = 256 * 1024
"""So much gathered is written at once instead of at the end of the turn, so that the socket can take it meanwhile."""
_PARCEL: Final = int(Kind.PARCEL)


class Phase(Enum):
    STRANGER = auto()
    """No HELLO of the other side was accepted yet."""
    OPEN = auto()
    CLOSING = auto()
    """We said GOODBYE for a harmless reason, and hear out what the other side sent before it knew."""
    CLOSED = auto()
    """Nothing goes in or out any more, except what the socket still has to write."""


class Switchboard(Protocol):
    """Whom a link tells."""

    iteration: IterationOwner

    def connected(self, link: Link) -> None: ...
    def greeted(self, link: Link, hello: Hello | None) -> None:
        """A HELLO came in; None: of another version."""

    def asked(self, link: Link, about: bytes) -> None:
        """A STATUS_REQUEST came in."""

    def received(self, sender: Peer, message: Message) -> None: ...
    def parcel(self, sender: Peer, payload: bytes) -> None: ...
    def settled(self) -> None:
        """All frames of one read were handed over."""

    def faulty(self, link: Link, why: str) -> None:
        """The other side broke the protocol; `ended` follows."""

    def ended(self, link: Link, reason: Reason, detail: str) -> None:
        """The link is not open any more, or never will be. Called once; the socket may take longer."""

    def vanished(self, link: Link) -> None:
        """The socket is closed."""


class Link(asyncio.Protocol):
    """Inbound, or dialled to a peer. `peer` is set once the link is open."""

    __slots__ = (
        "_board", "_breathing", "_config", "_ended", "_flushing", "_gathered", "_introduced_as", "_iteration", "_line",
        "_loop", "_most_bytes", "_out", "_reader", "_rest", "_timer", "_unsent", "_wake", "_wanted",
        "bytes_in", "bytes_out", "dialled", "frames_in", "frames_out", "idle_rounds", "opened_at", "peer", "phase",
        "seen_frames", "transport",
    )  # fmt: skip

    def __init__(self, board: Switchboard, config: OverlayConfig, dialled: Peer | None) -> None:
        self._board = board
        self._config = config
        self._most_bytes = config.max_link_buffer_bytes
        self._loop = asyncio.get_running_loop()
        self._iteration = board.iteration
        self._reader = FrameReader(MAX_HELLO_BYTES)
        self._timer: asyncio.TimerHandle | None = None
        self._wake: asyncio.TimerHandle | None = None
        self._line: DelayLine | None = None
        self._out: list[bytes] = []
        self._gathered = self._unsent = 0
        self._flushing = self._ended = False
        self._wanted = True
        """Whether the node wants to hear more."""
        self._breathing = False
        """Whether all others have their turn before this link goes on."""
        self._rest: Iterator[tuple[int, bytes]] | None = None
        """Frames that wait for that."""
        self._introduced_as: Peer | None = None
        self.transport: asyncio.Transport | None = None
        self.dialled = dialled
        self.peer: Peer | None = None
        self.phase = Phase.STRANGER
        self.opened_at = 0.0
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self.seen_frames = self.idle_rounds = 0
        """The sweep's notes: traffic when it last came by, and how often it found no more."""

    # -- what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        if self.phase is Phase.CLOSED:  # given up while it connected
            self.transport.abort()
            return
        self._set_timer(self._config.handshake_s, partial(self.close, Reason.SLOW))
        self._board.connected(self)

    def data_received(self, data: bytes) -> None:
        if self.phase is Phase.CLOSED:
            return
        self._iteration.begin()
        self.bytes_in += len(data)
        frames = self._reader.feed(data)
        if self._rest is None:
            self._take(frames)
        else:
            self._rest = chain(self._rest, frames)

    def _take(self, frames: Iterator[tuple[int, bytes]]) -> None:
        """As many as there is time for now, and the others when all else has had its turn."""
        began = perf_counter()
        try:
            for kind, body in frames:
                self.frames_in += 1
                if kind == _PARCEL and self.peer is not None:
                    self._board.parcel(self.peer, body)
                else:
                    self._frame(kind, body)
                if self.phase is Phase.CLOSED:
                    break
                if len(body) > LARGE_BYTES and perf_counter() - began > LONG_S:
                    self._rest = frames
                    break
        except ProtocolError as error:
            self._board.faulty(self, str(error))
            self.close(Reason.PROTOCOL, str(error))
        self._board.settled()
        if not self._breathing and perf_counter() - began > LONG_S:
            self._breathing = True
            self._set_reading()
            self._iteration.continuations.append(self._go_on)

    def _go_on(self) -> None:
        self._iteration.begin()
        self._breathing = False
        rest, self._rest = self._rest, None
        if rest is not None and not self.closed:
            self._take(rest)
        self._set_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._iteration.begin()
        self.phase = Phase.CLOSED
        for timer in (self._timer, self._wake):
            if timer is not None:
                timer.cancel()
        self._out.clear()
        self._line = None
        self._board.vanished(self)
        self._end(Reason.BROKEN, str(exc or "closed by the other side"))

    # -- in

    @property
    def closed(self) -> bool:
        return self.phase is Phase.CLOSED

    def _frame(self, kind: int, body: bytes) -> None:
        if kind == Kind.PARCEL or kind == Kind.CONTROL:
            if self.peer is None:
                raise ProtocolError("a message before the handshake")
            self._board.received(self.peer, decode(body))
        elif kind == Kind.GOODBYE:
            reason, text = decode_goodbye(body)
            self._hang_up()  # the other side still hears what we have queued
            self._end(reason, text)
        elif self.phase is Phase.CLOSING:
            pass  # sent before our GOODBYE arrived; only messages matter now
        elif kind == Kind.HELLO:
            self._board.greeted(self, decode_hello(body))
        elif kind == Kind.STATUS_REQUEST and self.peer is None and self.dialled is None:
            self._board.asked(self, body)
        else:
            raise ProtocolError(f"a {Kind(kind).name} frame where none belongs")

    def set_reading(self, on: bool) -> None:
        """Let the other side wait. Its heartbeats wait as well: longer than silence_s, and it is taken for dead."""
        self._wanted = on
        self._set_reading()

    def _set_reading(self) -> None:
        on = self._wanted and not self._breathing
        if self.transport is not None and not self.transport.is_closing():
            (self.transport.resume_reading if on else self.transport.pause_reading)()

    # -- out

    def send(self, kind: Kind, body: bytes) -> bool:
        """Queue a frame. False: a parcel found no room, or a control message none either: the link is stuck, closed."""
        size = HEADER_BYTES + len(body)
        if self._line is not None or self._gathered + self._unsent + size > self._most_bytes:
            control = kind != Kind.PARCEL
            if size > self.room(control) and self.queued_bytes:
                if control:
                    self.close(Reason.STUCK)
                return False
        self._put(header(kind, size - HEADER_BYTES), body)
        return True

    def room(self, control: bool = False) -> int:
        """How many bytes may be sent now; a larger frame is taken only when nothing else waits."""
        self._unsent = self.transport.get_write_buffer_size() if self.transport is not None else 0
        limit = self._most_bytes
        return limit + (limit // 4 if control else 0) - self.queued_bytes

    @property
    def queued_bytes(self) -> int:
        """What waits here, at most: the socket may have taken some of it since the last flush."""
        return self._gathered + self._unsent + (self._line.held_bytes if self._line is not None else 0)

    @property
    def delay_s(self) -> float:
        """The emulated latency."""
        return self._line.delay_s if self._line is not None else 0.0

    def introduced_as(self, me: Peer) -> bool:
        """Whether the other side was told this very address of ours."""
        return self._introduced_as is me

    def say_hello(self, me: Peer, body: bytes) -> None:
        self._introduced_as = me
        self._put(header(Kind.HELLO, len(body)), body)

    def answer(self, kind: Kind, body: bytes) -> None:
        """To one that only asks: the reply, and the end."""
        self._put(header(kind, len(body)), body)
        self.close(Reason.INTRODUCED)

    def _put(self, head: bytes, body: bytes) -> None:
        self.frames_out += 1
        if self._line is not None:
            self._line.push(head + body, self._loop.time())
            if self._wake is None:
                self._wake = self._loop.call_later(self._line.delay_s, self._release)
            return
        self._out.append(head)
        self._out.append(body)
        self._gathered += len(head) + len(body)
        if self._gathered >= WRITE_BYTES:
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._iteration.begin()
            self._iteration.flushes.append(self._flush)

    def _flush(self) -> None:
        """At the end of an iteration, or before it when much has gathered: then the call at the end finds nothing."""
        self._flushing = False
        if self.transport is None or not self._out:
            return
        out, self._out = self._out, []
        self.bytes_out += self._gathered
        self._gathered = 0
        if not self.transport.is_closing():
            self.transport.writelines(out)
            self._unsent = self.transport.get_write_buffer_size()

    def _release(self) -> None:
        """The emulated latency of some frames is over."""
        self._wake = None
        if self._line is None:
            return
        now = self._loop.time()
        self._gather(self._line.due(now))
        if self._line.deadline is not None:
            self._wake = self._loop.call_later(self._line.deadline - now, self._release)

    def _gather(self, chunks: list[bytes]) -> None:
        self._out += chunks
        self._gathered += sum(map(len, chunks))
        self._flush()

    # -- life

    def open(self, peer: Peer, delay_s: float | None) -> None:
        """The handshake is done: messages and larger frames from now on."""
        assert self.phase is Phase.STRANGER
        self._cancel_timer()
        self.peer = peer
        self.phase = Phase.OPEN
        self.opened_at = self._loop.time()
        self._reader.max_frame_bytes = self._config.max_frame_bytes
        self._break_when_silent()
        if delay_s:
            self._flush()
            self._line = DelayLine(delay_s)

    def _break_when_silent(self) -> None:
        """What nobody acknowledges for as long as it takes to declare a peer dead breaks the link, where the system can
        see to that. TCP alone would send it again ever more seldom, and find out minutes after a network has healed.
        """
        timing = self._config.timing
        if self.transport is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            after_ms = round(1000 * (timing.silence_s + timing.fastest_verdict_s))
            with contextlib.suppress(OSError, AttributeError):
                connection = self.transport.get_extra_info("socket")
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, after_ms)

    def close(self, reason: Reason, detail: str = "") -> None:
        """Say GOODBYE and end. For a harmless reason what is on its way here is still received, for linger_s."""
        if self.phase is Phase.CLOSED or (self.phase is Phase.CLOSING and reason in HARMLESS):
            return
        hear_out = self.phase is Phase.OPEN and reason in HARMLESS
        if reason is not Reason.STUCK and self.phase is not Phase.CLOSING:
            body = encode_goodbye(reason, detail)
            self._put(header(Kind.GOODBYE, len(body)), body)
        if hear_out:
            self.phase = Phase.CLOSING
            self._set_timer(self._config.linger_s + self.delay_s, self.abort)
        else:
            self._hang_up()
        self._end(reason, detail)

    def abort(self) -> None:
        """End at once; what waits is lost."""
        self.phase = Phase.CLOSED
        if self.transport is not None:
            self.transport.abort()

    def _hang_up(self) -> None:
        if self._line is not None:
            self._gather(self._line.flush())
        self._flush()
        self.phase = Phase.CLOSED
        if self.transport is not None:
            self.transport.close()
            self._set_timer(self._config.linger_s, self.abort)

    def _end(self, reason: Reason, detail: str) -> None:
        if not self._ended:
            self._ended = True
            self._board.ended(self, reason, detail)

    def _set_timer(self, delay_s: float, then: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = self._loop.call_later(delay_s, then)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
