"""Fixtures of the overlay's shell: waiting with a deadline, a clock that leaps, and sides of all kinds.

A `side` has real links, a stranger real bytes for it; `start` runs whole nodes on fake cores; `Wire` and `Board` are
the two ends that a single link sees.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pytest

from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.messages import Message, Parcel, Peer
from ringmq.overlay.core.timing import LOCAL, Timing
from ringmq.overlay.links.frames import FrameReader, Kind, frame
from ringmq.overlay.links.handshake import Hello, Reason, decode_goodbye, encode_hello
from ringmq.overlay.links.incidents import Incidents
from ringmq.overlay.links.link import Link
from ringmq.overlay.links.table import LinkTable
from ringmq.overlay.node import Node
from ringmq.peer.iteration import Iteration

PATIENCE_S = 20.0
QUICK = dataclasses.replace(LOCAL, join_s=0.1, reunion_s=0.02)


# -- time


async def wait_until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - anything may become true, and no other code should have to notify
            await asyncio.sleep(0.001)


@pytest.fixture
def until() -> Callable[[Callable[[], object]], Coroutine[Any, Any, None]]:
    """Wait until a condition holds; fail when that takes too long."""
    return wait_until


class Leaper(selectors.SelectSelector):
    """Moves a clock on instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "nothing will ever happen again"
            self.now += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time passes at once. For tests without sockets."""

    def __init__(self) -> None:
        self._leaper = Leaper()
        super().__init__(self._leaper)

    def time(self) -> float:
        return self._leaper.now

    async def moment(self, at_s: float) -> None:
        """Return when the clock, which began at 0, shows this."""
        over = self.create_future()
        self.call_at(at_s, over.set_result, None)
        await over


@pytest.fixture
def virtually() -> Callable[[Callable[[VirtualLoop], Coroutine[Any, Any, None]]], None]:
    """Run a story on a virtual loop; nothing may be left running at its end."""

    def run(story: Callable[[VirtualLoop], Coroutine[Any, Any, None]]) -> None:
        async def whole() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            await story(loop)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(whole())

    return run


# -- both ends of one link


class Wire:
    """A transport that writes to a list, and whose far end may stop taking anything."""

    def __init__(self, protocol: asyncio.Protocol) -> None:
        self._protocol = protocol
        self._closing = False
        self.deaf = False
        """The far end reads no more: written bytes stay in the buffer."""
        self.buffered_bytes = 0
        self.writes: list[bytes] = []
        self.aborted = False
        self.reading = True

    def writelines(self, chunks: list[bytes]) -> None:
        assert not self._closing
        self.writes.append(b"".join(chunks))
        if self.deaf:
            self.buffered_bytes += len(self.writes[-1])

    def get_write_buffer_size(self) -> int:
        return self.buffered_bytes

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.buffered_bytes:
                asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)

    def abort(self) -> None:
        if not self.aborted and not (self._closing and not self.buffered_bytes):
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
        self.aborted = self._closing = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def get_extra_info(self, name: str) -> object:
        return None

    def frames(self) -> list[tuple[int, bytes]]:
        """The frames written so far."""
        return list(FrameReader(1 << 30).feed(b"".join(self.writes)))


class Board:
    """A switchboard that records the calls of links; `on_ended` may do more."""

    def __init__(self) -> None:
        self.linked: list[Link] = []
        self.hellos: list[Hello | None] = []
        self.messages: list[tuple[Peer, Message]] = []
        self.faults: list[str] = []
        self.ends: list[tuple[Reason, str]] = []
        self.gone: list[Link] = []
        self.unfinished_bytes: list[int] = []
        self.turns = 0
        self.on_ended: Callable[[Link, Reason, str], None] = lambda link, reason, detail: None

    @cached_property
    def iteration(self) -> Iteration:
        return Iteration()

    def connected(self, link: Link) -> None:
        self.linked.append(link)

    def greeted(self, link: Link, hello: Hello | None) -> None:
        self.hellos.append(hello)

    def asked(self, link: Link, question: Kind, body: bytes) -> None:
        link.answer(Kind.REPLY if question == Kind.REQUEST else Kind.STATUS_REPLY, b"{}")

    def informed(self, link: Link, evidence: bytes) -> None: ...

    def received(self, sender: Peer, message: Message) -> None:
        self.messages.append((sender, message))

    def parcel(self, sender: Peer, payload: bytes) -> None:
        self.messages.append((sender, Parcel(payload)))

    def read_done(self) -> None:
        self.turns += 1

    def faulty(self, link: Link, why: str) -> None:
        self.faults.append(why)

    def ended(self, link: Link, reason: Reason, detail: str) -> None:
        self.ends.append((reason, detail))
        self.on_ended(link, reason, detail)

    def unfinished(self, link: Link, size_bytes: int) -> None:
        self.unfinished_bytes.append(size_bytes)

    def vanished(self, link: Link) -> None:
        self.gone.append(link)


@pytest.fixture
def wire() -> type[Wire]:
    return Wire


@pytest.fixture
def board() -> Board:
    return Board()


# -- links over real sockets


class Recorder:
    """An owner of links that records all calls."""

    active = False

    def __init__(self) -> None:
        self.messages: list[tuple[Peer, Message]] = []
        self.losses: list[tuple[Peer, bool]] = []
        self.unsent_parcels: list[bytes] = []
        self.members: dict[Id, Peer] = {}
        self.refusals: list[str] = []

    def received(self, sender: Peer, message: Message) -> None:
        self.messages.append((sender, message))

    def parcel(self, sender: Peer, payload: bytes) -> None:
        self.messages.append((sender, Parcel(payload)))

    def read_done(self) -> None: ...

    def lost(self, peer: Peer, refused: bool) -> None:
        self.losses.append((peer, refused))

    def unsent(self, parcel: bytes) -> None:
        self.unsent_parcels.append(parcel)

    def member(self, peer: Id) -> Peer | None:
        return self.members.get(peer)

    def refused(self, detail: str) -> None:
        self.refusals.append(detail)

    def status_body(self, about: bytes) -> bytes:
        return b'{"hello":"there"}'

    def requested(self, request: bytes, reply: Callable[[bytes], None]) -> None:
        reply(b'{"asked":"' + request + b'"}')


class Side:
    """One peer's links, and its identity."""

    def __init__(self, config: OverlayConfig) -> None:
        self.config = config
        self.owner = Recorder()
        self.incidents = Incidents()
        self.links = LinkTable(config, self.owner, self.incidents, Iteration())
        self.me = self.links.me

    async def start(self) -> None:
        port = await self.links.bind()
        self.me = Peer(self.config.id, "127.0.0.1", port, self.config.boot)
        await self.links.serve(self.me)

    def parcels(self) -> list[bytes]:
        return [message.payload for _, message in self.owner.messages if isinstance(message, Parcel)]

    def link(self, other: Side) -> Link | None:
        return self.links.get(other.me.id)


@pytest.fixture
async def side() -> AsyncIterator[Callable[..., Coroutine[Any, Any, Side]]]:
    """Starts a side; all are closed in the end, and nothing is left running."""
    started: list[Side] = []

    async def begin(peer_id: int, **changes: Any) -> Side:
        config = OverlayConfig(id=Id(peer_id), boot=1, listen=("127.0.0.1", 0))
        made = Side(dataclasses.replace(config, **changes))
        started.append(made)
        await made.start()
        return made

    yield begin
    await asyncio.gather(*(made.links.close() for made in started))
    assert not [made for made in started if made.links._sockets]
    assert asyncio.all_tasks() == {asyncio.current_task()}


class Stranger:
    """Raw bytes to a side's port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.heard: list[tuple[int, bytes]] = []
        """Frames of the last call of `hears`."""

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        with contextlib.suppress(OSError):
            await self.writer.drain()

    async def hears(self, count: int = 1) -> list[tuple[int, bytes]]:
        """The next frames; fewer when the connection ends."""
        cutter = FrameReader(1 << 20)
        self.heard = []
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(OSError):
                while len(self.heard) < count and (data := await self.reader.read(65536)):
                    self.heard += cutter.feed(data)
        return self.heard

    async def hears_goodbye(self, count: int = 1) -> Reason:
        """The last of the next frames is a GOODBYE; why."""
        kind, body = (await self.hears(count))[-1]
        assert kind == Kind.GOODBYE, self.heard
        return decode_goodbye(body)[0]

    async def ended(self) -> bool:
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(OSError):
                while await self.reader.read(65536):
                    pass
        return True

    async def greet(self, ours: Side, peer_id: int = 5, boot: int = 1, **changes: Any) -> None:
        hello = Hello("ringmq", Peer(Id(peer_id), "127.0.0.1", 1, boot), True, ours.me.id)
        body = encode_hello(Hello(**{**{name: getattr(hello, name) for name in hello.__struct_fields__}, **changes}))
        await self.say(frame(Kind.HELLO, body))


@pytest.fixture
def stranger_to() -> Callable[[Side], contextlib.AbstractAsyncContextManager[Stranger]]:
    """A connection to a side that has said nothing yet."""

    @contextlib.asynccontextmanager
    async def connect(ours: Side) -> AsyncIterator[Stranger]:
        reader, writer = await asyncio.open_connection("127.0.0.1", ours.me.port, limit=1 << 16)
        try:
            yield Stranger(reader, writer)
        finally:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    return connect


# -- other servers


@pytest.fixture
async def answering() -> AsyncIterator[Callable[..., Coroutine[Any, Any, tuple[str, int]]]]:
    """Starts a server that says `chunks`, each in a packet of its own, and hangs up unless it shall stay; where."""
    servers: list[asyncio.Server] = []

    async def begin(*chunks: bytes, stays: bool = False) -> tuple[str, int]:
        async def reply(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                for chunk in chunks:
                    writer.write(chunk)
                    await writer.drain()
                    await asyncio.sleep(0)
                if stays:
                    await reader.read(-1)
            writer.close()

        servers.append(await asyncio.start_server(reply, "127.0.0.1", 0))
        host, port = servers[-1].sockets[0].getsockname()
        return host, port

    yield begin
    for server in servers:
        server.close()
        await server.wait_closed()
    await wait_until(lambda: asyncio.all_tasks() == {asyncio.current_task()})


@pytest.fixture
def free_port() -> Callable[[], Coroutine[Any, Any, int]]:
    """A port that nobody listens on; raced for only by those on this machine that ask the system for one."""

    async def find() -> int:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        return int(port)

    return find


# -- whole nodes


class FakeCore:
    """Notes what the shell does; active once it founded, or joined somebody."""

    def __init__(self, me: Peer, timing: Timing, application: object) -> None:
        self.me = me
        self.active = False
        self.application = application
        self.calls: list[tuple[object, ...]] = []
        self.outbox: list[tuple[Peer, Message]] = []
        self.timers = SimpleNamespace(next_at=math.inf)
        self.leaves: set[Id] = set()
        self.table: set[Id] = set()
        self.detours: dict[Id, Peer] = {}
        self.then: Callable[[], None] = lambda: None

    def _called(self, *call: object) -> None:
        self.calls.append(call)
        self.then()

    def named(self, name: str) -> list[tuple[object, ...]]:
        return [call for call in self.calls if call[0] == name]

    def member(self, peer_id: Id) -> Peer | None:
        return None

    def found(self, now: float) -> None:
        self.active = True
        self._called("found")

    def join(self, contact: Peer, now: float) -> None:
        self.active = True
        self._called("join", contact)

    def meet(self, peer: Peer, now: float) -> None:
        self._called("meet", peer)

    def leave(self, now: float) -> None:
        self._called("leave")

    def receive(self, sender: Peer, message: Message, now: float) -> None:
        self._called("receive", sender, message)

    def parcel(self, sender: Peer, payload: bytes, now: float) -> None:
        self.receive(sender, Parcel(payload), now)

    def link_lost(self, peer: Peer, now: float, refused: bool) -> None:
        self._called("link_lost", peer, refused)

    def find_way(self, peer: Peer, now: float) -> None:
        self._called("find_way", peer)

    def route(self, key: Id, payload: bytes, now: float) -> bool:
        self._called("route", key, payload)
        return True

    def send(self, peer: Peer, payload: bytes) -> None:
        self.outbox.append((peer, Parcel(payload)))

    def tick(self, now: float) -> None:
        assert now >= self.timers.next_at
        self.timers.next_at = math.inf
        self._called("tick", now)

    def take_outbox(self) -> list[tuple[Peer, Message]]:
        taken = self.outbox[:]
        self.outbox.clear()
        return taken

    def statistics(self) -> SimpleNamespace:
        return SimpleNamespace(
            active=self.active,
            clockwise=(self.me,),
            counterclockwise=(),
            table_size=3,
            suspects=0,
            dead=0,
            counters={"x": 1},
        )


class Patient(FakeCore):
    """Never gets into a ring by joining."""

    def join(self, contact: Peer, now: float) -> None:
        self._called("join", contact)


class App:
    def __init__(self) -> None:
        self.received: list[tuple[Peer, bytes]] = []

    def started(self, me: Peer) -> None: ...
    def read_done(self) -> None: ...
    def unsent(self, payload: bytes) -> None: ...

    def receive(self, sender: Peer, payload: bytes) -> None:
        self.received.append((sender, payload))


@pytest.fixture
def patient() -> type[FakeCore]:
    return Patient


@pytest.fixture
def quick() -> Timing:
    """The timing of the nodes that `start` runs."""
    return QUICK


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Coroutine[Any, Any, Node]]]:
    """Starts nodes on fake cores; all are stopped in the end, and nothing is left running."""
    started: list[Node] = []

    async def run(peer_id: int, core: Any = FakeCore, more_status: Any = None, **changes: Any) -> Node:
        config = OverlayConfig(
            id=Id(peer_id), boot=1, listen=("127.0.0.1", 0), timing=QUICK, discovery=False, linger_s=0.5
        )
        node = Node(dataclasses.replace(config, **changes), App(), Iteration(), core, more_status)
        started.append(node)
        await node.start()
        return node

    yield run
    await asyncio.gather(*(node.stop() for node in started))
    assert asyncio.all_tasks() == {asyncio.current_task()}
