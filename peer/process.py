"""`ringmq peer`: one peer as a process, from its start to its last signal.

Owns the event loop, the signals, the clock and the data folder. The logic of the ring belongs to the overlay.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import structlog

from ringmq.logger.config import DELIVERIES
from ringmq.logger.log_setup import LEVELS, configure
from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.message import Message
from ringmq.overlay.config import Address, OverlayConfig, show
from ringmq.overlay.core.leaf_set import LeafSet
from ringmq.overlay.core.messages import Peer
from ringmq.overlay.core.routing import next_hop
from ringmq.overlay.core.timing import PRESETS
from ringmq.overlay.errors import IdTakenError
from ringmq.overlay.node import Node
from ringmq.overlay.queries import introduce
from ringmq.peer.administration.shell.administration import Administration
from ringmq.peer.engines.partitioned.shell.adapter import PartitionedAdapter
from ringmq.peer.engines.partitioned.shell.record_store import RecordStore, StoreError
from ringmq.peer.engines.scribe.config import PRESETS as TREES
from ringmq.peer.engines.scribe.config import SCRIBE
from ringmq.peer.errors import DataFolderError
from ringmq.peer.identity.data_folder import CONTROL, DataFolder, passing_id
from ringmq.peer.identity.identity_files import IdentityFiles
from ringmq.peer.identity.known_peers import KnownPeers
from ringmq.peer.identity.namesake import Namesake
from ringmq.peer.iteration import Iteration
from ringmq.peer.messaging.config import MAX_SHADOWS
from ringmq.peer.messaging.shell.adapter import EngineAdapter
from ringmq.peer.mqtt_service import ClientsError, MqttService
from ringmq.peer.resources.limits import Exhaustion, allow_files, collect_garbage_seldom
from ringmq.peer.resources.memory import GivingBack
from ringmq.peer.resources.supervisor import Supervisor
from ringmq.peer.settings.load import load
from ringmq.peer.settings.model import DISPATCHES, FANOUT, FRONTS, IDENTITIES, PeerConfig
from ringmq.peer.telemetry.recording import Recording
from ringmq.peer.telemetry.sampling import Sampling
from ringmq.peer.web.health import Health

if TYPE_CHECKING:
    from ringmq.peer.identity.entrance import Entrance
    from ringmq.peer.identity.member import ExpelledError, RingMember
    from ringmq.peer.web.service import WebService

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop  # type: ignore[assignment]

RETAINED: Final = "retained.sqlite"
"""File in the data folder with the retained messages that this peer stores for the ring."""
STOP_S: Final = 3.0
"""Limit of a clean departure from the ring, which normally takes some milliseconds."""
INSECURE: Final = "insecure"
"""The trust of a ring that strangers can join."""
OWN_FILES: Final = 4096
"""File descriptors besides the clients: more than the links, dials, listeners and files of a peer."""

log = structlog.get_logger()


class PeerProcess:
    """One run of one peer. `serve` returns after `stop`, a signal, or a fault of a disk."""

    def __init__(self, config: PeerConfig, folder: DataFolder | None) -> None:
        self.config = config
        self.folder = folder
        self._adapter: EngineAdapter[Any] | None = None
        self._node: Node | None = None
        self._clients: MqttService | None = None
        self._recording: Recording | None = None
        self._administration: Administration | None = None
        self._web: WebService | None = None
        self._served = False
        """Whether all listeners for clients serve."""
        self._giving_back = GivingBack()
        self._supervisor = Supervisor()
        self._stop = asyncio.Event()
        self._announced = False
        self._known_peers: KnownPeers | None = None
        self._entrance: Entrance | None = None
        self._member: RingMember | None = None
        """This peer's identity; None in a ring without."""
        self._expelled: ExpelledError | None = None
        self._taken: IdTakenError | None = None

    async def serve(self, parent_pipe: int | None = None) -> None:
        """Raises PeerError or OverlayError when the peer cannot start, and IdTakenError when another has its id."""
        asyncio.get_running_loop().set_exception_handler(Exhaustion())
        self._watch_signals()
        if parent_pipe is not None:
            self._watch_parent(parent_pipe)
        self._supervisor.start()
        try:
            await self._enter()
            await self._meet_namesake()
            if not self._stop.is_set():
                await self._start()
                await self._greet_operator()
            collect_garbage_seldom()
            self._giving_back.start()
            await self._stop.wait()
        finally:
            self._supervisor.stop()
            self._giving_back.stop()
            if self._known_peers is not None:
                self._known_peers.stop()
            if self._web is not None:
                await self._web.stop()
            if self._administration is not None:
                self._administration.close()
            # The last records are published to clients and to other peers, so recording stops before both.
            if self._recording is not None:
                await self._recording.stop()
            if self._clients is not None:
                await self._clients.stop()
            if self._adapter is not None:
                self._adapter.stop()
            if self._node is not None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._node.stop(), STOP_S)
        if self._clients is not None and self._clients.fault is not None:
            raise ClientsError(self._clients.fault)
        if self._adapter is not None and self._adapter.fault is not None:
            raise StoreError(self._adapter.fault)
        if self._expelled is not None:
            raise self._expelled
        if self._taken is not None:
            self._note_namesake(self._taken)
            raise self._taken
        log.info("stopped")

    async def _enter(self) -> None:
        """Become a member of a ring with identity, if this peer is to be one."""
        if self.folder is not None and (self.config.proves or IdentityFiles(self.folder.folder).complete):
            # Loaded for such rings alone, it costs all other peers no memory.
            from ringmq.peer.identity.entrance import Entrance  # noqa: PLC0415

            self._entrance = Entrance(self.config, self.folder, self._stop)
            self._member = await self._entrance.enter()
            if self._member is not None:
                self._member.on_expelled = self._end_as_expelled
                self._member.check_own()

    async def _greet_operator(self) -> None:
        """Say what the operator must know of this ring's trust, once this peer listens."""
        member, config = self._member, self.config
        if member is None:
            if config.is_open:
                log.warning(
                    "insecure: whoever reaches the overlay reads and writes everything", at=show(config.overlay)
                )
        elif self._entrance is not None and self._entrance.is_alone:
            line = await member.next_machine()
            began = "founded" if self._entrance.founded else "has one peer so far"
            click.echo(f"ring {config.ring} {began}. To add a machine, there:\n    {line}")
            click.echo(f"(good once, for an hour; `ringmq invite --data {config.data}` prints another)")

    async def _meet_namesake(self) -> None:
        """Let another peer with this id come back first, if one was met before."""
        if self.folder is None or self._stop.is_set():
            return
        overlay = self._overlay_config()
        me = Peer(overlay.id, overlay.advertised_host, overlay.listen[1] or 1, overlay.boot)
        namesake = Namesake(self.folder.folder)
        if namesake.address == (me.host, me.port):
            # This peer has taken its place.
            namesake.forget()
        await namesake.wait_until_gone(partial(introduce, overlay, me, False), self._stop)

    def _note_namesake(self, taken: IdTakenError) -> None:
        if self.folder is not None and taken.address is not None:
            with contextlib.suppress(DataFolderError):
                Namesake(self.folder.folder).note(taken.address)

    def _end_as_expelled(self, expelled: ExpelledError) -> None:
        self._expelled = expelled
        self._stop.set()

    def _end_as_taken(self, taken: IdTakenError) -> None:
        """A running peer has the id of this one."""
        self._taken = taken
        self._stop.set()

    async def _start(self) -> None:
        """Create and connect all parts, and start them."""
        # Files are read and sessions restored before the node starts: a peer in the ring must answer in time, and must
        # not leave again because of a wrong file.
        adapter: EngineAdapter[Any]
        iteration = Iteration()
        if self.config.dispatch == SCRIBE:
            # The baseline of the experiments: loaded for it alone, it costs all other peers no memory.
            from ringmq.peer.engines.scribe.shell.adapter import ScribeAdapter  # noqa: PLC0415

            adapter = ScribeAdapter(self.config.roles, iteration, TREES[self.config.timing], self._activity_changed)
        else:
            store = None if self.config.data is None else RecordStore(self.config.data / RETAINED)
            former = self.folder.remembered if self.folder else ()
            adapter = PartitionedAdapter(
                self.config.roles, iteration, self._activity_changed, store, self._stop.set, former
            )
        self._adapter = adapter
        adapter.on_leaves = self._leaves_changed
        if self.folder is not None:
            self._known_peers = KnownPeers(self.folder, self._known, asyncio.get_running_loop())
        overlay = self._overlay_config()
        self._recording = recording = Recording(self.config.record, overlay.ring, overlay.id.hex(), overlay.boot)
        recording.insecure = self._trust == INSECURE
        if recording.records:
            adapter.record(recording.recorder.chooses, recording.recorder)
        self._node = node = Node(overlay, adapter, iteration, more_status=partial(self._more_status, adapter))
        node.on_taken = self._end_as_taken
        clients = None
        if self.config.listeners:
            self._clients = clients = MqttService(self.config, adapter, iteration, self._stop.set)
            adapter.attach(node, clients.prepare())
            clients.restore()
        else:
            adapter.attach(node)
        sampling = Sampling(self.config, node, adapter, clients)
        self._administration = administration = Administration(node, adapter, clients, iteration, self._publish)
        if self.config.http is not None:
            # Loaded only if it is used, as all other peers keep their memory.
            from ringmq.peer.web.service import WebOwner, WebService  # noqa: PLC0415

            listeners = dict if clients is None else clients.listening
            owner = WebOwner(overlay.id.hex, lambda: node.address, listeners, self._health, self._member)
            self._web = WebService(self.config.http, self.config.http_tokens, administration.desk, owner)
        await node.start()
        administration.open()
        if self._member is not None:
            self._member.address = node.address
            self._member.known = node.proofs
        await recording.listen(sampling.sample, sampling.counters)
        adapter.begin()
        recording.start(sampling.sample, self._publish)
        log.info("listening", id=node.ring.me.id.short(), overlay=show(node.address))
        if clients is not None:
            for name, address in (await clients.listen()).items():
                log.info("serving MQTT", listener=name, address=show(address))
            self._served = True
        if self._web is not None:
            metrics = partial(recording.metrics, sampling.sample, sampling.counters)
            administration.telling.http = show(await self._web.start(metrics))
            log.info("serving HTTP", address=administration.telling.http)
        self._say_ready()

    def _say_ready(self) -> None:
        if self._health().ready:
            self._supervisor.ready()

    def _health(self) -> Health:
        """What probes are told."""
        fault = (self._adapter and self._adapter.fault) or (self._clients and self._clients.fault) or ""
        serving = self._clients is None or self._served
        return Health(fault, serving and self._node is not None and self._node.active)

    def _more_status(self, adapter: EngineAdapter[Any], about: str) -> dict[str, Any]:
        """The part of a status above the overlay; if `about` names a topic, the partitions of that topic."""
        clients = {"listeners": {}, "front": None} if self._clients is None else self._clients.status()
        clients["memory_in_use_bytes"] = self._giving_back.used_bytes
        clients["trust"] = self._trust
        clients["name"] = None if self._member is None else self._member.proof.name
        if self._recording is not None:
            clients["recording"] = self._recording.status()
        engine = adapter.core
        if about:
            assert self._node is not None
            node = self._node
            towards = partial(next_hop, node.ring.leaves, node.ring.table)
            return {"about": engine.topic_status(about, towards)}
        status = engine.status(asyncio.get_running_loop().time(), {"unsendable": adapter.unsendable})
        return {engine.kind: status, **clients}

    @property
    def _trust(self) -> str:
        if self._member is not None:
            return "identity"
        return INSECURE if self.config.is_open else "loopback"

    def _publish(self, message: Message, done: Done) -> None:
        """Publish a message of the peer itself, with or without a front for clients."""
        if self._clients is not None:
            self._clients.publish(message, done)
        elif self._adapter is not None:
            self._adapter.published(message, 0, done)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Make `serve` depart and return. A second call ends the process at once with the exit status of the signal."""
        if self._stop.is_set():
            os._exit(128 + number)
        self._stop.set()

    def _overlay_config(self) -> OverlayConfig:
        config, folder = self.config, self.folder
        host, port = config.overlay
        now_ms = time.time_ns() // 1_000_000
        # The handshake refuses peers with other timing or another engine: if one peer trusts a lease for longer than
        # another waits, messages are lost.
        roles = f"{SCRIBE}, " if config.dispatch == SCRIBE else ""
        # With another seed a peer would look for filters where nobody keeps them.
        hashing = f", hash_seed {config.hash_seed}" if config.hash_seed else ""
        return OverlayConfig(
            id=folder.id if folder else passing_id(config.advertise or host, port),
            # Without a data folder the time of day orders the runs of a peer, so it must not go back over a restart.
            boot=folder.boot if folder else now_ms,
            listen=config.overlay,
            advertise=config.advertise,
            ring=config.ring,
            ring_settings=f"{roles}timing {config.timing}{hashing}",
            seeds=self._seeds(),
            timing=PRESETS[config.timing],
            delay_s=config.delay,
            delay_seed=config.delay_seed,
            discovery=config.discovery,
            credentials=self._member,
            control=folder.folder / CONTROL if folder else None,
        )

    def _seeds(self) -> tuple[Address, ...]:
        """Addresses to join: first the user's, then the saved ones."""
        # A peer without `join` puts itself first, so that it founds the ring if no saved peer answers. Without the
        # saved peers, the founder of a ring would found a second ring when it restarts.
        config = self.config
        remembered = self.folder.remembered if self.folder else ()
        host, port = config.overlay
        first = config.seeds or (((config.advertise or host, port),) if remembered and port else ())
        return tuple(dict.fromkeys((*first, *remembered)))

    def _known(self) -> list[Address]:
        """The addresses of the peers in the leaf set, while this peer is in the ring."""
        node = self._node
        return known_addresses(node.ring.leaves) if node is not None and node.active else []

    def _leaves_changed(self) -> None:
        if self._known_peers is not None:
            self._known_peers.changed()

    def _activity_changed(self, active: bool) -> None:
        if active and not self._announced and self._node is not None:
            self._announced = True
            with contextlib.suppress(OSError):  # the reader of the output has gone
                click.echo(f"active: {self._node.ring.me.id.short()}, overlay {show(self._node.address)}")
        log.info("active" if active else "inactive")
        self._say_ready()
        self._leaves_changed()

    def _watch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload)

    def _reload(self) -> None:
        """SIGHUP: read passwords, access rules, certificates and tokens again."""
        if self._clients is not None:
            self._clients.reload()
        if self._web is not None:
            self._web.reload()

    def _watch_parent(self, pipe: int) -> None:
        """Stop when the parent ends: the system then closes the other end of the pipe, even after `kill -9`."""
        loop = asyncio.get_running_loop()

        def readable() -> None:
            if not os.read(pipe, 4096):
                loop.remove_reader(pipe)
                self._stop.set()

        loop.add_reader(pipe, readable)


def known_addresses(leaves: LeafSet) -> list[Address]:
    """Addresses of the peers in the leaf set, the nearest first."""
    both = zip(leaves.clockwise, leaves.counterclockwise, strict=True)
    return [(peer.host, peer.port) for pair in both for peer in pair]


def run(config: PeerConfig, parent_pipe: int | None = None) -> None:
    """Run a peer until it is stopped. Raises PeerError or OverlayError with one line if it cannot start."""
    configure(config.log_level, as_json=config.log_json)
    known = config.data is not None and IdentityFiles(config.data).complete
    config = make_room(_reachable(config) if known or config.token is not None else config)
    with contextlib.ExitStack() as stack:
        folder = None
        if config.data is not None:
            folder = stack.enter_context(DataFolder(config.data, time.time_ns() // 1_000_000))
        runner = stack.enter_context(asyncio.Runner(loop_factory=new_event_loop))
        runner.run(_serve(config, folder, parent_pipe))


def make_room(config: PeerConfig) -> PeerConfig:
    """Raise the limit of open files for all links and clients. If the system allows fewer, fewer clients are admitted,
    so that connections to clients cannot take the descriptors that the ring and its status need.
    """
    wanted = config.limits.max_connections if config.listeners else 0
    allowed = allow_files(OWN_FILES + wanted)
    # Far below its usual limit, a peer shares what there is.
    clients = allowed - min(OWN_FILES, allowed // 2)
    if clients >= wanted:
        return config
    # A user who set max_connections expects that many clients, so only then is it a warning.
    log.log(
        logging.INFO if wanted == FrontConfig().max_connections else logging.WARNING,
        "the limit of open files allows fewer clients",
        clients=clients,
        max_connections=wanted,
    )
    return replace(config, limits=replace(config.limits, max_connections=max(clients, 1)))


def _reachable(config: PeerConfig) -> PeerConfig:
    from ringmq.peer.identity.entrance import with_reachable_overlay  # noqa: PLC0415 - as in PeerProcess

    return with_reachable_overlay(config)


async def _serve(config: PeerConfig, folder: DataFolder | None, parent_pipe: int | None) -> None:
    await PeerProcess(config, folder).serve(parent_pipe)


def _setting(name: str, text: str, **attributes: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """An option for a field of PeerConfig. Without it, the file or the default applies."""
    return click.option(f"--{name}", default=None, help=text, **attributes)


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE.toml",
    help="File with settings, limits of clients and rules for topics; the options below override it.",
)
@_setting("overlay", "Address for other peers.  [default: 127.0.0.1:4883]", metavar="HOST:PORT")
@_setting("advertise", "Host that other peers use to connect to this peer.", metavar="HOST")
@_setting(
    "join",
    "Address of a peer in the ring to join, the first time with a token; may be repeated.",
    metavar="[TOKEN@]HOST:PORT",
    multiple=True,
)
@_setting("identity", "Whether peers prove who they are.  [default: auto]", metavar="|".join(IDENTITIES))
@_setting("insecure", "Allow a ring without identity where other machines reach it.", is_flag=True)
@_setting(
    "data",
    "Folder for the peer's id, known peers, and in clients.sqlite the sessions of its clients.",
    metavar="DIR",
)
@_setting("ring", "Name of the ring; peers of other rings are refused.  [default: ringmq]", metavar="NAME")
@_setting("timing", "Preset of periods and timeouts.  [default: lan]", metavar="|".join(PRESETS))
@_setting("delay", "Emulated latency, such as 1-10ms.", metavar="RANGE")
@_setting("hash-seed", "Seed of the hash of topics.  [default: 0]", type=int, metavar="N")
@_setting("delay-seed", "Seed that chooses the delays.  [default: 0]", type=int, metavar="N")
@_setting("discovery/--no-discovery", "Look for peers over UDP as well.  [default: yes]")
@_setting("mqtt", "Address for MQTT clients over TCP.  [default: none]", metavar="HOST:PORT")
@_setting("mqtt-tls", "Address for MQTT clients over TLS.  [default: none]", metavar="HOST:PORT")
@_setting("mqtt-ws", "Address for MQTT clients over WebSocket.  [default: none]", metavar="HOST:PORT")
@_setting("mqtt-wss", "Address for MQTT clients over WebSocket in TLS.  [default: none]", metavar="HOST:PORT")
@_setting("http", "Address for HTTP: the live page, probes, metrics, JSON.  [default: none]", metavar="HOST:PORT")
@_setting("http-tokens", "File of tokens for HTTP; needed beyond loopback, read again on SIGHUP.", metavar="FILE")
@_setting("tls-cert", "Certificate for TLS, in PEM; read again on SIGHUP.", metavar="FILE")
@_setting("tls-key", "Private key of the certificate, in PEM, not encrypted; read again on SIGHUP.", metavar="FILE")
@_setting("tls-ca", "CA whose certificate each client over TLS must present; read again on SIGHUP.", metavar="FILE")
@_setting("passwords", "Password file of MQTT clients; read again on SIGHUP.", metavar="FILE")
@_setting("acl", "ACL file: which client may use which topics; read again on SIGHUP.", metavar="FILE")
@_setting("anonymous/--no-anonymous", "Admit clients without a password.  [default: on loopback only]")
@_setting("front", "Broker that serves the clients.  [default: own]", metavar="|".join(FRONTS))
@_setting("amqtt-settings", "Configuration file of amqtt, for its plugins; read only at the start.", metavar="FILE")
@_setting("shadows", "Copies of each partition.  [default: 2]", type=int, metavar=f"0-{MAX_SHADOWS}")
@_setting("dispatch", "How messages reach their subscribers.  [default: direct]", metavar="|".join(DISPATCHES))
@_setting("fanout", f"Maximum sends of one peer in a tree.  [default: {FANOUT}]", type=int, metavar="N")
@_setting("run", "Common name of the records of one experiment.  [default: the ring's name]", metavar="NAME")
@_setting("record", "Records of sampled messages.  [default: each]", metavar="|".join(DELIVERIES))
@_setting("record-every", "Sample one message in N.  [default: 500]", type=int, metavar="N")
@_setting("log-level", "Lowest level of the log lines.  [default: info]", metavar="|".join(LEVELS))
@_setting("log-json", "Log JSON objects instead of text.", is_flag=True)
@click.option("--parent-pipe", type=int, hidden=True)
def peer(config: Path | None, parent_pipe: int | None, **line: object) -> None:
    """Run one peer until Ctrl-C."""
    given = {name: value for name, value in line.items() if value is not None and value != ()}
    run(load(config, given), parent_pipe)
