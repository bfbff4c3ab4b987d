"""The shell around a ring core: its sockets, its clock, its one timer.

Everything that happens (a message, a broken link, the time) becomes a call into the core, after which the core's
outbox goes to the links. Plain calls: no task and no queue between a socket and the core.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from ringmq.overlay.bootstrap.discovery import Discovery
from ringmq.overlay.bootstrap.seeds import Seeds
from ringmq.overlay.config import Address, OverlayConfig, is_wildcard, show
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Message, Peer
from ringmq.overlay.core.ring import Application, Ring
from ringmq.overlay.core.timing import Timing
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.iteration import IterationOwner
from ringmq.overlay.links.handshake import Hello
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.table import LinkTable
from ringmq.overlay.queries import ask_status, introduce
from ringmq.overlay.status import describe, describe_links
from ringmq.overlay.timer import SOONEST_S, Timer

__all__ = ["Address", "Node", "OverlayConfig", "ask_status"]

Core = Callable[[Peer, Timing, Application], Ring]


class NodeApplication(Application, Protocol):
    """The layer above a node: what a ring core tells it, and what only a node with sockets can tell."""

    def started(self, me: Peer) -> None:
        """This peer has its address. Called once, before all else."""

    def read_done(self) -> None:
        """All that came in one read of a link has been handed over: what follows from it may be sent now."""


class Node:
    """A peer's overlay: listens, links, keeps the core's time. Create inside a running event loop.

    `ring` and `address` exist once `start` has returned. After a call to the core that is not made through here, and
    not from within a callback of the application, call `settled`.
    """

    ring: Ring
    address: Address
    _outbox: list[tuple[Peer, Message]]

    def __init__(
        self, config: OverlayConfig, application: NodeApplication, iteration: IterationOwner, core: Core = Ring
    ) -> None:
        self._config = config
        self._application = application
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._incidents = Incidents()
        self._iteration = iteration
        self._links = LinkTable(config, self, self._incidents, iteration)
        self._seeds: Seeds | None = None
        self._discovery: Discovery | None = None
        self._timer = Timer(self._tick)
        self._inside = False
        """In a call of the core, so that what the application does there is sent afterwards."""
        self._draining = False
        self._stopped = False
        self._began_at = self._loop.time()
        self._activated = asyncio.Event()
        self.more_status: Callable[[str], dict[str, Any]] = lambda about: {}
        """What the layers above have to add to `status`, or to say about something that the asker named."""

    # -- life

    async def start(self) -> None:
        """Listen and begin to join. Raises OverlayError with one clear line (port in use, bad address, …)."""
        try:
            port = await self._links.bind()
            me = Peer(self._config.id, self._config.advertised_host, port, self._config.boot)
            self.address = (me.host, me.port)
            self._application.started(me)
            self.ring = self._core(me, self._config.timing, self._application)
            self._outbox = self.ring.outbox
            self._iteration.loop_timers.append((self.ring.timers, self._timer))
            await self._links.serve(me)
            self._seeds = Seeds(self._config, await self._own_addresses(port), self, self._incidents)
            if self._config.discovery:
                self._discovery = Discovery(self._config, self, self._incidents)
                await self._discovery.start(port, self._seeds.others)
            self._seeds.start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Tell the neighbours, flush, close everything. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        if self._seeds is not None:
            await self._seeds.stop()
        if self._discovery is not None:
            await self._discovery.stop()
        if hasattr(self, "ring"):
            self._tell(self.ring.leave, self._iteration.begin())
        self._timer.stop()
        await self._links.close()

    async def wait_active(self, timeout_s: float) -> None:
        """Return once this peer serves keys. Raises OverlayError when that takes too long."""
        try:
            await asyncio.wait_for(self._activated.wait(), timeout_s)
        except TimeoutError:
            seeds = ", ".join(show(seed) for seed in self._config.seeds) or "none"
            raise OverlayError(
                f"no member of ring {self._config.ring!r} after {timeout_s:g} s; seeds: {seeds}"
            ) from None

    async def _own_addresses(self, port: int) -> frozenset[Address]:
        """Under which names this peer may find itself among its seeds, as far as one can tell without dialling."""
        hosts = {self._config.listen[0], self._config.advertised_host}
        for host in tuple(hosts):
            with contextlib.suppress(OSError, UnicodeError):
                hosts.update(str(info[4][0]) for info in await self._loop.getaddrinfo(host, port))
        return frozenset((host, port) for host in hosts if not is_wildcard(host))

    # -- what the layer above may ask

    def send(self, peer: Peer, payload: bytes) -> bool:
        """Send bytes to a peer whose address is known, past the core. False: it is slow or away, nothing was queued.

        Raises OverlayError for more than max_frame_bytes.
        """
        if len(payload) >= self._config.max_frame_bytes:
            raise OverlayError(
                f"a payload of {len(payload)} bytes, where {self._config.max_frame_bytes - 1} are allowed"
            )
        if peer.id != self._config.id:
            return self._links.send_parcel(peer, payload)
        self._application.receive(self.ring.me, payload)
        self._application.read_done()
        return True

    def room(self, peer: Id) -> int:
        """How many bytes `send` would take for that peer now."""
        return self._links.room(peer)

    def route(self, key: Id, payload: bytes) -> bool:
        """Send bytes to the owner of a key. False: too many such messages are on their way, try later."""
        taken = self.ring.route(key, payload, self._iteration.begin())
        self.settled()
        return taken

    @property
    def active(self) -> bool:
        return self.ring.active

    @property
    def counters(self) -> dict[str, int]:
        """Of the shell; those of the core are in `ring.statistics()`."""
        return dict(self._incidents.counters)

    def pause_reading(self) -> None:
        """Take nothing in from other peers. Longer than silence_s, and this peer is taken for dead."""
        self._links.set_reading(False)

    def resume_reading(self) -> None:
        self._links.set_reading(True)

    def status(self, about: str = "") -> dict[str, Any]:
        """A JSON-able snapshot: what `ringmq status --json` prints."""
        uptime_s = self._loop.time() - self._began_at
        own = describe(self.ring, self._config, self._links.open_links(), self.counters, uptime_s)
        own["search"] = None if self._seeds is None else self._seeds.outlook(alone=not self.ring.leaves)
        return own | self.more_status(about)

    def traffic(self) -> tuple[int, int, list[dict[str, Any]]]:
        """Bytes in and out over all links since the start, and the present links as in `status`, which costs more."""
        return *self._links.crossed(), describe_links(self._links.open_links())

    # -- what the links tell

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

    def read(self) -> None:
        """All that one read of a link brought was handed over."""
        try:
            self._application.read_done()
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._incidents.failed("core_errors")
        if (self._outbox or self._links.active is not self.ring.active) and not self._inside:
            self._drain()

    def settled(self) -> None:
        """Send what the core wants sent. When it wants to be called next is seen at the end of the iteration."""
        self._iteration.begin()
        if not self._inside:
            self._drain()

    def lost(self, peer: Peer, refused: bool) -> None:
        self._tell(self.ring.link_lost, peer, self._iteration.begin(), refused)

    def unsent(self, parcel: bytes) -> None:
        self._tell(self._application.unsent, parcel)

    def status_body(self, about: bytes) -> bytes:
        return msgspec.json.encode(self.status(about.decode("utf-8", "replace")))

    # -- what the seeds and discovery tell

    async def introduce(self, address: Address) -> Hello:
        return await introduce(self._config, self.ring.me, self.ring.active, address)

    def introduced(self, hello: Hello) -> None:
        """Somebody answered. Only one that is part of a ring is of use; the others are asked again."""
        if self._seeds is not None:
            self._seeds.answered(hello)
        if not hello.active:
            return
        if self.ring.active:
            self._tell(self.ring.meet, hello.peer, self._iteration.begin())
        else:
            self._tell(self.ring.join, hello.peer, self._iteration.begin())

    def linked(self, peer: Id) -> bool:
        return self._links.get(peer) is not None

    def known(self, peer: Id) -> bool:
        """Whether a hint about this peer would be no news."""
        return peer == self.ring.me.id or self.linked(peer) or peer in self.ring.leaves or peer in self.ring.table

    def found(self) -> None:
        self._tell(self.ring.found, self._iteration.begin())

    # -- the core

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        """Call the core for something that happened outside: no caller could handle what it raises."""
        self._iteration.begin()
        outer, self._inside = self._inside, True
        try:
            call(*arguments)
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._incidents.failed("core_errors")
        self._inside = outer
        self.settled()

    def _drain(self) -> None:
        """Hand the outbox to the links. What that causes (a link found stuck) is drained in the same loop."""
        if self._draining:
            return
        self._draining = True
        links, ring = self._links, self.ring
        try:
            while outbox := ring.take_outbox():
                links.me, links.active = ring.me, ring.active
                for peer, message in outbox:
                    links.send(peer, message)
        except Exception:  # noqa: BLE001 - the root of a callback: logged and counted
            self._incidents.failed("send_errors")
        finally:
            self._draining = False
        if links.active is not ring.active or links.me is not ring.me:
            links.me, links.active = ring.me, ring.active
        if ring.active is not self._activated.is_set():
            (self._activated.set if ring.active else self._activated.clear)()

    def _tick(self) -> None:
        now = self._iteration.begin()
        if self.ring.timers.next_at <= now + SOONEST_S:
            self._tell(self.ring.tick, now)
