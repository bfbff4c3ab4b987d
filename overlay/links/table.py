"""All links of this peer: at most one per other peer, dialled or accepted, and the limits on their number.

Owns the listening sockets, of the overlay port and of the data folder, and the table of links. The ring decides the
meaning of a message and the death of a peer; the table reports each loss to it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from ringmq.overlay.config import Address, OverlayConfig, show
from ringmq.overlay.core.codec import encode
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Message, Parcel, Peer, Relay
from ringmq.overlay.errors import OverlayError, ProtocolError
from ringmq.overlay.iteration import IterationOwner
from ringmq.overlay.links.contests import Contests, taken_by
from ringmq.overlay.links.dialer import Dialer
from ringmq.overlay.links.emulated_latency import pair_delay_s
from ringmq.overlay.links.frames import Kind
from ringmq.overlay.links.handshake import (
    HARMLESS,
    NO_IDENTITY,
    NO_PROOF,
    HandshakePolicy,
    Hello,
    LinkState,
    Reason,
    encode_hello,
    is_expelled,
)
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.link import Link
from ringmq.overlay.links.proofs import Proof
from ringmq.overlay.queries import cause, introduce, socket_path

if TYPE_CHECKING:
    from ringmq.overlay.links.doorway import Doorways

MAX_UNFINISHED_BYTES: Final = 45 << 20
"""Bytes of large frames that are not complete, of all links together: two of the largest size at once. With the small
ones (`LARGE_FRAME_BYTES`), half-received frames take 64 MiB. Beyond, the link whose frame began first is closed: an
honest frame is complete within seconds. To stop reading would spare no link: heartbeats would wait behind the frame."""
SWEEPS: Final = 4
"""Sweeps in a row without traffic after which a link is idle."""


class LinkOwner(Protocol):
    """The owner of the table, which is notified of messages and losses."""

    @property
    def active(self) -> bool:
        """Whether this peer serves keys, as each HELLO says."""

    def received(self, sender: Peer, message: Message) -> None: ...
    def parcel(self, sender: Peer, payload: bytes) -> None:
        """Bytes of the application: most of the messages under load, so they have a call of their own."""

    def read_done(self) -> None:
        """All messages of one read were handed over."""

    def lost(self, peer: Peer, refused: bool) -> None:
        """A link broke without farewell (refused=False), or none can be opened (refused=True)."""

    def unsent(self, parcel: bytes) -> None:
        """The parcel waited for a link that could not be opened. `lost` came before."""

    def member(self, peer: Id) -> Peer | None:
        """The neighbour on the ring with this id, if it is not under suspicion."""

    def refused(self, detail: str) -> None:
        """Another peer says that the id of this peer is taken."""

    def status_body(self, about: bytes) -> bytes: ...
    def requested(self, request: bytes, reply: Callable[[bytes], None]) -> None:
        """Somebody asks the application something about the ring; call `reply` once, now or later."""


class LinkTable:
    """The switchboard of all links."""

    def __init__(
        self, config: OverlayConfig, owner: LinkOwner, incidents: Incidents, iteration: IterationOwner
    ) -> None:
        self.iteration = iteration
        self.me = Peer(config.id, config.advertised_host, config.listen[1] or 1, config.boot)
        # Bound methods of the owner, not of this class: a message passes through one call less.
        self.received = owner.received
        self.parcel = owner.parcel
        self.read_done = owner.read_done
        self._config = config
        self._owner = owner
        self._incidents = incidents
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._control: asyncio.Server | None = None
        self._doorways: Doorways | None = None
        if config.credentials is not None:
            # Loaded for such rings alone, it costs all other peers no memory.
            from ringmq.overlay.links.doorway import Doorways  # noqa: PLC0415

            enter = partial(Link, self, config, None)
            self._doorways = Doorways(config, config.credentials.server, incidents, enter)
            config.credentials.watch(self._obey_expulsions)
        self._answers: set[asyncio.Task[None]] = set()
        """Answers that take a while, and lists of the expelled that are checked."""
        self._evidence: dict[Link, bytes] = {}
        """The list of each peer that is checked next; empty: the one that is being checked is the last."""
        self._links: dict[Id, Link] = {}
        self._dialer = Dialer(config, self, incidents, self._dial_failed)
        self._contests = Contests(config.handshake_s, self._introduce, incidents, self._decided)
        self._strangers: dict[Link, None] = {}
        """Connections that have not said HELLO, the oldest first."""
        self._unfinished: dict[Link, int] = {}
        """Links with a large frame that is not complete, and the bytes that have come of it, the oldest first."""
        self._unfinished_bytes = 0
        self._sockets: set[Link] = set()
        """All connected links, links that are ending included."""
        self._past_in = self._past_out = 0
        """Bytes over links that are closed."""
        self._reading = True
        self._sweeper: asyncio.TimerHandle | None = None
        self._closing = False
        self._silence = asyncio.Event()

    async def bind(self) -> int:
        """Bind the listen address; returns the port. Raises OverlayError naming address and cause."""
        host, port = self._config.listen
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            hosts = list(dict.fromkeys(str(info[4][0]) for info in found))
            self._server = await self._loop.create_server(
                self._accept,
                # Port 0 on several addresses would give each its own port, and a peer has only one.
                hosts if port else hosts[:1],
                port,
                backlog=512,
                start_serving=False,
            )
        except (OSError, UnicodeError) as error:
            raise OverlayError(f"cannot listen on {show(self._config.listen)}: {cause(error)}") from error
        return int(self._server.sockets[0].getsockname()[1])

    async def serve(self, me: Peer) -> None:
        """Begin to accept. Raises OverlayError as `bind` does."""
        assert self._server is not None
        self.me = me
        try:
            await self._server.start_serving()
        except OSError as error:
            raise OverlayError(f"cannot listen on {show(self._config.listen)}: {cause(error)}") from error
        self._sweeper = self._loop.call_later(self._config.idle_link_s / SWEEPS, self._sweep)
        if self._config.control is not None:
            await self._open_control(self._config.control)

    def _accept(self) -> asyncio.Protocol:
        return Link(self, self._config, None) if self._doorways is None else self._doorways.accept()

    async def _open_control(self, file: Path) -> None:
        """Serve the operator of this machine. Without it the peer works, so a failure is only logged."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            bind_privately(listener, file)
            accept = partial(Link, self, self._config, None, local=True)
            self._control = await self._loop.create_unix_server(accept, sock=listener)
        except OSError as error:
            listener.close()
            self._incidents.warn("control_unavailable", file, cause(error))

    async def close(self) -> None:
        """Say GOODBYE to all, flush, and close; bounded by linger_s. Idempotent."""
        self._closing = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for server in (self._server, self._control):
            if server is not None:
                server.close()
        if self._control is not None and self._config.control is not None:
            with contextlib.suppress(OSError):
                self._config.control.unlink(missing_ok=True)
        if self._doorways is not None:
            await self._doorways.close()
        for task in self._answers:
            task.cancel()
        await self._dialer.close()
        await self._contests.close()
        for link in list(self._sockets):
            link.close(Reason.STOPPING)
        # The second wait is for the sockets that are aborted after the first.
        for patience_s in (self._config.linger_s, 1.0):
            if self._sockets:
                try:
                    await asyncio.wait_for(self._silence.wait(), patience_s)
                except TimeoutError:
                    for link in list(self._sockets):
                        link.abort()
        if self._server is not None:
            await self._server.wait_closed()

    def send(self, peer: Peer, message: Message) -> bool:
        """Send, dialling if need be. False: refused, and counted."""
        if isinstance(message, Parcel):
            return self.send_bytes(peer, Kind.PARCEL, message.payload)
        if isinstance(message, Relay):
            return self.send_bytes(peer, Kind.RELAY, encode(message))
        return self.send_bytes(peer, Kind.CONTROL, encode(message))

    def send_parcel(self, peer: Peer, body: bytes) -> bool:
        """Send bytes of the application: at most a frame, and not to this peer itself. False: refused, and counted."""
        link = self._links.get(peer.id)
        known = None if link is None else link.peer
        # The fast path of `send_bytes`, which handles all cases in which this link may be the wrong one.
        if link is None or known is None or known.boot < peer.boot or not link.introduced_as(self.me):
            return self.send_bytes(peer, Kind.PARCEL, body)
        if link.send(Kind.PARCEL, body):
            return True
        self._incidents.count("parcels_refused")
        return False

    def send_bytes(self, peer: Peer, kind: Kind, body: bytes) -> bool:
        link = self._links.get(peer.id)
        # The kind takes a byte of the frame, too.
        if len(body) >= self._config.max_frame_bytes or peer.id == self.me.id:
            self._incidents.warn("unsendable", peer.id.short(), f"{len(body)} bytes for {peer}")
            return False
        # The process behind the old link may be gone; waiting for TCP to notice would cost the message. The link stays
        # until the new address has answered: only others say that the peer is there.
        if link is None or (link.peer is not peer and self._moved(link, peer)):
            credentials = self._config.credentials
            is_welcome = credentials is None or peer.id not in credentials.expelled
            sent = is_welcome and self._dialer.enqueue(peer, kind, body)
        else:
            if not link.introduced_as(self.me):
                link.say_hello(self.me, self._hello(peer.id))
            sent = link.send(kind, body)
        if not sent:
            self._incidents.count("parcels_refused" if kind == Kind.PARCEL else "messages_lost")
        return sent

    def room(self, peer: Id) -> int:
        """Bytes of parcels that would be accepted for this peer now."""
        link = self._links.get(peer)
        return max(0, link.room()) if link is not None else self._dialer.room(peer)

    def _moved(self, link: Link, peer: Peer) -> bool:
        """Whether the link leads to an earlier incarnation of the peer, at another address."""
        known = link.peer
        return known is not None and peer.boot > known.boot and (peer.host, peer.port) != (known.host, known.port)

    def _hello(self, target: Id) -> bytes:
        credentials, settings = self._config.credentials, self._config.ring_settings
        expulsions = b"" if credentials is None else credentials.expulsions
        return encode_hello(Hello(self._config.ring, self.me, self._owner.active, target, settings, expulsions))

    def connected(self, link: Link) -> None:
        self._sockets.add(link)
        self._silence.clear()
        if not self._reading:
            link.set_reading(False)
        if link.dialled is not None:
            link.say_hello(self.me, self._hello(link.dialled.id))
            return
        self._strangers[link] = None
        if self._closing:
            link.abort()
        elif len(self._strangers) > self._config.max_strangers:
            # The oldest: whoever has something to say says it at once.
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            self._incidents.count("strangers_refused")
            oldest.abort()

    def asked(self, link: Link, question: Kind, body: bytes) -> None:
        credentials = self._config.credentials
        known = credentials is None or link.local or self._is_member(link.proof)
        if question == Kind.STATUS_REQUEST and known:
            link.answer(Kind.STATUS_REPLY, self._owner.status_body(body))
        elif question == Kind.REQUEST and known:
            self._owner.requested(body, partial(link.answer, Kind.REPLY))
        elif question == Kind.JOIN and credentials is not None:
            self._answer_later(link, Kind.ADMISSION, credentials.admit(body, remote(link)))
        elif question == Kind.COMMAND and credentials is not None and link.local:
            self._answer_later(link, Kind.RESULT, credentials.command(body))
        else:
            detail = NO_IDENTITY if credentials is None else NO_PROOF
            self._incidents.warn("handshakes_refused", remote(link), f"a {question.name} without the right to it")
            link.close(Reason.UNPROVEN, detail)

    def _answer_later(self, link: Link, kind: Kind, answer: Awaitable[bytes]) -> None:
        async def run() -> None:
            try:
                link.answer(kind, await answer)
            except Exception:  # noqa: BLE001 - a task's root: logged and counted
                self._incidents.failed("answer_errors")
                link.close(Reason.PROTOCOL, "the answer failed")

        link.answer_later()
        self._run(run(), "answer")

    def _run(self, work: Coroutine[None, None, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def _is_member(self, proof: Proof | None) -> bool:
        credentials = self._config.credentials
        return credentials is not None and proof is not None and not is_expelled(proof, credentials.expelled)

    def informed(self, link: Link, evidence: bytes) -> None:
        # A later list of the same peer holds all of an earlier one.
        is_busy = link in self._evidence
        self._evidence[link] = evidence
        if not is_busy:
            self._run(self._learn(link), "expulsions")

    async def _learn(self, link: Link) -> None:
        """Take over the lists of this peer, one after the other."""
        credentials = self._config.credentials
        assert credentials is not None, "a link has a proof only with credentials"
        try:
            while evidence := self._evidence[link]:
                self._evidence[link] = b""
                await credentials.learn(evidence)
        except ProtocolError as error:
            self.faulty(link, str(error))
            link.close(Reason.PROTOCOL, str(error))
        except Exception:  # noqa: BLE001 - a task's root: logged and counted
            self._incidents.failed("expulsion_errors")
        finally:
            del self._evidence[link]

    def _obey_expulsions(self) -> None:
        """Somebody was expelled: tell everybody, and close the links of the expelled."""
        credentials = self._config.credentials
        assert credentials is not None, "it calls this"
        self.iteration.begin()
        everything = credentials.evidence(None)
        for link in list(self._sockets):
            if link.proof is not None and is_expelled(link.proof, credentials.expelled):
                link.say_expulsions(credentials.evidence(link.proof))
                link.close(Reason.EXPELLED)
            elif link.peer is not None and not link.closed:
                link.say_expulsions(everything)

    def proofs(self) -> list[Proof]:
        """Of the members that have a link with this one."""
        return [link.proof for link in self._links.values() if link.proof is not None]

    def greeted(self, link: Link, hello: Hello | None) -> None:
        settings = self._config.ring_settings
        credentials = self._config.credentials
        expelled = frozenset[Id]() if credentials is None else credentials.expelled
        policy = HandshakePolicy(self.me, self._config.ring, settings, credentials is not None, expelled)
        reason = policy.stranger(hello, link.proof)
        if reason is not None or hello is None:
            why = reason or Reason.VERSION
            detail = f"{hello.ring_settings}, need {settings}" if hello and why is Reason.RING_SETTINGS else ""
            if why is Reason.UNPROVEN:
                detail = NO_PROOF
            elif hello and link.proof and why is Reason.NOT_YOURS:
                detail = f"{hello.peer.id.short()} is claimed with the certificate of {link.proof.id.short()}"
            if hello and why is Reason.ID_TAKEN:
                self._refuse_copy(link, hello.peer, self.me)
                return
            self._incidents.warn("handshakes_refused", remote(link), f"{why}: {detail}" if detail else why)
            if why is Reason.EXPELLED and credentials is not None:
                link.say_expulsions(credentials.evidence(link.proof))
            link.close(why, detail)
            return
        link.expulsions = hello.expulsions
        if link.peer is not None:
            self._update_address(link, hello.peer)
            self._share_expulsions(link)
        elif link.dialled is not None and hello.peer.id != link.dialled.id:
            link.close(Reason.NOT_ME)
        elif link.dialled is None and hello.target is None:
            link.answer(Kind.HELLO, self._hello(hello.peer.id))
        else:
            self._claim(link, hello.peer)

    def faulty(self, link: Link, why: str) -> None:
        self._incidents.warn("protocol_errors", remote(link), why)

    def ended(self, link: Link, reason: Reason, detail: str) -> None:
        self._strangers.pop(link, None)
        self._contests.ended(link)
        peer = link.peer
        if reason is Reason.ID_TAKEN and (link.dialled is not None or peer is not None) and detail:
            self._owner.refused(detail)
        if peer is None:
            self._dialer.ended(link, reason, detail or reason)
            if reason is Reason.SLOW:
                self._incidents.count("handshakes_slow")
        elif self._links.get(peer.id) is link:
            del self._links[peer.id]
            if reason in HARMLESS or self._closing:
                self._incidents.count(f"links_ended_{reason.name.lower()}")
            else:
                self._incidents.warn("links_lost", peer, detail or reason)
                self._owner.lost(peer, refused=False)

    def unfinished(self, link: Link, size_bytes: int) -> None:
        self._unfinished_bytes += size_bytes - self._unfinished.get(link, 0)
        if not size_bytes:
            self._unfinished.pop(link, None)
            return
        self._unfinished[link] = size_bytes
        while self._unfinished_bytes > MAX_UNFINISHED_BYTES:
            oldest = next(iter(self._unfinished))
            size_bytes = self._unfinished.pop(oldest)
            self._unfinished_bytes -= size_bytes
            self._incidents.warn("frames_unfinished", remote(oldest), f"{size_bytes} bytes of a frame, begun first")
            oldest.close(Reason.UNFINISHED)

    def vanished(self, link: Link) -> None:
        self._unfinished_bytes -= self._unfinished.pop(link, 0)
        self._sockets.discard(link)
        self._past_in += link.bytes_in
        self._past_out += link.bytes_out
        if not self._sockets:
            self._silence.set()

    def _dial_failed(self, peer: Peer, why: str, refused: bool, parcels: list[bytes]) -> None:
        self._incidents.warn("dials_failed", peer, why)
        # With an open link, only an address is wrong that others have named, and not the peer lost.
        if peer.id not in self._links:
            self._owner.lost(peer, refused)
        # After the loss: the layer above then knows already that this peer is not reachable, and takes another way.
        for parcel in parcels:
            self._owner.unsent(parcel)

    async def _introduce(self, address: Address) -> Hello:
        return await introduce(self._config, self.me, self._owner.active, address)

    def _claim(self, link: Link, peer: Peer) -> None:
        """A HELLO that wants a link. Another process that has this id, or has this link already, is asked first."""
        holder = self._links.get(peer.id)
        known = self._owner.member(peer.id) if holder is None else holder.peer
        reason = self._refusal(link, peer)
        if reason not in (None, Reason.OLD_BOOT):
            self._refuse(link, reason)
        elif known is None or (holder is None and known.boot >= peer.boot):
            self._settle(link, peer)
        elif self._contests.open(link, peer, known, holder):
            # It has said HELLO, and its number is bounded by that of contests.
            self._strangers.pop(link, None)
        else:
            self._refuse(link, Reason.DUPLICATE)

    def _decided(self, link: Link, peer: Peer, known: Peer, runs: bool) -> None:
        """The known peer has answered, or does not run any more."""
        if link.closed:
            return
        if not runs:
            self._settle(link, peer)
        elif known.boot == peer.boot:
            self._refuse(link, Reason.DUPLICATE)
        else:
            self._refuse_copy(link, peer, known)

    def _refuse_copy(self, link: Link, peer: Peer, known: Peer) -> None:
        """Somebody has the id of a peer that runs."""
        at, there = show((peer.host, peer.port)), show((known.host, known.port))
        self._incidents.warn(
            "ids_taken", at, f"{at} has the id of {there}, which runs: is it a copy of its data folder?"
        )
        link.close(Reason.ID_TAKEN, taken_by(known))

    def _settle(self, link: Link, peer: Peer) -> None:
        """Make this connection the link to that peer, or refuse it."""
        reason = self._refusal(link, peer)
        if reason is None:
            self._adopt(link, peer)
        else:
            self._refuse(link, reason)

    def _refuse(self, link: Link, reason: Reason) -> None:
        self._incidents.count(f"inbound_refused_{reason.name.lower()}")
        link.close(reason)

    def _refusal(self, link: Link, peer: Peer) -> Reason | None:
        """The reason why an inbound connection cannot become the link to that peer."""
        if link.dialled is not None:
            return None
        known = self._links.get(peer.id)
        state = self._dialer.state_of(peer.id)
        if known is not None:
            # Within handshake_s this HELLO may have crossed ours. A later one shows that the peer has no link.
            fresh = known.dialled is not None and self._loop.time() - known.opened_at < self._config.handshake_s
            state = LinkState.LINKED_BY_US if fresh else LinkState.LINKED
        known_boot = known.peer.boot if known is not None and known.peer is not None else 0
        reason = HandshakePolicy(self.me, self._config.ring).inbound(peer, state, known_boot)
        if reason is None and known is None and len(self._links) >= self._config.max_links:
            return Reason.FULL
        return reason

    def _adopt(self, link: Link, peer: Peer) -> None:
        """Make this connection the link to that peer."""
        known = self._links.pop(peer.id, None)
        if known is not None:
            known.close(Reason.REPLACED)
            self._incidents.count("links_replaced")
        self._strangers.pop(link, None)
        self._incidents.forgive("links_lost", peer)
        self._incidents.forgive("dials_failed", peer)
        queued = self._dialer.finish(peer.id, link)
        if len(self._links) >= self._config.max_links:
            self._incidents.count("links_evicted")
            # A new link is wanted now; the least used one is dialled again when it is needed.
            max(self._links.values(), key=lambda candidate: candidate.idle_rounds).close(Reason.IDLE)
        delay_range = self._config.delay_s
        delay = pair_delay_s(self.me.id, peer.id, delay_range, self._config.delay_seed) if delay_range else None
        link.open(peer, delay)
        self._links[peer.id] = link
        # A dialled link has sent its HELLO already, unless our address has changed since.
        if link.dialled is None or not link.introduced_as(self.me):
            link.say_hello(self.me, self._hello(peer.id))
        self._share_expulsions(link)
        for kind, body in queued:
            link.send(kind, body)

    def _share_expulsions(self, link: Link) -> None:
        """The other side may have missed that somebody was expelled. It does the same for this one."""
        credentials = self._config.credentials
        if credentials is not None and credentials.expulsions and link.expulsions != credentials.expulsions:
            link.say_expulsions(credentials.evidence(None))

    def _update_address(self, link: Link, peer: Peer) -> None:
        """The peer of an open link has a new address or boot."""
        if link.peer is None or peer.id != link.peer.id:
            raise ProtocolError("a hello that changes the id")
        if peer.boot >= link.peer.boot:
            link.peer = peer

    def _sweep(self) -> None:
        """Close idle links."""
        self._sweeper = self._loop.call_later(self._config.idle_link_s / SWEEPS, self._sweep)
        # A list, as closing a link removes it from the table.
        for link in list(self._links.values()):
            if link.count_idle_rounds() >= SWEEPS:
                link.close(Reason.IDLE)

    def open_links(self) -> Iterable[Link]:
        return self._links.values()

    @property
    def count(self) -> int:
        return len(self._links)

    def crossed(self) -> tuple[int, int]:
        """Bytes in and out since the start, over all links."""
        received = sum([link.bytes_in for link in self._sockets])
        sent = sum([link.bytes_out for link in self._sockets])
        return self._past_in + received, self._past_out + sent

    def get(self, peer: Id) -> Link | None:
        """The open link to a peer."""
        return self._links.get(peer)

    def set_reading(self, on: bool) -> None:
        """Pause or resume reading from all peers."""
        self._reading = on
        for link in self._sockets:
            link.set_reading(on)


def bind_privately(listener: socket.socket, file: Path) -> None:
    """Only the user of the peer may connect, from the first moment on. Raises OSError."""
    file.unlink(missing_ok=True)
    with socket_path(file) as path:
        before = os.umask(0o177)
        try:
            listener.bind(path)
        finally:
            os.umask(before)


def remote(link: Link) -> str:
    """Name of the other end, for logs. For a stranger the host alone: a hostile host has many ports."""
    if link.peer is not None:
        return str(link.peer)
    name = link.transport.get_extra_info("peername") if link.transport is not None else None
    return str(name[0]) if name else "unknown"
