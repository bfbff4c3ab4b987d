"""The shell around a ring core: its sockets, its clock, its one timer.

Every event (a message, a broken link, the time) becomes a call into the core; after the call, the core's outbox goes
to the links. These are plain calls: there is no task and no queue between a socket and the core.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from ringmq.overlay.bootstrap.discovery import Discovery
from ringmq.overlay.bootstrap.seeds import Seeds
from ringmq.overlay.config import Address, OverlayConfig, is_wildcard, show
from ringmq.overlay.core.codec import wrap
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Answer, Message, Parcel, Peer, Question
from ringmq.overlay.core.ring import Application, Ring
from ringmq.overlay.core.timing import Timing
from ringmq.overlay.errors import IdTakenError, OverlayError
from ringmq.overlay.iteration import IterationOwner
from ringmq.overlay.links.contests import runs_at
from ringmq.overlay.links.handshake import Hello
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.proofs import Proof
from ringmq.overlay.links.table import LinkTable
from ringmq.overlay.queries import ask_status, introduce
from ringmq.overlay.status import describe, describe_links
from ringmq.overlay.timer import SOONEST_S, Timer

__all__ = ["Address", "Node", "OverlayConfig", "ask_status"]

Core = Callable[[Peer, Timing, Application], Ring]
MAX_REFUSALS: Final = 3
"""Refusals by other peers, as its id is taken, after which a joining peer ends without the word of the one that has it,
which it may not reach itself."""
MoreStatus = Callable[[str], dict[str, Any]]
"""Entries that the layers above add to a status, given the subject that the asker named, or an empty string."""


class NodeApplication(Application, Protocol):
    """The layer above a node: the calls of a ring core, and the calls that only a node with sockets can make."""

    def started(self, me: Peer) -> None:
        """This peer has its address. Called once, before all else."""

    def read_done(self) -> None:
        """All messages of one read of a link have been handed over, so their consequences may be sent now."""


class Node:
    """A peer's overlay: listens, links, keeps the core's time. Create inside a running event loop.

    `ring` and `address` exist once `start` has returned. After a call to the core that was made neither through a
    method of the node nor from within a callback of the application, call `flush_outbox`.
    """

    ring: Ring
    address: Address
    _outbox: list[tuple[Peer, Message]]
    _detours: Mapping[Id, Peer]

    def __init__(
        self,
        config: OverlayConfig,
        application: NodeApplication,
        iteration: IterationOwner,
        core: Core = Ring,
        more_status: MoreStatus | None = None,
    ) -> None:
        self._config = config
        self._application = application
        self._core = core
        self._more_status = more_status
        self._loop = asyncio.get_running_loop()
        self._incidents = Incidents()
        self._iteration = iteration
        self._links = LinkTable(config, self, self._incidents, iteration)
        self._seeds: Seeds | None = None
        self._discovery: Discovery | None = None
        self._timer = Timer(self._tick)
        self._inside = False
        """Whether a call of the core is running: messages that the application sends there go out after the call."""
        self._active = False
        """`ring.active` when the outbox was last handed over."""
        self._draining = False
        self._stopped = False
        self._began_at = self._loop.time()
        self._activated = asyncio.Event()
        self.on_taken: Callable[[IdTakenError], None] = lambda error: None
        """Called when this peer, which has never been active, must end: another that runs has its id."""
        self.on_request: Callable[[bytes, Callable[[bytes], None]], None] = _unanswered
        """Called with a request of a connection that is no peer, and the call that takes the JSON of its answer."""
        self._was_active = False
        self._refusals = 0
        self._inquiries: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen and begin to join. Raises OverlayError with one clear line (port in use, bad address, …)."""
        try:
            port = await self._links.bind()
            me = Peer(self._config.id, self._config.advertised_host, port, self._config.boot)
            self.address = (me.host, me.port)
            self._application.started(me)
            self.ring = self._core(me, self._config.timing, self._application)
            self._outbox = self.ring.outbox
            self._detours = self.ring.detours
            self._iteration.loop_timers.append((self.ring.timers, self._timer))
            # Bound before the core exists, for the port, but served only now: a HELLO needs the core.
            await self._links.serve(me)
            self._seeds = Seeds(self._config, await self._own_addresses(port), self, self._incidents)
            # Its datagrams prove nothing, so a ring with identity is found by addresses alone.
            if self._config.discovery and self._config.credentials is None:
                self._discovery = Discovery(self._config, self, self._incidents)
                await self._discovery.start(port, self._seeds.others)
            self._seeds.start()
        except BaseException:
            # Cancellation included: a start that was given up must not leave a socket open.
            await self.stop()
            raise

    async def stop(self) -> None:
        """Notify the neighbours, flush, close everything. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        if self._seeds is not None:
            await self._seeds.stop()
        if self._discovery is not None:
            await self._discovery.stop()
        for task in self._inquiries:
            task.cancel()
        await asyncio.gather(*self._inquiries, return_exceptions=True)
        # The links close last, as they flush the farewell of the core.
        # `start` calls this, too, when it fails before the core exists.
        if hasattr(self, "ring"):
            self._call_core(self.ring.leave, self._iteration.begin())
        self._timer.stop()
        await self._links.close()

    async def wait_active(self, timeout_s: float) -> None:
        """Return once this peer serves keys. Raises OverlayError after `timeout_s`."""
        try:
            await asyncio.wait_for(self._activated.wait(), timeout_s)
        except TimeoutError:
            seeds = ", ".join(show(seed) for seed in self._config.seeds) or "none"
            raise OverlayError(
                f"no member of ring {self._config.ring!r} after {timeout_s:g} s; seeds: {seeds}"
            ) from None

    async def _own_addresses(self, port: int) -> frozenset[Address]:
        """Addresses by which this peer may stand among its own seeds, as far as they are known without dialling."""
        hosts = {self._config.listen[0], self._config.advertised_host}
        for host in tuple(hosts):
            # A name that does not resolve here is found out later: that seed answers MYSELF.
            with contextlib.suppress(OSError, UnicodeError):
                hosts.update(str(info[4][0]) for info in await self._loop.getaddrinfo(host, port))
        return frozenset((host, port) for host in hosts if not is_wildcard(host))

    def send(self, peer: Peer, payload: bytes) -> bool:
        """Send bytes to a peer whose address is known, past the core. False: it is slow or gone, nothing was queued.

        Raises OverlayError for more than max_frame_bytes.
        """
        if len(payload) >= self._config.max_frame_bytes:
            raise OverlayError(
                f"a payload must have at most {self._config.max_frame_bytes - 1} bytes, got {len(payload)}"
            )
        if peer.id != self._config.id:
            if self._detours and peer.id in self._detours:
                return self._links.send(self._detours[peer.id], wrap(self.ring.me, peer, Parcel(payload)))
            return self._links.send_parcel(peer, payload)
        # No peer has a link with itself.
        self._application.receive(self.ring.me, payload)
        self._application.read_done()
        return True

    def room(self, peer: Id) -> int:
        """Bytes that `send` would accept for this peer now."""
        via = self._detours.get(peer)
        return self._links.room(peer if via is None else via.id)

    def route(self, key: Id, payload: bytes) -> bool:
        """Send bytes to the owner of a key. False: too many routed messages are on their way, try later."""
        accepted = self.ring.route(key, payload, self._iteration.begin())
        self.flush_outbox()
        return accepted

    def post(self, peer: Peer, message: Question | Answer) -> None:
        """Ask another peer something about itself, or answer it. If its link is full, that closes the link: see `room`.

        Call it within an iteration.
        """
        self.ring.post(peer, message)
        self.flush_outbox()

    def find_way(self, peer: Peer) -> None:
        """Nothing comes from a peer that should answer: if a third peer hears it, go through that one."""
        self._call_core(self.ring.find_way, peer, self._iteration.begin())

    @property
    def active(self) -> bool:
        return self.ring.active

    @property
    def counters(self) -> dict[str, int]:
        """Counters of the shell; the core's are in `ring.statistics()`."""
        return dict(self._incidents.counters)

    def pause_reading(self) -> None:
        """Read nothing from other peers. After silence_s the others suspect this peer, and declare it dead."""
        self._links.set_reading(False)

    def resume_reading(self) -> None:
        self._links.set_reading(True)

    def status(self, about: str = "") -> dict[str, Any]:
        """The JSON-able snapshot that `ringmq status --json` prints."""
        uptime_s = self._loop.time() - self._began_at
        own = describe(self.ring, self._config, self._links.open_links(), self.counters, uptime_s)
        own["search"] = self.search
        return own if self._more_status is None else own | self._more_status(about)

    @property
    def search(self) -> str | None:
        """Why a joining peer waits, or why a ring is one peer. None when all is well."""
        return None if self._seeds is None else self._seeds.outlook(alone=not self.ring.leaves)

    @property
    def expects_others(self) -> bool:
        """Whether this peer was given addresses of other peers."""
        return self._seeds is not None and bool(self._seeds.others)

    @property
    def links_total(self) -> int:
        return self._links.count

    def proofs(self) -> list[Proof]:
        """Of the members that have a link with this one, in a ring with identity."""
        return self._links.proofs()

    def traffic(self) -> tuple[int, int, list[dict[str, Any]]]:
        """Bytes in and out over all links since the start, and the present links as in `status`, which costs more."""
        return *self._links.crossed(), describe_links(self._links.open_links())

    def received(self, sender: Peer, message: Message) -> None:
        self._inside = True
        try:
            self.ring.receive(sender, message, self._iteration.now)
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._incidents.failed("core_errors")
        self._inside = False

    def parcel(self, sender: Peer, payload: bytes) -> None:
        self._inside = True
        try:
            self.ring.parcel(sender, payload, self._iteration.now)
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._incidents.failed("core_errors")
        self._inside = False

    def read_done(self) -> None:
        """All messages of one read of a link were handed over."""
        try:
            self._application.read_done()
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._incidents.failed("core_errors")
        # A message may change `active` without an answer to send, and `wait_active` waits for that.
        if (self._outbox or self._active is not self.ring.active) and not self._inside:
            self._drain()

    def flush_outbox(self) -> None:
        """Send the messages of the core's outbox. The end of the iteration looks at its next deadline."""
        self._iteration.begin()
        if not self._inside:
            self._drain()

    def lost(self, peer: Peer, refused: bool) -> None:
        self._call_core(self.ring.link_lost, peer, self._iteration.begin(), refused)

    def unsent(self, parcel: bytes) -> None:
        self._call_core(self._application.unsent, parcel)

    def member(self, peer: Id) -> Peer | None:
        return self.ring.member(peer)

    def refused(self, detail: str) -> None:
        """A peer says that the id of this one is taken: ask the one that has it."""
        address = runs_at(detail)
        # A peer that serves keys does not end because of what others say: it may have been paused, or they may lie.
        if self._was_active or self._stopped or address is None:
            return
        self._refusals += 1
        if self._refusals >= MAX_REFUSALS:
            self.taken(address)
        elif not self._inquiries:
            task = self._loop.create_task(self._ask_namesake(address), name="namesake")
            self._inquiries.add(task)
            task.add_done_callback(self._inquiries.discard)

    async def _ask_namesake(self, address: Address) -> None:
        try:
            await self.introduce(address)
        except IdTakenError:
            self.taken(address)
        except OverlayError as error:
            self._incidents.warn("namesakes_unreachable", show(address), str(error))
        except Exception:  # noqa: BLE001 - a task's root: logged and counted
            self._incidents.failed("namesake_errors")

    def taken(self, address: Address) -> None:
        """The peer at this address has the id of this one."""
        if not self._was_active and not self._stopped:
            me = show(self.address)
            self.on_taken(
                IdTakenError(
                    f"id taken: is this a copy of {show(address)}'s data folder? That peer runs; this is {me}", address
                )
            )

    def status_body(self, about: bytes) -> bytes:
        # The subject comes from a stranger: malformed UTF-8 must not raise.
        return msgspec.json.encode(self.status(about.decode("utf-8", "replace")))

    def requested(self, request: bytes, reply: Callable[[bytes], None]) -> None:
        self.on_request(request, reply)

    async def introduce(self, address: Address) -> Hello:
        return await introduce(self._config, self.ring.me, self.ring.active, address)

    def introduced(self, hello: Hello) -> None:
        """A peer answered. It is of use only as part of a ring; otherwise it is asked again later."""
        if self._seeds is not None:
            self._seeds.answered(hello)
        if not hello.active:
            return
        if self.ring.active:
            self._call_core(self.ring.meet, hello.peer, self._iteration.begin())
        else:
            self._call_core(self.ring.join, hello.peer, self._iteration.begin())

    def linked(self, peer: Id) -> bool:
        return self._links.get(peer) is not None

    def known(self, peer: Id) -> bool:
        """Whether a hint about this peer would bring nothing new."""
        return peer == self.ring.me.id or self.linked(peer) or peer in self.ring.leaves or peer in self.ring.table

    def found(self) -> None:
        self._call_core(self.ring.found, self._iteration.begin())

    def _call_core(self, call: Callable[..., object], *arguments: object) -> None:
        """Call the core for an event from outside: no caller could handle its exceptions."""
        self._iteration.begin()
        # Such calls nest: a send of the application within a call may find a link stuck, which is reported at once.
        outer, self._inside = self._inside, True
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._incidents.failed("core_errors")
        self._inside = outer
        self.flush_outbox()

    def _drain(self) -> None:
        """Hand the outbox to the links. Messages that this causes (a link found stuck) are sent by the same loop."""
        if self._draining:
            return
        self._draining = True
        links, ring = self._links, self.ring
        try:
            while outbox := ring.take_outbox():
                for peer, message in outbox:
                    links.send(peer, message)
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._incidents.failed("send_errors")
        finally:
            self._draining = False
        if ring.active is not self._active:
            self._active = ring.active
            self._was_active = True
            (self._activated.set if ring.active else self._activated.clear)()

    def _tick(self) -> None:
        now = self._iteration.begin()
        # The timer may fire early, as a later deadline does not set it back.
        if self.ring.timers.next_at <= now + SOONEST_S:
            self._call_core(self.ring.tick, now)


def _unanswered(_: bytes, reply: Callable[[bytes], None]) -> None:
    """A node without an application that answers requests."""
    reply(b'{"error": "this peer answers no requests"}')
