"""The shell of the front: its listeners, its clients, and their handling in an iteration of the event loop.

Each event of an iteration is processed by plain calls. Packets gather in the outboxes and are sent at the end of the
iteration, after the journal has committed; packets for a few clients, with nothing to commit, are sent at once.
Messages go before acknowledgements. Must not know topics, or the bytes of packets.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from functools import partial
from typing import Final, cast

import structlog

from ringmq import __version__
from ringmq.mqtt_front.access.access import Access, Decision
from ringmq.mqtt_front.access.shell.password_pool import PasswordPool
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.cluster import Cluster
from ringmq.mqtt_front.codec.decode import forget_topics
from ringmq.mqtt_front.codec.packets import Connect
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.connection import Connection
from ringmq.mqtt_front.connection.keep_alive import check_silence
from ringmq.mqtt_front.connection.phase import Phase
from ringmq.mqtt_front.connection.writer import Writer
from ringmq.mqtt_front.iteration import IterationOwner
from ringmq.mqtt_front.server.client_socket import ClientSocket
from ringmq.mqtt_front.server.listeners import LINGER_S, Listen, accept_clients, address_of, count_breach
from ringmq.mqtt_front.server.tls_handshakes import Handshakes
from ringmq.mqtt_front.sessions.pending_wills import TOKEN_BYTES
from ringmq.mqtt_front.sessions.session import SessionWriter
from ringmq.mqtt_front.sessions.shell.recovery import restore
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store
from ringmq.mqtt_front.sys_topics import SysTopics

log = structlog.get_logger("front")

FEW: Final = 2
"""Up to this number of clients are sent to at once: a publisher and its only subscriber."""
SWEEP_S: Final = 1.0
"""Interval of the checks for expired keep-alives and slow CONNECTs."""
WILLS_S: Final = 3.0
"""Time in which the wills of a server that stops may reach their receivers: longer than the ring takes to find them."""
REFRESH_S: Final = 60.0
"""Interval at which caches by topic are dropped. Refilling 16,384 topics takes 0.1 s in all, spread over their use."""


class MqttServer:
    """Create inside a running event loop; `listen` for each listener, `stop` at the end."""

    def __init__(
        self,
        iteration: IterationOwner,
        config: FrontConfig | None = None,
        access: Access | None = None,
        cluster: Cluster | None = None,
        on_fault: Callable[[], object] | None = None,
    ) -> None:
        """`on_fault` is called when the journal has failed and all clients were cut off; `fault` has the reason."""
        self.iteration = iteration
        self.config = config or FrontConfig()
        self.access = access or Access()
        self.broker = Broker(self.config, cluster, clock=iteration)
        self.broker.wills.new_token = partial(secrets.token_bytes, TOKEN_BYTES)
        self.clients: dict[Writer, ClientSocket] = {}
        self._loop = asyncio.get_running_loop()
        now = iteration.begin()
        self._sys_topics = SysTopics(f"ringmq version {__version__}", self.config.sys_interval_s, now)
        self._sys_topics.refresh(self.broker)
        self._refresh_at = now + REFRESH_S
        self._servers: list[asyncio.Server] = []
        self._handshakes = Handshakes(self.config.connect_timeout_s, self._has_room, self.broker.counters)
        self._passwords = PasswordPool(self.access)
        self._flushing = self._committing = False
        self._admitting = False
        self._undecided: dict[SessionWriter, tuple[Connect, str]] = {}
        """CONNECTs that wait for their turn."""
        self.broker.admission.on_room = self._admit_soon
        self._unfinished: list[ClientSocket] = []
        """Clients that exceeded their work budget of an iteration, or do not read their socket."""
        self._answered: list[SessionWriter] = []
        """Clients that spoke in this iteration and are answered at its end. They are not in `broker.dirty`."""
        self._client_of = cast("Callable[[SessionWriter], ClientSocket | None]", self.clients.get)
        self._id_prefix = f"auto-{secrets.token_hex(6)}-"
        self._ids = 0
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        self._stopped = False
        self.fault: str | None = None
        """Why the front has stopped working: the journal failed, and all clients were cut off."""
        self._on_fault = on_fault
        self._empty = asyncio.Event()

    def restore(self, store: Store) -> None:
        """Load the state of the previous process and journal all changes from now on. Call it once, before `listen`.

        The store is closed by `stop`. Raises FrontError for a store that cannot be read.
        """
        restore(self.broker, store, self.access)

    async def listen(self, listen: Listen) -> tuple[str, int]:
        """Begin to accept clients; returns the bound address. Raises FrontError with one clear line."""
        bare = listen.tls is None and not listen.websocket
        server = await accept_clients(
            listen,
            partial(ClientSocket, self, listen.anonymous, bare),
            partial(count_breach, self.broker.counters),
            self._handshakes,
        )
        self._servers.append(server)
        return address_of(server)

    async def stop(self) -> None:
        """Disconnect the clients, send all outboxes, close everything. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._sweeper.cancel()
        for server in self._servers:
            server.close()
        self._handshakes.stop()
        self.iteration.begin()
        for client in list(self.clients.values()):
            client.connection.fail(Reason.SERVER_SHUTTING_DOWN, "the server is shutting down")
        self._flush()
        if self.clients:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), LINGER_S)
        for client in list(self.clients.values()):
            if client.transport is not None:
                client.transport.abort()
        self._passwords.stop()
        await self._settle_wills()
        # The sessions of clients that exceeded their budget still change, and every change must be committed.
        while self.fault is None and (self.broker.dirty or self.broker.journal.pending):
            self._flush()
            self._resume_unfinished()
        self.broker.close_journal()

    async def _settle_wills(self) -> None:
        """Wait until all receivers have the wills of the clients that were disconnected. With a store, those that take
        longer are published again at the next start.
        """
        wills = self.broker.wills
        if self.fault is None and wills.pending:
            settled = asyncio.Event()
            wills.on_settled = settled.set
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(settled.wait(), WILLS_S)

    def admit(self, client: ClientSocket) -> bool:
        """Register a socket that was accepted. False at `max_connections`: abort it."""
        if not self._has_room(0):
            self.broker.counters.refused += 1
            return False
        self.clients[client.connection.writer] = client
        return True

    def _has_room(self, handshakes: int) -> bool:
        return len(self.clients) + handshakes < self.config.max_connections

    def forget(self, writer: Writer) -> None:
        """Drop a connection whose socket is closed."""
        self.clients.pop(writer, None)
        if not self.clients:
            self._empty.set()

    def send_soon(self, speaker: SessionWriter | None = None, gathered: bool = False) -> None:
        """Send the outboxes, at the latest at the end of this iteration. Call it after each event.

        Up to `FEW` clients are sent to at once, each once per iteration, since waiting would gather nothing more for
        them. If others are sent to, the `speaker` waits for the end: it only gets an acknowledgement, and no message of
        this iteration should wait behind that. With `gathered`, all clients are sent to at once: the caller has already
        delivered everything that came together.
        """
        broker = self.broker
        dirty = broker.dirty
        if dirty and (gathered or len(dirty) <= FEW) and not broker.journal.pending:
            broker.dirty = left = []
            for writer in dirty:
                if writer is speaker and len(dirty) > 1:
                    self._answered.append(writer)
                else:
                    client = self._client_of(writer)
                    if client is None or not client.flush_at_once():
                        left.append(writer)
        if broker.journal.pending and not self._committing:
            self._committing = True
            self.iteration.commits.append(self._commit)
        if (dirty or self._committing or broker.withdrawing) and not self._flushing:
            self._flushing = True
            self.iteration.flushes.append(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        broker = self.broker
        broker.end_iteration()
        # `stop` calls this outside the end of an iteration, which would have committed already.
        if broker.journal.pending:
            self._commit()
        # A client must not learn of a change that the disk does not have [MQTT-4.3.2-4], [MQTT-4.3.3-8].
        if self.fault is not None:
            return
        dirty, self._answered = self._answered + broker.take_dirty(), []
        continued = bool(self._unfinished)
        for writer in dirty:
            client = self._client_of(writer)
            if client is None:
                writer.discard()
            elif not client.flush() or client.connection.writer.starved:
                self._unfinished.append(client)
        if self._unfinished and not continued:
            self.iteration.continuations.append(self._resume_unfinished)
        if broker.withdrawing:
            self.iteration.continuations.append(self._withdraw)

    def _withdraw(self) -> None:
        self.iteration.begin()
        self.broker.withdraw()
        self.send_soon()

    def _resume_unfinished(self) -> None:
        """Resume the clients that exceeded their budget, an iteration later, so that others are served in between."""
        self.iteration.begin()
        unfinished, self._unfinished = self._unfinished, []
        for client in unfinished:
            client.resume()
        self.send_soon()

    def _admit_soon(self) -> None:
        """Admit further clients in the next iteration."""
        if not self._admitting:
            self._admitting = True
            self.iteration.begin()
            self.iteration.continuations.append(self._admit_waiting)

    def _admit_waiting(self) -> None:
        """Let clients that waited connect and subscribe, as far as the work of one iteration goes."""
        self._admitting = False
        self.iteration.begin()
        broker, admission = self.broker, self.broker.admission
        broker.end_iteration()
        broker.work.begin(broker.iteration)
        while (writer := admission.next_connect()) is not None:
            connect, client_id = self._undecided.pop(writer)
            client = self._client_of(writer)
            if client is not None and client.connection.phase is Phase.DECIDING:
                self.decide(client.connection, connect, client_id)
        while (writer := admission.next_subscribe()) is not None:
            client = self._client_of(writer)
            if client is not None:
                client.admitted()
        self.send_soon()

    def _commit(self) -> None:
        """Commit the changes that are acknowledged next. If the disk fails, no client is sent anything any more."""
        self._committing = False
        if self.fault is None:
            try:
                self.broker.journal.commit()
            except Exception as error:  # noqa: BLE001 - whatever failed, the changes are not on the disk
                self.fault = str(error)
                for client in self.clients.values():
                    if client.transport is not None:
                        client.transport.abort()
                if self._on_fault is not None:
                    self._on_fault()

    def end(self, transport: asyncio.Transport) -> None:
        """Close a socket once its bytes are sent; abort it if the client does not read them in time."""
        if transport.get_write_buffer_size():
            self._loop.call_later(LINGER_S, transport.abort)
        transport.close()

    def _sweep(self) -> None:
        self._sweeper.cancel()
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        now = self.iteration.begin()
        broker, counters = self.broker, self.broker.counters
        for client in list(self.clients.values()):
            check_silence(client.connection, now, self.config, counters)
        if broker.deadline() <= now:
            broker.tick()
        for client_id in broker.rivals.take_news():
            log.warning("several clients have one id, and throw each other out: they wait longer", client=client_id)
        self._sys_topics.refresh(broker)
        if self._refresh_at <= now:
            self._refresh_at = now + REFRESH_S
            broker.refresh()
            forget_topics()
        self.send_soon()

    def renew_rights(self) -> int:
        """Apply changed rules of `access` to all clients and sessions; returns the number of disconnected clients."""
        gone = 0
        broker = self.broker
        self.iteration.begin()
        for client in list(self.clients.values()):
            connection = client.connection
            if connection.decision is None or connection.session is None:
                continue
            gone += not connection.renewed(self.access.renew(connection.decision))
        for session in list(broker.sessions.values()):
            if session.writer is None:
                broker.restrict(session, self.access.rights_of(session.user, session.client_id))
                if not self.access.knows(session.user):
                    broker.end(session)
        self.send_soon()
        return gone

    def new_client_id(self) -> str:
        self._ids += 1
        return f"{self._id_prefix}{self._ids}"

    def decide(self, connection: Connection, connect: Connect, client_id: str) -> None:
        if self.broker.admission.holds_connect(connection.writer):
            self._undecided[connection.writer] = connect, client_id
            return
        arguments = (connect.user_name, connect.password, client_id, connection.anonymous_allowed)
        decision = self.access.at_once(*arguments)
        if decision is not None:
            self._admit(connection, decision)
            return
        if self._passwords.full:
            connection.fail(Reason.SERVER_BUSY, "too many passwords are waiting for verification")
            return
        wanted = partial(_is_undecided, connection)
        self._passwords.verify(arguments, wanted, partial(self._decided, connection))

    def _decided(self, connection: Connection, done: asyncio.Future[Decision | None]) -> None:
        self.iteration.begin()
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error("cannot verify a password", error=str(error))
            connection.fail(Reason.UNSPECIFIED_ERROR, "the server cannot verify passwords")
        else:
            decision = done.result()
            if decision is not None:
                # The files may have been read again while the thread computed.
                self._admit(connection, self.access.renew(decision))
        self.send_soon()

    def _admit(self, connection: Connection, decision: Decision) -> None:
        """Accept or refuse the client. Another user's session is neither resumed nor ended by its client id alone."""
        session = self.broker.sessions.get(connection.client_id)
        if session is not None and session.user not in (None, decision.user_name):
            decision = decision.refused()
        connection.admitted(decision)


def _is_undecided(connection: Connection) -> bool:
    """Whether the client still waits for the decision."""
    return connection.phase is Phase.DECIDING
