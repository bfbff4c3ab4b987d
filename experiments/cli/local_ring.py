"""`ringmq ring`: a ring of many peers as processes on this machine; only the wires between machines are missing.

Owns the child processes from their start to their end. Knows a peer only by its command line, its output and its status
reply; imports nothing from it except the settings and their ranges.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from ringmq.experiments.processes.children import Child
from ringmq.experiments.processes.ports import choose_ports, is_free
from ringmq.logger.config import DELIVERIES
from ringmq.overlay.config import Address, show
from ringmq.overlay.core.ids import Id
from ringmq.overlay.core.leaf_set import HALF, LeafSet
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.timing import PRESETS
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import ask_status
from ringmq.peer.errors import ConfigError
from ringmq.peer.messaging.config import MAX_SHADOWS
from ringmq.peer.resources.limits import allow_files
from ringmq.peer.settings.load import load
from ringmq.peer.settings.model import DISPATCHES, FANOUT
from ringmq.peer.settings.toml_file import read_toml

HOST: Final = "127.0.0.1"
PROGRAM: Final = "ringmq"
MAX_PEERS: Final = 500
"""At 40 MB each they take 20 GB, the memory of a large workstation. The simulator has larger rings."""
PAGE_PORT: Final = 8880
"""Port of the live page, which the first peer serves."""
FILES_PER_PEER: Final = 3
"""Two pipes for its output and its errors, and one connection that asks for its status."""
STOP_S: Final = 6.0
"""Time for the peers to say good-bye before they are killed. It exceeds a peer's own limit for its good-byes."""
READY_S: Final = 30.0
READY_S_PER_PEER: Final = 1.0
"""Time for a ring to become whole, in all: several times the time that two cores need."""
ASK_S: Final = 3.0
"""Time for a peer to answer a request for its status."""
ASK_AT_ONCE: Final = 16
"""Status requests in flight: enough to keep two cores busy, few enough to leave the ring time for its own work."""
TIMING: Final = "local"
"""Timing preset if neither the command line nor the file names one."""
RUN: Final = "%Y%m%dT%H%M%SZ"
"""Form of the default run name in the records of a ring: the time of its start."""
OF_ONE_PEER: Final = {
    "overlay": "use --overlay-port",
    "advertise": "the peers meet on this machine",
    "join": "the peers meet on this machine",
    "data": "use --data",
    "identity": "peers on one machine need none",
    "mqtt": "use --mqtt-port",
    "mqtt_tls": "a ring on one machine has none",
    "mqtt_ws": "a ring on one machine has none",
    "mqtt_wss": "a ring on one machine has none",
    "http": "the first peer serves the page by itself",
    "http_tokens": "a ring on one machine needs none",
}
"""Settings that the file of all peers cannot have, each with the alternative."""
RECORDS_OF_ONE_PEER: Final = {"file": "collect the records by MQTT", "metrics": "ask each peer for its status"}
"""The same for settings of the table `[record]`."""
PAUSE_S: Final = 0.1
"""Pause between two rounds of status requests to the peers that are not settled yet."""


class LocalRing:
    """Starts the peers, reports when they form one ring, and stops them."""

    def __init__(
        self,
        overlay_ports: Sequence[int],
        mqtt_ports: Sequence[int],
        options: Sequence[str],
        data: Path | None,
        page_ports: tuple[int, int] | None = None,
    ) -> None:
        """`page_ports`: the first peer serves the live page at the first of these ports, and MQTT over WebSocket for it
        at the second."""
        self.addresses: list[Address] = [(HOST, port) for port in overlay_ports]
        self.mqtt_ports = mqtt_ports
        self.page_ports = page_ports
        self.children: list[Child] = []
        self._options = options
        self._data = data
        # Nothing is ever written to this pipe: the children end when they read its end, after this process is gone.
        self._pipe, self._parent_end = os.pipe()

    async def start(self, on_active: Callable[[], None]) -> None:
        """Start the first peer and, once it serves, all others. Raises ClickException if a peer ends before that."""
        await self._spawn(self.addresses[0])
        await self._until_active(self.children[0], on_active)
        for address in self.addresses[1:]:
            await self._spawn(address)
        await _all(self._until_active(child, on_active) for child in self.children[1:])

    async def settle(self, on_settled: Callable[[], None]) -> None:
        """Return when each peer serves clients, is active and has the leaf set that follows from the ids of all."""
        limit = asyncio.Semaphore(ASK_AT_ONCE)

        async def ask(child: Child) -> dict[str, Any]:
            async with limit:
                with contextlib.suppress(OverlayError):
                    return await ask_status(child.address, ASK_S)
            return {}

        unsettled = list(self.children)
        ids: dict[Child, Id] = {}
        while True:
            self._refuse_dead(self.children)
            answers = dict(zip(unsettled, await asyncio.gather(*map(ask, unsettled)), strict=True))
            ids.update((child, Id.parse(answer["id"])) for child, answer in answers.items() if answer)
            # The expected leaf sets depend on the ids of all peers, so no peer is settled before all ids are known.
            if len(ids) == len(self.children):
                all_ids = set(ids.values())
                settled = {
                    child
                    for child, answer in answers.items()
                    if answer and answer["listeners"] and is_settled(answer, all_ids)
                }
                for _ in settled:
                    on_settled()
                unsettled = [child for child in unsettled if child not in settled]
            if not unsettled:
                return
            await asyncio.sleep(PAUSE_S)

    async def watch(self, stop: asyncio.Event) -> None:
        """Report each child that ends, until `stop` is set. Raises ClickException when none is left."""
        alive = set(self.children)
        stopping = asyncio.create_task(stop.wait())
        endings = {asyncio.create_task(child.ended.wait()): child for child in self.children}
        try:
            while alive:
                done, _ = await asyncio.wait({stopping, *endings}, return_when=asyncio.FIRST_COMPLETED)
                if stopping in done:
                    return
                for child in [endings.pop(task) for task in done]:
                    alive.discard(child)
                    click.echo(f"ringmq: {child} ended: {child.fate}", err=True)
        finally:
            for task in (stopping, *endings):
                task.cancel()
        raise click.ClickException("no peer is left")

    async def stop(self) -> None:
        """End all children, first with SIGTERM, later with SIGKILL, and wait for them. SIGCONT wakes paused ones."""
        for child in self.children:
            child.send(signal.SIGTERM)
            child.send(signal.SIGCONT)
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(*(child.ended.wait() for child in self.children))
        except TimeoutError:
            for child in self.children:
                child.send(signal.SIGKILL)
            await asyncio.gather(*(child.ended.wait() for child in self.children))
        os.close(self._parent_end)
        os.close(self._pipe)

    async def _spawn(self, address: Address) -> None:
        number = len(self.children)
        join = ["--join", show(self.addresses[0])] if number else []
        mqtt = ["--mqtt", show((HOST, self.mqtt_ports[number]))]
        data = ["--data", str(self._data / f"peer-{number + 1:03}")] if self._data else []
        page = []
        if self.page_ports is not None and not number:
            http, websocket = self.page_ports
            page = ["--http", show((HOST, http)), "--mqtt-ws", show((HOST, websocket))]
        self.children.append(await Child.start(address, [*self._options, *join, *mqtt, *data, *page], self._pipe))

    async def _until_active(self, child: Child, on_active: Callable[[], None]) -> None:
        waits = [asyncio.create_task(child.active.wait()), asyncio.create_task(child.ended.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits:
                task.cancel()
        self._refuse_dead([child])
        on_active()

    def _refuse_dead(self, children: Collection[Child]) -> None:
        for child in children:
            if child.ended.is_set():
                raise click.ClickException(f"{child} did not start: {child.fate}")


async def _all(waits: Iterator[Any]) -> None:
    """Wait for all, or until the first fails: then raise its error and cancel the others."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def expected_leaves(own_id: Id, all_ids: Collection[Id], half: int = HALF) -> set[Id]:
    """The exact leaf set of the peer `own_id` in a ring of `all_ids`."""
    leaves = LeafSet(own_id, half)
    leaves.fill(Peer(peer_id, "127.0.0.1", 1, 0) for peer_id in all_ids)
    return leaves.ids


def is_settled(status: Mapping[str, Any], all_ids: Collection[Id]) -> bool:
    """Whether a peer with this status serves keys and has exactly its expected leaf set."""
    sides = status["leaves"]
    leaves = {Id.parse(leaf["id"]) for side in ("clockwise", "counterclockwise") for leaf in sides[side]}
    return bool(status["active"]) and leaves == expected_leaves(Id.parse(status["id"]), all_ids)


async def _run(local_ring: LocalRing) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    stopping = asyncio.create_task(stop.wait())
    starting = asyncio.create_task(_start(local_ring))
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            await local_ring.watch(stop)
    finally:
        starting.cancel()
        stopping.cancel()
        # A process whose start was under way must be among the children before `stop` ends them all.
        await asyncio.wait({starting})
        await local_ring.stop()


async def _start(local_ring: LocalRing) -> None:
    count = len(local_ring.addresses)
    limit_s = READY_S + READY_S_PER_PEER * count
    try:
        async with asyncio.timeout(limit_s):
            with click.progressbar(
                length=2 * count, label="starting", file=sys.stderr, hidden=not sys.stderr.isatty()
            ) as bar:
                await local_ring.start(lambda: bar.update(1))
                bar.label = "settling"
                await local_ring.settle(lambda: bar.update(1))
    except TimeoutError:
        raise click.ClickException(f"{count} peers were not one ring after {limit_s:g} s") from None
    mqtt, (_, first), (_, last) = local_ring.mqtt_ports, local_ring.addresses[0], local_ring.addresses[-1]
    click.echo(f"ready: {count} peers, mqtt {HOST}:{mqtt[0]}-{mqtt[-1]}\noverlay: {HOST}:{first}-{last}")
    if local_ring.page_ports is not None:
        click.echo(f"page: http://{HOST}:{local_ring.page_ports[0]}/")
    program = typed_name(sys.argv[0], shutil.which(PROGRAM))
    click.echo(f"try: {program} sub -p {mqtt[0]} -t hello -v\ntry: {program} pub -p {mqtt[-1]} -t hello -m world")


def typed_name(started: str, found: str | None) -> str:
    """How the user can type this program, which was `started` by a path; `found`: where its name leads."""
    if Path(started).name != PROGRAM:
        return f"{shlex.quote(sys.executable)} -m {PROGRAM}"
    if found is not None and Path(found).resolve() == Path(started).resolve():
        return PROGRAM
    return shlex.quote(started)


def settings_of(file: Path | None, line: Mapping[str, object]) -> dict[str, object]:
    """The settings of all peers that the command line adds to the file. Raises ConfigError with one line."""
    in_file = read_toml(file) if file is not None else {}
    own = next((name for name in in_file if name in OF_ONE_PEER), None)
    if own is not None:
        raise ConfigError(f"{file}: {own}: belongs to one peer, but all peers share this file: {OF_ONE_PEER[own]}")
    record = in_file.get("record")
    record = record if isinstance(record, dict) else {}
    own = next((name for name in RECORDS_OF_ONE_PEER if name in record), None)
    if own is not None:
        instead = RECORDS_OF_ONE_PEER[own]
        raise ConfigError(f"{file}: record: {own}: belongs to one peer, but all peers share this file: {instead}")
    settings = {name: value for name, value in line.items() if value is not None}
    if "timing" not in in_file:
        settings.setdefault("timing", TIMING)
    if "run" not in record:
        settings.setdefault("run", time.strftime(RUN, time.gmtime()))
    load(file, settings | {"mqtt": show((HOST, 0))})
    return settings


@click.command()
@click.option("--peers", type=click.IntRange(1, MAX_PEERS), default=12, show_default=True, help="Number of peers.")
@click.option(
    "--mqtt-port",
    type=click.IntRange(0, 65535),
    default=1883,
    show_default=True,
    help="MQTT port of the first peer; the others take the ports after it. 0: free ports.",
)
@click.option(
    "--overlay-port",
    type=click.IntRange(0, 65535),
    default=4883,
    show_default=True,
    help="Overlay port of the first peer; the others take the ports after it. 0: free ports.",
)
@click.option(
    "--dispatch", metavar="|".join(DISPATCHES), help="Way of messages to their subscribers.  [default: direct]"
)
@click.option("--fanout", type=int, metavar="N", help=f"Most sends of one peer in a tree.  [default: {FANOUT}]")
@click.option("--shadows", type=int, metavar=f"0-{MAX_SHADOWS}", help="Copies of each partition.  [default: 2]")
@click.option("--delay", metavar="RANGE", help="Emulated latency, such as 1-10ms: each pair of peers has one delay.")
@click.option("--seed", "delay_seed", type=click.IntRange(0), metavar="N", help="Determines the delays.  [default: 0]")
@click.option("--timing", metavar="|".join(PRESETS), help=f"Periods and timeouts.  [default: {TIMING}]")
@click.option("--run", metavar="NAME", help="Run name in the records of all peers.  [default: the time]")
@click.option(
    "--record", metavar="|".join(DELIVERIES), help="Deliveries recorded for a chosen message.  [default: each]"
)
@click.option("--record-every", type=int, metavar="N", help="Choose one message in N.  [default: 500]")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the peers' data, with a folder for each peer.",
)
@click.option(
    "--config", type=click.Path(path_type=Path), metavar="FILE.toml", help="Settings and limits of all peers."
)
def ring(peers: int, mqtt_port: int, overlay_port: int, data: Path | None, config: Path | None, **line: object) -> None:
    """Run a ring of peers on this machine until Ctrl-C."""
    settings = settings_of(config, line)
    options = [text for name, value in settings.items() for text in ("--" + name.replace("_", "-"), str(value))]
    if config is not None:
        options += ["--config", str(config)]
    allow_files(FILES_PER_PEER * peers + 100)
    wanted = range(mqtt_port, mqtt_port + peers) if mqtt_port else range(0)
    overlay_ports = choose_ports(overlay_port, peers, apart_from=wanted)
    mqtt_ports = choose_ports(mqtt_port, peers, "--mqtt-port", apart_from=overlay_ports)
    pages = _page_ports(mqtt_port)
    asyncio.run(_run(LocalRing(overlay_ports, mqtt_ports, [*options, "--log-level", "warning"], data, pages)))


def _page_ports(mqtt_port: int) -> tuple[int, int]:
    """PAGE_PORT unless free ports are wanted or it is in use, and a free one. The page is no reason not to start."""
    http, websocket = choose_ports(0, 2)
    return PAGE_PORT if mqtt_port and is_free(PAGE_PORT) else http, websocket
