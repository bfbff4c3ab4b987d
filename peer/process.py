"""`ringmq peer`: one peer as a process, from its start to its last signal.

Owns the event loop, the signals, the clock and the data folder. The ring's logic is the overlay's.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import structlog

from ringmq.logger.config import DELIVERIES
from ringmq.logger.log_setup import LEVELS, configure
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.message import Message
from ringmq.overlay.config import Address, OverlayConfig, show
from ringmq.overlay.core.leaf_set import LeafSet
from ringmq.overlay.core.routing import next_hop
from ringmq.overlay.core.timing import PRESETS
from ringmq.overlay.node import Node
from ringmq.peer.engines.coordinated.shell.retained_store import RetainedStore, StoreError
from ringmq.peer.engines.coordinated.status import describe, describe_topic
from ringmq.peer.engines.scribe.config import PRESETS as TREES
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.engines.scribe.shell.adapter import ScribeAdapter
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity.data_folder import DataFolder, passing_id
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import MAX_SHADOWS
from ringmq.peer.messaging.shell.adapter import CoordinatedAdapter
from ringmq.peer.mqtt_service import ClientsError, MqttService
from ringmq.peer.resources.limits import Exhaustion, allow_files, collect_garbage_seldom
from ringmq.peer.resources.memory import GivingBack
from ringmq.peer.settings.load import DISPATCHES, FANOUT, FRONTS, PeerConfig, load
from ringmq.peer.telemetry.recording import Recording
from ringmq.peer.telemetry.sampling import Sampling

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop  # type: ignore[assignment]

RETAINED: Final = "retained.sqlite"
"""In the data folder: the retained messages that this peer keeps for the ring."""
STOP_S: Final = 3.0
"""Saying good-bye takes some milliseconds; what takes longer is not worth waiting for."""
OWN_FILES: Final = 4096
"""Above the links that the overlay allows and the attempts at others, with room for listeners and files. Clients come
on top."""
FIRST_REMEMBER_S: Final = 0.25
REMEMBER_S: Final = 60.0
"""How often a peer looks whether it knows others than those it has noted for the next start. Often at first, for one
that is killed young; each time it writes them down the pause doubles, up to the longer one, to spare the disk."""

log = structlog.get_logger()


class PeerProcess:
    """One run of one peer. `serve` returns when the process was told to stop."""

    def __init__(self, config: PeerConfig, folder: DataFolder | None) -> None:
        self.config = config
        self.folder = folder
        self._ports: CoordinatedAdapter | ScribeAdapter | None = None
        self._node: Node | None = None
        self._clients: MqttService | None = None
        self._recording: Recording | None = None
        self._giving_back = GivingBack()
        self._stop = asyncio.Event()
        self._announced = False

    async def serve(self, parent_pipe: int | None = None) -> None:
        """Raises PeerError or OverlayError when the peer cannot start."""
        asyncio.get_running_loop().set_exception_handler(Exhaustion())
        self._watch_signals()
        if parent_pipe is not None:
            self._watch_parent(parent_pipe)
        try:
            await self._start()
            collect_garbage_seldom()
            self._giving_back.start()
            await self._remember_until_stopped()
        finally:
            self._giving_back.stop()
            if self._recording is not None:
                await self._recording.stop()
            if self._clients is not None:
                await self._clients.stop()
            if self._ports is not None:
                self._ports.stop()
            if self._node is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._node.stop(), STOP_S)
        if self._clients is not None and self._clients.fault is not None:
            raise ClientsError(self._clients.fault)
        if self._ports is not None and self._ports.fault is not None:
            raise StoreError(self._ports.fault)
        log.info("stopped")

    async def _start(self) -> None:
        """What takes long or may be wrong in a file comes first: a peer in the ring must answer in time, and stay."""
        ports: CoordinatedAdapter | ScribeAdapter
        iteration = Iteration()
        if self.config.dispatch == SCRIBE:
            ports = ScribeAdapter(self.config.roles, iteration, TREES[self.config.timing], self._activity_changed)
        else:
            store = None if self.config.data is None else RetainedStore(self.config.data / RETAINED)
            ports = CoordinatedAdapter(self.config.roles, iteration, self._activity_changed, store)
        ports.on_fault = self._stop.set
        self._ports = ports
        overlay = self._overlay_config()
        self._recording = recording = Recording(self.config.record, overlay.ring, overlay.id.hex(), overlay.boot)
        if recording.records:
            ports.record(recording.recorder.chooses, recording.recorder)
        self._node = node = Node(overlay, ports, iteration)
        clients = None
        if self.config.listeners:
            self._clients = clients = MqttService(self.config, ports, iteration, self._stop.set)
            ports.attach(node, clients.prepare())
            clients.restore()
        else:
            ports.attach(node)
        node.more_status = partial(self._more_status, ports, node)
        sampling = Sampling(self.config, node, ports, clients)
        await node.start()
        await recording.listen(sampling.sample, sampling.counters)
        ports.begin()
        recording.start(sampling.sample, self._publish)
        log.info("listening", id=node.ring.me.id.short(), overlay=show(node.address))
        if clients is not None:
            for name, address in (await clients.listen()).items():
                log.info("serving MQTT", listener=name, address=show(address))

    def _more_status(self, ports: CoordinatedAdapter | ScribeAdapter, node: Node, about: str) -> dict[str, Any]:
        """What a status says beside the overlay; or what is known about a topic."""
        clients = {"listeners": {}, "front": None} if self._clients is None else self._clients.status()
        clients["memory_in_use_bytes"] = self._giving_back.used_bytes
        if self._recording is not None:
            clients["recording"] = self._recording.status()
        if isinstance(ports, ScribeAdapter):
            return {"about": None} if about else {"scribe": ports.core.counters.as_dict(), **clients}
        if about:
            towards = partial(next_hop, node.ring.leaves, node.ring.table)
            return {"about": describe_topic(ports.core, about, towards)}
        roles = describe(ports.core, asyncio.get_running_loop().time(), {"unsendable": ports.unsendable})
        return {"pubsub": roles, **clients}

    def _publish(self, message: Message, done: Done) -> None:
        """The peer itself publishes, whether it serves clients or not."""
        if self._clients is not None:
            self._clients.publish(message, done)
        elif self._ports is not None:
            self._ports.published(message, 0, done)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Say good-bye and return from `serve`; asked again, end at once, with the exit status of that signal."""
        if self._stop.is_set():
            os._exit(128 + number)
        self._stop.set()

    def _overlay_config(self) -> OverlayConfig:
        config, folder = self.config, self.folder
        host, port = config.overlay
        now_ms = time.time_ns() // 1_000_000
        roles = f"{SCRIBE}, " if config.dispatch == SCRIBE else ""
        return OverlayConfig(
            id=folder.id if folder else passing_id(config.advertise or host, port),
            boot=folder.boot if folder else now_ms,
            listen=config.overlay,
            advertise=config.advertise,
            ring=config.ring,
            terms=f"{roles}timing {config.timing}",
            seeds=self._seeds(),
            timing=PRESETS[config.timing],
            delay_s=config.delay,
            delay_seed=config.delay_seed,
            discovery=config.discovery,
        )

    def _seeds(self) -> tuple[Address, ...]:
        """Whom to join: those the user named, then those this peer knew before.

        Told of nobody, it puts itself first, which makes it the one that founds the ring if no other answers. Without
        those remembered, the founder of a ring would at its restart found another beside it.
        """
        config = self.config
        remembered = self.folder.remembered if self.folder else ()
        host, port = config.overlay
        first = config.join or (((config.advertise or host, port),) if remembered and port else ())
        return tuple(dict.fromkeys((*first, *remembered)))

    async def _remember_until_stopped(self) -> None:
        pause_s = FIRST_REMEMBER_S if self.folder is not None else REMEMBER_S
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause_s)
            if self._remember():
                pause_s = min(pause_s * 2, REMEMBER_S)

    def _remember(self) -> bool:
        """Whether it was written down, or failed to be."""
        if self.folder is None or self._node is None or not self._node.active:
            return False
        try:
            return self.folder.remember(known_addresses(self._node.ring.leaves))
        except DataFolderError as error:
            log.warning("not remembered", why=str(error))
            return True

    def _activity_changed(self, active: bool) -> None:
        if active and not self._announced and self._node is not None:
            self._announced = True
            with contextlib.suppress(OSError):  # whoever read our output has gone
                click.echo(f"active: {self._node.ring.me.id.short()}, overlay {show(self._node.address)}")
        log.info("active" if active else "inactive")

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        """SIGHUP: what may be changed while clients are served is read again."""
        if self._clients is not None:
            self._clients.reload()

    def _watch_parent(self, pipe: int) -> None:
        """The pipe's other end closes when the parent is gone, however it went."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            if not os.read(pipe, 4096):
                loop.remove_reader(pipe)
                self._stop.set()

        loop.add_reader(pipe, readable)


def known_addresses(leaves: LeafSet) -> list[Address]:
    """Where the peers of the leaf set are, the nearest first."""
    both = zip(leaves.clockwise, leaves.counterclockwise, strict=True)
    return [(peer.host, peer.port) for pair in both for peer in pair]


def run(config: PeerConfig, parent_pipe: int | None = None) -> None:
    """Be a peer until told to stop. Raises PeerError or OverlayError, one line each, when it cannot start."""
    configure(config.log_level, as_json=config.log_json)
    make_room(config)
    with contextlib.ExitStack() as stack:
        folder = None
        if config.data is not None:
            folder = stack.enter_context(DataFolder(config.data, time.time_ns() // 1_000_000))
        runner = stack.enter_context(asyncio.Runner(loop_factory=new_event_loop))
        runner.run(_serve(config, folder, parent_pipe))


def make_room(config: PeerConfig) -> None:
    """As many as the links and all clients take; if the system lets us have fewer, say for how many clients.

    With a warning to whom has set how many there may be.
    """
    wanted = config.limits.max_connections if config.listeners else 0
    clients = allow_files(OWN_FILES + wanted) - OWN_FILES
    if clients < wanted:
        log.log(
            logging.INFO if wanted == FrontConfig().max_connections else logging.WARNING,
            "the limit of open files leaves room for fewer clients",
            clients=max(clients, 0),
            max_connections=wanted,
        )


async def _serve(config: PeerConfig, folder: DataFolder | None, parent_pipe: int | None) -> None:
    await PeerProcess(config, folder).serve(parent_pipe)


def _setting(name: str, text: str, **attributes: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option of a PeerConfig field: absent, the file or the default holds."""
    return click.option(f"--{name}", default=None, help=text, **attributes)


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE.toml",
    help="Settings, limits for clients and rules for topics; the options below win.",
)
@_setting("overlay", "Where other peers connect.  [default: 127.0.0.1:4883]", metavar="HOST:PORT")
@_setting("advertise", "The host that other peers are told to connect to.", metavar="HOST")
@_setting("join", "A peer of the ring to join; may be repeated.", metavar="HOST:PORT", multiple=True)
@_setting(
    "data", "Keeps the peer's id, whom it knows, and in clients.sqlite what its clients must find again.", metavar="DIR"
)
@_setting("ring", "The ring's name; peers of another are refused.  [default: ringmq]", metavar="NAME")
@_setting("timing", "Periods and timeouts for this kind of network.  [default: lan]", metavar="|".join(PRESETS))
@_setting("delay", "Emulated latency, such as 1-10ms.", metavar="RANGE")
@_setting("delay-seed", "Chooses the delays.  [default: 0]", type=int, metavar="N")
@_setting("discovery/--no-discovery", "Whether to look for peers over UDP as well.  [default: yes]")
@_setting("mqtt", "Where MQTT clients connect over TCP.  [default: nowhere]", metavar="HOST:PORT")
@_setting("mqtt-tls", "Where they connect over TLS.  [default: nowhere]", metavar="HOST:PORT")
@_setting("mqtt-ws", "Where they connect over WebSocket.  [default: nowhere]", metavar="HOST:PORT")
@_setting("mqtt-wss", "Where they connect over WebSocket inside TLS.  [default: nowhere]", metavar="HOST:PORT")
@_setting("tls-cert", "The certificate for TLS, in PEM; read again on SIGHUP.", metavar="FILE")
@_setting("tls-key", "Its key, in PEM and not encrypted; read again on SIGHUP.", metavar="FILE")
@_setting("tls-ca", "Demand a certificate of this CA of each client over TLS; read again on SIGHUP.", metavar="FILE")
@_setting("passwords", "The password file of MQTT clients; read again on SIGHUP.", metavar="FILE")
@_setting("acl", "The file that says which client may use which topics; read again on SIGHUP.", metavar="FILE")
@_setting("anonymous/--no-anonymous", "Let in clients without a password.  [default: on loopback only]")
@_setting("front", "What serves the clients.  [default: own]", metavar="|".join(FRONTS))
@_setting(
    "amqtt-settings", "A configuration file of amqtt's, for its plugins; read at the start alone.", metavar="FILE"
)
@_setting("shadows", "Copies of each list of subscribers.  [default: 2]", type=int, metavar=f"0-{MAX_SHADOWS}")
@_setting("dispatch", "How messages reach their subscribers.  [default: direct]", metavar="|".join(DISPATCHES))
@_setting("fanout", f"The most sends of one peer in a tree.  [default: {FANOUT}]", type=int, metavar="N")
@_setting("run", "What the records of one experiment have in common.  [default: the ring's name]", metavar="NAME")
@_setting("record", "What is recorded of messages that are chosen.  [default: each]", metavar="|".join(DELIVERIES))
@_setting("record-every", "One message in so many is chosen.  [default: 500]", type=int, metavar="N")
@_setting("log-level", "From which level on lines are logged.  [default: info]", metavar="|".join(LEVELS))
@_setting("log-json", "Log JSON objects.", is_flag=True)
@click.option("--parent-pipe", type=int, hidden=True)
def peer(config: Path | None, parent_pipe: int | None, **line: object) -> None:
    """Run one peer until Ctrl-C."""
    given = {name: value for name, value in line.items() if value is not None and value != ()}
    run(load(config, given), parent_pipe)
