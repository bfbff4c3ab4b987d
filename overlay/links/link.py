"""One connection to another peer: frames in and out, bounded both ways, and an orderly end.

A thin asyncio protocol. `overlay.links.table` decides which strangers are accepted and which of two connections stays;
a link notifies it of each HELLO, each message and the end. Outgoing frames are gathered and written once per iteration
of the event loop. `overlay.links.phase` has the life of a link as a table.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from time import perf_counter
from typing import Final, Protocol, cast

from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.codec import decode, encode
from ringmq.overlay.core.messages import Message, Peer, Ping, Pong
from ringmq.overlay.errors import ProtocolError
from ringmq.overlay.iteration import IterationOwner
from ringmq.overlay.links.emulated_latency import DelayLine
from ringmq.overlay.links.frames import DROPPABLE, HEADER_BYTES, FrameReader, Kind, header
from ringmq.overlay.links.handshake import (
    HARMLESS,
    MAX_HELLO_BYTES,
    Hello,
    Reason,
    decode_goodbye,
    decode_hello,
    encode_goodbye,
)
from ringmq.overlay.links.phase import TRANSITIONS, LinkEvent, Phase
from ringmq.overlay.links.proofs import Proof
from ringmq.overlay.queries import cause

LONG_S: Final = 0.005
"""When the frames of one read take longer than this, other links and due timers come before the rest of them, and
before more is read. uvloop would read on, up to 8 MB, which takes seconds if the messages are small."""
LARGE_BYTES: Final = 4096
"""The time is looked at only after frames that are larger than this."""
WRITE_BYTES: Final = 256 * 1024
"""Gathered bytes beyond this are written at once instead of at the end of the iteration, so that the socket can take
them meanwhile."""
_PARCEL: Final = int(Kind.PARCEL)
LARGE_FRAME_BYTES: Final = 8192
"""Unfinished frames up to this size are not counted: of all links and strangers together they take 19 MiB."""
_PING: Final = encode(Ping())
QUESTIONS: Final = frozenset({Kind.STATUS_REQUEST, Kind.REQUEST, Kind.JOIN, Kind.COMMAND})
"""Frames of a connection that only asks, and is closed with the answer."""
ANSWER_S: Final = 15.0
"""Time for an answer that is not there at once. The certificate of a newcomer takes a second on a small machine."""


class Switchboard(Protocol):
    """The owner of the links, which they notify."""

    iteration: IterationOwner

    def connected(self, link: Link) -> None: ...
    def greeted(self, link: Link, hello: Hello | None) -> None:
        """A HELLO came in; None: its protocol version is another."""

    def asked(self, link: Link, question: Kind, body: bytes) -> None:
        """One of QUESTIONS came in: `answer` it within `handshake_s`, or call `answer_later` first."""

    def informed(self, link: Link, evidence: bytes) -> None:
        """EXPULSIONS came in."""

    def received(self, sender: Peer, message: Message) -> None: ...
    def parcel(self, sender: Peer, payload: bytes) -> None: ...
    def read_done(self) -> None:
        """All frames of one read were handed over."""

    def faulty(self, link: Link, why: str) -> None:
        """The other side broke the protocol; `ended` follows."""

    def ended(self, link: Link, reason: Reason, detail: str) -> None:
        """The link is not open any more, or never will be. Called once; the socket may take longer to close."""

    def unfinished(self, link: Link, size_bytes: int) -> None:
        """So much of a large frame has come; 0: it is complete."""

    def vanished(self, link: Link) -> None:
        """The socket is closed."""


class Link(asyncio.Protocol):
    """Inbound, or dialled to a peer. `peer` is set once the link is open."""

    __slots__ = (
        "_asked",
        "_board",
        "_breathing",
        "_config",
        "_ended",
        "_flushing",
        "_gathered",
        "_held",
        "_introduced_as",
        "_iteration",
        "_large",
        "_line",
        "_loop",
        "_most_bytes",
        "_out",
        "_reader",
        "_rest",
        "_seen_frames",
        "_timer",
        "_unsent",
        "_wake",
        "_wanted",
        "_write",
        "bytes_in",
        "bytes_out",
        "dialled",
        "expulsions",
        "frames_in",
        "frames_out",
        "idle_rounds",
        "local",
        "opened_at",
        "peer",
        "phase",
        "proof",
        "transport",
    )  # fmt: skip

    def __init__(self, board: Switchboard, config: OverlayConfig, dialled: Peer | None, *, local: bool = False) -> None:
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
        """Whether the node lets this link read."""
        self._breathing = False
        """Whether other links and due timers come first, before this link goes on."""
        self._held = False
        """Whether no frame is handled until `release`."""
        self._asked: list[Callable[[], None]] = []
        """Calls that wait for the next `Pong`."""
        self._rest: Iterator[tuple[int, bytes]] | None = None
        """Frames that wait until this link goes on."""
        self._large: int | None = None
        """The number of the large frame that is unfinished."""
        self._introduced_as: Peer | None = None
        self.transport: asyncio.Transport | None = None
        self._write: Callable[[list[bytes]], None] = _nowhere
        self.dialled = dialled
        self.local = local
        """Whether this connection came over the socket in the data folder."""
        self.peer: Peer | None = None
        self.expulsions = b""
        """Digest of the other side's list of expelled peers."""
        self.proof: Proof | None = None
        """What the certificate of the other side proves. None: it has none, or this ring has no identity."""
        self.phase = Phase.STRANGER
        self.opened_at = 0.0
        self.frames_in = self.frames_out = self.bytes_in = self.bytes_out = 0
        self._seen_frames = self.idle_rounds = 0
        """Frames at the last sweep of idle links, and sweeps in a row without any."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's are not derived from it
        # The dial was given up while it connected; no one waits for this connection.
        if self.phase is Phase.CLOSED:
            self.transport.abort()
            return
        self._write = self.transport.writelines
        secured = self.transport.get_extra_info("ssl_object")
        if secured is not None and self._config.credentials is not None:
            # uvloop's TLS makes a record of each chunk, which costs 1.4 times the processor time of one for all.
            self._write = partial(_write_joined, self.transport)
            certificate = secured.getpeercert(binary_form=True)
            self.proof = self._config.credentials.read(certificate) if certificate else None
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
            # Frames of an earlier read still wait; the order of messages must not change.
            self._rest = chain(self._rest, frames)

    def _count_unfinished(self) -> None:
        """A large frame is unfinished, or was before this read."""
        if self._large not in (None, self.frames_in):
            self._large = None
            self._board.unfinished(self, 0)
        if self._reader.expected_bytes > LARGE_FRAME_BYTES:
            self._large = self.frames_in
            self._board.unfinished(self, self._reader.buffered_bytes)

    def _take(self, frames: Iterator[tuple[int, bytes]]) -> None:
        """Handle frames for up to LONG_S; the rest waits until other links and due timers had their turn."""
        began = perf_counter()
        try:
            for kind, body in frames:
                self.frames_in += 1
                if kind == _PARCEL and self.peer is not None:
                    self._board.parcel(self.peer, body)
                else:
                    self._frame(kind, body)
                    if self._held:
                        self._rest = frames
                        break
                if self.phase is Phase.CLOSED:
                    break
                if len(body) > LARGE_BYTES and perf_counter() - began > LONG_S:
                    self._rest = frames
                    break
        except ProtocolError as error:
            self._board.faulty(self, str(error))
            self.close(Reason.PROTOCOL, str(error))
        if self._reader.expected_bytes > LARGE_FRAME_BYTES or self._large is not None:
            self._count_unfinished()
        self._board.read_done()
        if not self._breathing and perf_counter() - began > LONG_S:
            self._breathing = True
            self._set_reading()
            self._iteration.continuations.append(self._go_on)

    def _go_on(self) -> None:
        self._iteration.begin()
        self._breathing = False
        if self._rest is not None and not self._held:
            rest, self._rest = self._rest, None
            if not self.closed:
                self._take(rest)
        self._set_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._iteration.begin()
        self._to(LinkEvent.LOST)
        for timer in (self._timer, self._wake):
            if timer is not None:
                timer.cancel()
        self._out.clear()
        self._line = None
        self._board.vanished(self)
        self._end(Reason.BROKEN, "closed by the other side" if exc is None else cause(exc))

    @property
    def closed(self) -> bool:
        return self.phase is Phase.CLOSED

    def _frame(self, kind: int, body: bytes) -> None:
        if kind == Kind.PARCEL or kind == Kind.CONTROL or kind == Kind.RELAY:
            if self.peer is None:
                raise ProtocolError("a message before the handshake")
            message = decode(body)
            if self._asked and isinstance(message, Pong):
                asked, self._asked = self._asked, []
                for answered in asked:
                    answered()
            self._board.received(self.peer, message)
        elif kind == Kind.GOODBYE:
            reason, text = decode_goodbye(body)
            # It still reads for linger_s after a harmless GOODBYE, so the queued frames are flushed.
            self._hang_up()
            self._end(reason, text)
        elif kind == Kind.EXPULSIONS and self.proof is not None:
            self._board.informed(self, body)
        elif self.phase is Phase.CLOSING:
            pass  # Sent before our GOODBYE arrived. Only messages matter now.
        elif kind == Kind.HELLO and not self.local:
            self._board.greeted(self, decode_hello(body))
        elif kind in QUESTIONS and self.peer is None and self.dialled is None:
            self._board.asked(self, Kind(kind), body)
        else:
            raise ProtocolError(f"a {Kind(kind).name} frame where none belongs")

    def set_reading(self, on: bool) -> None:
        """Pause or resume reading. Heartbeats wait as well: after silence_s the other side comes under suspicion."""
        self._wanted = on
        self._set_reading()

    def hold(self) -> None:
        """Handle no further frame until `release`: it is not decided yet whether this becomes a link."""
        self._held = True
        self._set_reading()

    def release(self) -> None:
        if self._held:
            self._held = False
            self._iteration.begin()
            self._iteration.continuations.append(self._go_on)

    def ask(self, answered: Callable[[], None]) -> None:
        """Call `answered` when the other side answers a `Ping` over this link."""
        self._asked.append(answered)
        self.send(Kind.CONTROL, _PING)

    def _set_reading(self) -> None:
        on = self._wanted and not self._breathing and not self._held
        if self.transport is not None and not self.transport.is_closing():
            (self.transport.resume_reading if on else self.transport.pause_reading)()

    def send(self, kind: Kind, body: bytes) -> bool:
        """Queue a frame. False: no room for a parcel, or not even for a control message, which closes the link."""
        size = HEADER_BYTES + len(body)
        # `_unsent` is as old as the last flush, so it is an upper bound; `room` asks the socket for the present value.
        if self._line is not None or self._gathered + self._unsent + size > self._most_bytes:
            control = kind not in DROPPABLE
            if size > self.room(control) and self.queued_bytes:
                if control:
                    self.close(Reason.STUCK)
                return False
        self._put(header(kind, size - HEADER_BYTES), body)
        return True

    def room(self, control: bool = False) -> int:
        """Bytes that may be sent now. A larger frame is taken only when nothing else waits."""
        self._unsent = self.transport.get_write_buffer_size() if self.transport is not None else 0
        limit = self._most_bytes
        return limit + (limit // 4 if control else 0) - self.queued_bytes

    @property
    def queued_bytes(self) -> int:
        """Upper bound of the bytes that wait here: the socket may have taken some of them since the last flush."""
        return self._gathered + self._unsent + (self._line.held_bytes if self._line is not None else 0)

    @property
    def delay_s(self) -> float:
        """The emulated latency."""
        return self._line.delay_s if self._line is not None else 0.0

    def count_idle_rounds(self) -> int:
        """For the sweep of idle links: the rounds in a row, including the present round, without a frame either way."""
        frames = self.frames_in + self.frames_out
        self.idle_rounds = self.idle_rounds + 1 if frames == self._seen_frames else 0
        self._seen_frames = frames
        return self.idle_rounds

    def introduced_as(self, me: Peer) -> bool:
        """Whether our last HELLO to the other side had this very address."""
        return self._introduced_as is me

    def say_hello(self, me: Peer, body: bytes) -> None:
        self._introduced_as = me
        self._put(header(Kind.HELLO, len(body)), body)

    def say_expulsions(self, evidence: bytes) -> None:
        """Whether this is a link or not yet: who is refused must learn why."""
        self._put(header(Kind.EXPULSIONS, len(evidence)), evidence)

    def answer_later(self) -> None:
        """Handle no further frame until `answer` or the end of ANSWER_S."""
        self.hold()
        self._set_timer(ANSWER_S, partial(self.close, Reason.SLOW))

    def answer(self, kind: Kind, body: bytes) -> None:
        """Reply to a connection that only asks, and close it. It may have ended already."""
        if self.closed:
            return
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
        """Called at the end of an iteration, or before it when much has gathered; the later call finds nothing then."""
        self._flushing = False
        if self.transport is None or not self._out:
            return
        out, self._out = self._out, []
        self.bytes_out += self._gathered
        self._gathered = 0
        if not self.transport.is_closing():
            self._write(out)
            self._unsent = self.transport.get_write_buffer_size()

    def _release(self) -> None:
        """Send the frames whose emulated latency is over."""
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

    def _to(self, event: LinkEvent) -> None:
        """Move on by the table. An event that the phase does not expect is our own mistake."""
        after = TRANSITIONS.get((self.phase, event))
        assert after is not None, f"no transition by {event.name} from {self.phase.name}"
        self.phase = after

    def open(self, peer: Peer, delay_s: float | None) -> None:
        """The handshake is done: messages and larger frames from now on."""
        self._to(LinkEvent.OPENED)
        self._cancel_timer()
        self.peer = peer
        self.opened_at = self._loop.time()
        # Frames of the same read may follow the HELLO; the reader looks at the limit before each of them.
        self._reader.max_frame_bytes = self._config.max_frame_bytes
        self._break_when_silent()
        if delay_s:
            self._flush()
            self._line = DelayLine(delay_s)

    def _break_when_silent(self) -> None:
        """Break the link when no byte was acknowledged for the time that it takes to declare a peer dead.

        TCP alone repeats a segment ever more rarely, and would notice minutes after a network has healed. Not every
        system has this option.
        """
        timing = self._config.timing
        if self.transport is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
            after_ms = round(1000 * (timing.silence_s + timing.fastest_verdict_s))
            with contextlib.suppress(OSError, AttributeError):
                connection = self.transport.get_extra_info("socket")
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, after_ms)

    def close(self, reason: Reason, detail: str = "") -> None:
        """Say GOODBYE and end. After a harmless reason, frames on their way here are still received for linger_s."""
        if self.phase is Phase.CLOSED or (self.phase is Phase.CLOSING and reason in HARMLESS):
            return
        hear_out = self.phase is Phase.OPEN and reason in HARMLESS
        # A stuck link has no room for a GOODBYE, and a closing link has sent its own already.
        if reason is not Reason.STUCK and self.phase is not Phase.CLOSING:
            body = encode_goodbye(reason, detail)
            self._put(header(Kind.GOODBYE, len(body)), body)
        if hear_out:
            self._to(LinkEvent.FAREWELL)
            # The GOODBYE leaves only after the emulated latency.
            self._set_timer(self._config.linger_s + self.delay_s, self.abort)
        else:
            self._hang_up()
            self._reader.drop()
        self._end(reason, detail)

    def abort(self) -> None:
        """End at once; queued frames are lost."""
        self._to(LinkEvent.ABORTED)
        if self.transport is not None:
            self.transport.abort()

    def _hang_up(self) -> None:
        if self._line is not None:
            self._gather(self._line.flush())
        self._flush()
        self._to(LinkEvent.HUNG_UP)
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


def _nowhere(chunks: list[bytes]) -> None:
    """Before the connection is made nothing is written."""


def _write_joined(transport: asyncio.Transport, chunks: list[bytes]) -> None:
    transport.write(b"".join(chunks))
