"""Traces the calls of one PUBLISH with QoS 1 and a property, from the publisher's socket to its PUBACK, over two peers.

Both peers run in this process with real sockets. A publication with a property takes the general path. The figures are
counts of calls, which do not depend on the machine: how much code a reader has to follow, and how much of it is
bookkeeping. Run it with `python -m ringmq.experiments.benchmarks.publish_walk`.

While calls are traced, the clock of the event loop stands still, so no timer comes due: heartbeats, renewals and sweeps
happen before or after. The loop first runs until nothing is left to do, so every traced call is a consequence of the
PUBLISH. A walk ends with the callback that wrote the PUBACK; calls of later callbacks are counted apart.
"""

from __future__ import annotations

import ast
import asyncio
import json
import select
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

import click

from ringmq.mqtt_front.server.listeners import Listen
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.overlay.config import Address, OverlayConfig
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.timing import LOCAL
from ringmq.overlay.node import Node
from ringmq.peer.engines.partitioned.shell.adapter import PartitionedAdapter
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import LOCAL as ROLES

GOAL_SHARE: Final = 0.15
"""The limit for bookkeeping among the calls; a test holds it."""
GOAL_FILES: Final = 47
"""The limit for files that a PUBLISH enters; a test holds it."""


class Group(NamedTuple):
    """Calls of one purpose, by the qualified names of their functions."""

    title: str
    reason: str
    names: tuple[str, ...]


BOOKKEEPING: Final = (
    Group(
        "clock",
        "sets or reads the time",
        ("Iteration.begin", "Iteration.advance", "Ring._at"),
    ),
    Group(
        "own id",
        "looks up the id of this peer, the node it belongs to, or whether it is active",
        ("MessagingContext.me", "EngineAdapter.active", "Node.active"),
    ),
    Group(
        "flush wanted",
        "asks whether something must be flushed, or whether it may be",
        ("EngineAdapter._owing", "PartitionedEngine.owes", "BaseEngine.owes", "Streams.owes",
         "ReceiveWindows.owes", "FrontClients.safe"),
    ),
    Group(
        "flush",
        "ends a batch of calls or an iteration of the loop: commits, and leads to the function that writes",
        (
            "Iteration._end", "Iteration._run", "EngineAdapter._leave", "EngineAdapter.read_done", "AmqttClients.leave",
            "MqttServer.send_soon", "MqttServer._flush", "MqttServer._commit",
            "NoJournal.commit", "EngineAdapter._commit", "PartitionedAdapter._commit", "MessagingContext.keep_promises",
            "Node.read_done", "Node.flush_outbox", "Node._drain", "Ring.take_outbox",
        ),
    ),
    Group(
        "timer",
        "asks for the next deadline, or re-arms the one timer of a core",
        ("Ring.timers", "BaseEngine.timers", "Ring.deadline", "BaseEngine.deadline", "Timer.set"),
    ),
)  # fmt: skip
"""The list to keep up. Each name must be defined in exactly one file, whichever that is. A name that is gone makes the
script fail, so that a renamed function cannot drop out of the count."""

NEAR: Final = (
    Group(
        "write",
        "hands bytes to a socket or a link",
        ("Link._flush", "ClientSocket.flush_at_once", "Writer.gathered", "Writer.clear", "MessagingContext.flush"),
    ),
    Group(
        "retry",
        "arms the retry timer of this message",
        ("SendWindows._retry_later", "MessagingContext.after", "TimerQueue.at"),
    ),
    Group(
        "answer",
        "makes B acknowledge to A",
        ("EngineAdapter._acknowledge", "PartitionedEngine.acknowledge", "BaseEngine.acknowledge"),
    ),
    Group("mark", "puts a connection on the list of connections to flush", ("Writer.wake",)),
    Group("budget", "limits the work of one iteration", ("Reader.begin_iteration", "Work.begin")),
    Group("heard", "ends a suspicion of the sender", ("FailureDetector.heard",)),
    Group("entry", "defers calls that the roles make to each other", ("BaseEngine._do",)),
    Group("state", "asks for the state of a link", ("Link.closed", "Link.introduced_as")),
    Group("count", "counts packets and messages", ("FrontCounters.given", "FrontCounters.received")),
    Group(
        "record",
        "asks whether the message must be recorded, and notes it",
        ("is_of_the_log", "_never", "Tracing.begins", "Tracing.comes"),
    ),
)
"""Calls that resemble bookkeeping and are counted as work, for the reason given. Kept up like the list above."""

GENERAL_PATH: Final = ("Handlers.on_publish", "Writer.publish")
"""Functions that the fast path leaves out, at the publisher's connection and at the subscriber's."""

ROOT: Final = Path(__file__).absolute().parents[2]
NOT_TRACED: Final = {"experiments", "tests"}
"""Folders beside the product."""
INLINED: Final = {"<listcomp>", "<setcomp>", "<dictcomp>"}
"""Calls in Python 3.11 alone, left out so that the figures are those of later versions as well."""

PATIENCE_S: Final = 20.0
QUIET_ITERATIONS: Final = 20
"""Iterations of the loop after which nothing is left to do while its clock stands still: a PUBLISH and its PUBACK take
seven callbacks."""
WARM_UP: Final = 3
TOPIC: Final = b"walk/topic"
PROPERTY: Final = b"\x26\x00\x03key\x00\x05value"
"""A user property (5.0 §3.3.2.3.7)."""
PAYLOAD: Final = b"payload"


class WalkError(click.ClickException):
    """The walk cannot be traced."""


class Call(NamedTuple):
    """A call of a function of the project. A generator is called again each time it is resumed."""

    depth: int
    file: str
    name: str
    line: int
    """The first line of the function: lambdas of one function share a name."""


@dataclass(frozen=True, slots=True)
class Walk:
    """The calls of one PUBLISH, in order."""

    calls: tuple[Call, ...]
    later: int
    """Further calls that the PUBLISH caused, in callbacks after the one that wrote the PUBACK."""
    puback: bytes

    @property
    def functions(self) -> int:
        return len({(call.file, call.name, call.line) for call in self.calls})

    @property
    def files(self) -> Counter[str]:
        """Calls by file, in the order of the first entry."""
        return Counter(call.file for call in self.calls)

    @property
    def file_changes(self) -> int:
        return _changes(call.file for call in self.calls)

    @property
    def folder_changes(self) -> int:
        return _changes(call.file.split("/")[0] for call in self.calls)

    def of(self, groups: Sequence[Group]) -> dict[str, dict[str, int]]:
        """How often each function of each group was called."""
        counts = Counter(call.name for call in self.calls)
        return {group.title: {name: counts[name] for name in group.names} for group in groups}

    def total(self, groups: Sequence[Group]) -> int:
        return sum(sum(counts.values()) for counts in self.of(groups).values())

    @property
    def share(self) -> float:
        """The share of the calls that is bookkeeping."""
        return self.total(BOOKKEEPING) / len(self.calls)


def _changes(names: Iterable[str]) -> int:
    return sum(before != after for before, after in pairwise(names))


# The names


def wrong_names(names: Iterable[str], definitions: dict[str, set[str]]) -> list[str]:
    """A fault for each name that no file defines, or that several files define."""
    faults = []
    for name in names:
        files = sorted(definitions.get(name, ()))
        if not files:
            faults.append(f"no function is called {name}: rename it in the lists of publish_walk.py, or remove it")
        elif len(files) > 1:
            faults.append(f"{name} must be defined in one file to be counted by its name, got {', '.join(files)}")
    return faults


def listed_names() -> list[str]:
    return [name for group in (*BOOKKEEPING, *NEAR) for name in group.names] + list(GENERAL_PATH)


def definitions() -> dict[str, set[str]]:
    """The functions of the project by qualified name, each with the files that define it."""
    found: dict[str, set[str]] = defaultdict(set)
    for folder in ROOT.iterdir():
        if folder.name not in NOT_TRACED and (folder / "__init__.py").exists():
            for path in folder.rglob("*.py"):
                for name in functions_in(path.read_text(encoding="utf-8")):
                    found[name].add(path.relative_to(ROOT).as_posix())
    return found


def functions_in(source: str) -> set[str]:
    """Qualified names of functions at the level of the module and of its classes."""

    def within(body: Iterable[ast.stmt], prefix: str) -> Iterable[str]:
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield prefix + statement.name
            elif isinstance(statement, ast.ClassDef):
                yield from within(statement.body, f"{prefix}{statement.name}.")

    return set(within(ast.parse(source).body, ""))


# The trace


class Tracer:
    """A profile function that records the calls of project code and finds the end of the walk."""

    def __init__(self, answered: Callable[[], bool]) -> None:
        """`answered` says whether the PUBACK has been written."""
        self.calls: list[Call] = []
        self.later = 0
        self._answered = answered
        self._over = False
        self._stack: list[FrameType] = []

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            code = frame.f_code
            file = _project_file(code.co_filename)
            if file and code.co_name not in INLINED:
                if self._over:
                    self.later += 1
                else:
                    self.calls.append(Call(len(self._stack), file, code.co_qualname, code.co_firstlineno))
                self._stack.append(frame)
        elif event == "return" and self._stack and self._stack[-1] is frame:
            self._stack.pop()
            if not self._stack and not self._over:
                self._over = self._answered()


@cache
def _project_file(path: str) -> str:
    """The path inside the project; empty for all other code."""
    if not path.startswith(f"{ROOT}/"):
        return ""
    file = path[len(str(ROOT)) + 1 :]
    folder = file.split("/")[0]
    return "" if folder.startswith(".") or folder in NOT_TRACED else file


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose clock can stand still; afterwards it goes on from there."""

    _stands_at: float | None = None
    _behind_s = 0.0

    def time(self) -> float:
        return super().time() - self._behind_s if self._stands_at is None else self._stands_at

    def stop_clock(self) -> None:
        self._stands_at = self.time()

    def start_clock(self) -> None:
        assert self._stands_at is not None
        self._behind_s = super().time() - self._stands_at
        self._stands_at = None


# The peers and their clients


class _Peer:
    """One peer without a process of its own: node, roles and front, with nothing on a disk."""

    def __init__(self, number: int, seeds: tuple[Address, ...]) -> None:
        iteration = Iteration()
        self._cluster = PartitionedAdapter(ROLES, iteration)
        self._front = MqttServer(iteration, cluster=self._cluster)
        self.mqtt: Address = ("127.0.0.1", 0)
        """Where clients connect, once `start` has returned."""
        config = OverlayConfig(
            id=Id(number << 100), boot=1, listen=("127.0.0.1", 0), seeds=seeds, timing=LOCAL, discovery=False
        )
        self.node = Node(config, self._cluster, iteration)
        self._cluster.attach(self.node, self._front)

    async def start(self) -> None:
        await self.node.start()
        self._cluster.begin()
        self.mqtt = await self._front.listen(Listen(host="127.0.0.1", port=0))
        await self.node.wait_active(PATIENCE_S)

    async def stop(self) -> None:
        await self._front.stop()
        self._cluster.stop()
        await self.node.stop()


class _Client:
    """A blocking socket with an MQTT 5.0 session: it calls no code of the project and needs no turn of the loop."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address)

    async def connect(self, client_id: bytes) -> None:
        await self.ask(_packet(0x10, _text(b"MQTT") + bytes([5, 2, 0, 0, 0]) + _text(client_id)), 0x20)

    def send(self, packet: bytes) -> None:
        self.socket.sendall(packet)

    def has_answer(self) -> bool:
        return bool(select.select((self.socket,), (), (), 0)[0])

    async def ask(self, packet: bytes, answer: int) -> bytes:
        self.send(packet)
        return await self.receive(answer)

    async def receive(self, kind: int) -> bytes:
        """The next packet, which must be of a kind. The loop runs meanwhile, whether its clock stands still or not."""
        end = time.monotonic() + PATIENCE_S
        while not self.has_answer():
            if time.monotonic() > end:
                raise WalkError(f"no packet 0x{kind:02x} came within {PATIENCE_S:g} s")
            await asyncio.sleep(0)
        packet = self.socket.recv(4096)
        if packet[:1] != bytes([kind]):
            raise WalkError(f"a packet 0x{kind:02x} was expected, got {packet.hex() or 'the end of the connection'}")
        return packet


def _packet(first: int, body: bytes) -> bytes:
    assert len(body) < 128, "the length has one byte"
    return bytes([first, len(body)]) + body


def _text(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


class _Walker:
    """A publisher at one peer and a subscriber at the other."""

    def __init__(self, publisher: _Client, subscriber: _Client) -> None:
        self._publisher = publisher
        self._subscriber = subscriber
        self._packet_id = 0

    async def subscribe(self) -> None:
        await self._subscriber.ask(_packet(0x82, b"\x00\x01\x00" + _text(TOPIC) + b"\x01"), 0x90)

    async def publish(self) -> bytes:
        """Publish, and return the PUBACK."""
        self._packet_id += 1
        packet_id = self._packet_id.to_bytes(2, "big")
        properties = bytes([len(PROPERTY)]) + PROPERTY
        puback = await self._publisher.ask(_packet(0x32, _text(TOPIC) + packet_id + properties + PAYLOAD), 0x40)
        if puback[2:4] != packet_id or any(puback[4:5]):
            raise WalkError(f"a PUBACK with success for packet {self._packet_id} was expected, got {puback.hex()}")
        return puback

    async def acknowledge(self) -> None:
        """The subscriber's part. The PUBACK to the publisher does not wait for it, so no walk has it."""
        message = await self._subscriber.receive(0x32)
        if PROPERTY + PAYLOAD not in message:
            raise WalkError(f"the message lost its property or its payload: {message.hex()}")
        after_topic = 2 + len(_text(TOPIC))
        self._subscriber.send(_packet(0x40, message[after_topic : after_topic + 2]))

    async def walk(self) -> Walk:
        """Publish while calls are traced. The clock must stand still."""
        await _settle()
        tracer = Tracer(self._publisher.has_answer)
        sys.setprofile(tracer)
        try:
            puback = await self.publish()
            await _settle()
        finally:
            sys.setprofile(None)
        await self.acknowledge()
        await _settle()
        names = {call.name for call in tracer.calls}
        for name in GENERAL_PATH:
            if name not in names:
                raise WalkError(f"the PUBLISH must take the general path by {name}, and did not")
        return Walk(tuple(tracer.calls), tracer.later, puback)


async def _settle() -> None:
    for _ in range(QUIET_ITERATIONS):
        await asyncio.sleep(0)


async def _walks(loop: Loop, count: int, apart_s: float) -> list[Walk]:
    a = _Peer(1, ())
    b: _Peer | None = None
    try:
        await a.start()
        b = _Peer(2, (a.node.address,))
        await b.start()
        with ExitStack() as sockets:
            publisher, subscriber = _Client(a.mqtt), _Client(b.mqtt)
            sockets.enter_context(publisher.socket)
            sockets.enter_context(subscriber.socket)
            await publisher.connect(b"publisher")
            await subscriber.connect(b"subscriber")
            walker = _Walker(publisher, subscriber)
            await walker.subscribe()
            return await _repeat(walker, loop, count, apart_s)
    finally:
        for peer in (b, a):
            if peer is not None:
                await peer.stop()


async def _repeat(walker: _Walker, loop: Loop, count: int, apart_s: float) -> list[Walk]:
    for _ in range(WARM_UP):
        await walker.publish()
        await walker.acknowledge()
    walks: list[Walk] = []
    while len(walks) < count:
        await asyncio.sleep(apart_s)
        loop.stop_clock()
        try:
            if not apart_s:
                # As in a stream of publications, the lease of the lists was just checked and a retry timer is set.
                await walker.publish()
                await walker.acknowledge()
            walks.append(await walker.walk())
        finally:
            loop.start_clock()
    return walks


def walks(count: int, apart_s: float = 0.0) -> list[Walk]:
    """Trace several publications, `apart_s` after each other; 0: at one instant. Raises WalkError."""
    with asyncio.Runner(loop_factory=Loop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, Loop)
        return runner.run(_walks(loop, count, apart_s))


def most_common(found: Sequence[Walk]) -> tuple[Walk, int]:
    """The walk whose calls came most often, and how often."""
    calls, times = Counter(walk.calls for walk in found).most_common(1)[0]
    return next(walk for walk in found if walk.calls == calls), times


# What is shown


def figures(found: Sequence[Walk], with_calls: bool) -> dict[str, Any]:
    walk, times = most_common(found)
    report: dict[str, Any] = {
        "calls": len(walk.calls),
        "functions": walk.functions,
        "files": len(walk.files),
        "changes_of_file": walk.file_changes,
        "changes_of_folder": walk.folder_changes,
        "bookkeeping": walk.total(BOOKKEEPING),
        "bookkeeping_share": round(walk.share, 4),
        "calls_after_puback": walk.later,
        "goals": {"bookkeeping_share": GOAL_SHARE, "files": GOAL_FILES},
        "walks": {"calls": [len(each.calls) for each in found], "like_this": times},
        "bookkeeping_calls": walk.of(BOOKKEEPING),
        "near_bookkeeping_calls": walk.of(NEAR),
        "calls_by_file": dict(walk.files),
    }
    if with_calls:
        report["trace"] = [(call.depth, call.name, call.file) for call in walk.calls]
    return report


def lines(found: Sequence[Walk], with_calls: bool) -> Iterable[str]:
    walk, times = most_common(found)
    counts = [len(each.calls) for each in found]
    yield "One PUBLISH, QoS 1 with a property, Direct, peer A to peer B, until its PUBACK"
    yield f"calls {len(walk.calls)}, functions {walk.functions}, files {len(walk.files)} (goal {GOAL_FILES})"
    yield f"changes of file {walk.file_changes}, changes of folder {walk.folder_changes}"
    yield f"bookkeeping {walk.total(BOOKKEEPING)} calls, {walk.share:.1%} (goal {GOAL_SHARE:.0%})"
    yield f"{times} of {len(found)} walks are like this; {min(counts)} to {max(counts)} calls each"
    yield f"{walk.later} more calls in callbacks after the PUBACK, not counted above"
    for title, groups in (("Bookkeeping", BOOKKEEPING), ("Near to it, counted as work", NEAR)):
        yield f"\n{title}: {walk.total(groups)} calls"
        for group, names in zip(groups, walk.of(groups).values(), strict=True):
            yield f"{sum(names.values()):4}  {group.title}: {group.reason}"
            yield from (f"{count:10}  {name}" for name, count in sorted(names.items(), key=lambda item: -item[1]))
    yield f"\nFiles, in the order of the first entry: {len(walk.files)}"
    yield from (f"{count:4}  {file}" for file, count in walk.files.items())
    if with_calls:
        bookkeeping = {name for group in BOOKKEEPING for name in group.names}
        yield "\nCalls, bookkeeping marked with *"
        for call in walk.calls:
            mark = "*" if call.name in bookkeeping else " "
            yield f"{mark} {'  ' * call.depth}{call.name}  {call.file}"


@click.command()
@click.option("--calls", is_flag=True, help="Print the calls in order, indented by depth.")
@click.option("--json", "as_json", is_flag=True, help="Print all figures as JSON.")
@click.option("--walks", "count", default=5, show_default=True, type=click.IntRange(1, 100), help="Traced PUBLISHes.")
@click.option(
    "--apart",
    default=0.0,
    show_default=True,
    type=click.FloatRange(0, 60),
    help="Seconds between two of them; 0: all at one instant, as in a stream of publications.",
)
def main(calls: bool, as_json: bool, count: int, apart: float) -> None:
    """Count the calls of one PUBLISH on its way over two peers."""
    faults = wrong_names(listed_names(), definitions())
    if faults:
        raise WalkError("; ".join(faults))
    found = walks(count, apart)
    if as_json:
        click.echo(json.dumps(figures(found, calls), indent=2))
    else:
        click.echo("\n".join(lines(found, calls)))


if __name__ == "__main__":
    main()
