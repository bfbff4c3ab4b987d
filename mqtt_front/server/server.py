"""The shell of the front: its listeners and clients, its clock, and the turn of the event loop.

Whatever arrives in one turn is worked off by plain calls. What is to be sent gathers in the outboxes and goes out at
the end of the turn, after the journal has committed; what waits for a few clients, with nothing to commit, at once.
Messages go before acknowledgements.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Final, cast

import structlog

from ringmq.mqtt_front.access.access import Access, Decision
from ringmq.mqtt_front.access.shell.password_pool import Verifying
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.cluster import Cluster
from ringmq.mqtt_front.codec.decode import forget_topics
from ringmq.mqtt_front.codec.packets import Connect
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.connection import Connection
from ringmq.mqtt_front.connection.phase import Phase
from ringmq.mqtt_front.connection.writer import Writer
from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.iteration import IterationOwner
from ringmq.mqtt_front.server.client_socket import ClientSocket
from ringmq.mqtt_front.server.listeners import LINGER_S, Listen, accept_clients, address_of
from ringmq.mqtt_front.sessions.journal import NO_JOURNAL
from ringmq.mqtt_front.sessions.session import SessionWriter
from ringmq.mqtt_front.sessions.shell.recovery import restore
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store
from ringmq.mqtt_front.sys_topics import SysTopics

log = structlog.get_logger("front")

FEW: Final = 2
"""With so many clients in question something is sent at once: who published and who subscribed to it, one to one."""
SWEEP_S: Final = 1.0
"""How often keep-alives and slow CONNECTs are looked after."""
REFRESH_S: Final = 60.0
"""How often the quick ways are made anew: 16,384 topics take a tenth of a second together, each when it is used."""


class MqttServer:
    """Create inside a running event loop; `listen` for each listener, `stop` at the end."""

    def __init__(
        self,
        iteration: IterationOwner,
        config: FrontConfig | None = None,
        access: Access | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        self.iteration = iteration
        self.config = config or FrontConfig()
        self.access = access or Access()
        self.broker = Broker(self.config, cluster, clock=iteration)
        self.clients: dict[Writer, ClientSocket] = {}
        self._loop = asyncio.get_running_loop()
        now = iteration.begin()
        self._sys_topics = SysTopics(f"ringmq version {version('ringmq')}", self.config.sys_interval_s, now)
        self._sys_topics.refresh(self.broker)
        self._refresh_at = now + REFRESH_S
        self._servers: list[asyncio.Server] = []
        self._verifying = Verifying(self.access)
        self._flushing = self._committing = False
        self._unfinished: list[ClientSocket] = []
        """Clients that had more to do than one iteration has room for, or do not take what they are sent."""
        self._answered: list[SessionWriter] = []
        """Who spoke in this turn and is answered at its end. They are on no list of the broker's."""
        self._client_of = cast("Callable[[SessionWriter], ClientSocket | None]", self.clients.get)
        self._id_prefix = f"auto-{secrets.token_hex(6)}-"
        self._ids = 0
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        self._stopped = False
        self.fault: str | None = None
        """Why the front cannot go on: its journal is not taken any more, and all clients were cut off."""
        self.on_fault: Callable[[], None] | None = None
        self._empty = asyncio.Event()

    def restore(self, store: Store) -> None:
        """Go on where the front before this one was, and keep what happens from now on. Before `listen`, once.

        The store is closed by `stop`. Raises FrontError for what cannot be read.
        """
        restore(self.broker, store, self.access)

    async def listen(self, listen: Listen) -> tuple[str, int]:
        """Begin to accept clients; the address says which port it is. Raises FrontError with one clear line."""
        bare = listen.tls is None and not listen.websocket
        server = await accept_clients(
            listen, partial(ClientSocket, self, listen.anonymous, bare), self._faulty, self.config.connect_timeout_s
        )
        self._servers.append(server)
        return address_of(server)

    async def stop(self) -> None:
        """Tell the clients, send what there is, close everything. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._sweeper.cancel()
        for server in self._servers:
            server.close()
        self.iteration.begin()
        for client in list(self.clients.values()):
            client.connection.fail(Reason.SERVER_SHUTTING_DOWN, "the server stops")
        self._flush()
        if self.clients:
            self._empty.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), LINGER_S)
        for client in list(self.clients.values()):
            if client.transport is not None:
                client.transport.abort()
        self._verifying.stop()
        while self.fault is None and (self.broker.dirty or self.broker.journal.pending):
            self._flush()
            self._go_on()
        self.broker.journal.close()
        self.broker.journal = NO_JOURNAL

    def _faulty(self, why: str) -> None:
        self.broker.counters.protocol_errors += 1
        log.debug("a client broke the rules of WebSocket", why=why)

    def forget(self, writer: Writer) -> None:
        """Its socket is closed."""
        self.clients.pop(writer, None)
        if not self.clients:
            self._empty.set()

    # The turn

    def turn(self, speaker: SessionWriter | None = None, gathered: bool = False) -> None:
        """Something may be waiting in outboxes: send it at the end of this turn of the loop, once.

        What waits for a few clients is sent to them at once, unless that has been done in this turn, since it would
        gather nothing: the others in the turn would only wait for each other. The `speaker` waits if others are sent
        something: it gets an acknowledgement, behind which no message of this turn has to wait. With `gathered` all is
        sent at once, as what came together was given out together.
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
        if (dirty or self._committing) and not self._flushing:
            self._flushing = True
            self.iteration.flushes.append(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        broker = self.broker
        broker.encoded = None
        broker.turn += 1
        if broker.journal.pending:
            self._commit()
        if self.fault is not None:
            return
        dirty = self._answered + broker.dirty
        self._answered, broker.dirty = [], []
        continued = bool(self._unfinished)
        for writer in dirty:
            client = self._client_of(writer)
            if client is None:
                writer.discard()
            elif not client.flush() or client.connection.writer.starved:
                self._unfinished.append(client)
        if self._unfinished and not continued:
            self.iteration.continuations.append(self._go_on)

    def _go_on(self) -> None:
        """Clients for which an iteration had no room go on in the next, so that others come in between."""
        self.iteration.begin()
        unfinished, self._unfinished = self._unfinished, []
        for client in unfinished:
            client.go_on()
        self.turn()

    def _commit(self) -> None:
        """Put on the disk what clients are told next. If it takes no more, nobody is told anything any more."""
        self._committing = False
        if self.fault is None:
            try:
                self.broker.journal.commit()
            except FrontError as error:
                self.fault = str(error)
                for client in self.clients.values():
                    if client.transport is not None:
                        client.transport.abort()
                if self.on_fault is not None:
                    self.on_fault()

    def end(self, transport: asyncio.Transport) -> None:
        """Close a socket once its bytes are sent; one that does not take them is cut off."""
        if transport.get_write_buffer_size():
            self._loop.call_later(LINGER_S, transport.abort)
        transport.close()

    def _sweep(self) -> None:
        self._sweeper.cancel()
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        now = self.iteration.begin()
        broker, counters = self.broker, self.broker.counters
        for client in list(self.clients.values()):
            connection = client.connection
            if connection.phase is Phase.OPEN:
                if connection.pausing:  # It is not listened to, so that it may be silent.
                    connection.reader.hear()
                elif connection.keep_alive_s and now - connection.reader.heard_at > 1.5 * connection.keep_alive_s:
                    counters.keep_alive_timeouts += 1
                    connection.fail(Reason.KEEP_ALIVE_TIMEOUT, "nothing was heard for one and a half keep-alives")
            elif now - connection.opened_at > self.config.connect_timeout_s:
                connection.fail(Reason.MAXIMUM_CONNECT_TIME, "no CONNECT in time")
        if broker.deadline() <= now:
            broker.tick()
        self._sys_topics.refresh(broker)
        if self._refresh_at <= now:
            self._refresh_at = now + REFRESH_S
            broker.refresh()
            forget_topics()
        self.turn()

    # Who may connect

    def renew_rights(self) -> int:
        """The rules of `access` have changed: apply them to those who are connected; how many had to go."""
        gone = 0
        broker = self.broker
        self.iteration.begin()
        for client in list(self.clients.values()):
            connection = client.connection
            if connection.decision is None or connection.session is None:
                continue
            decision = connection.decision = self.access.renew(connection.decision)
            if decision.reason is not Reason.SUCCESS:
                connection.session.rights = decision.rights  # none, so that its will is not published
                connection.fail(decision.reason, "the rules have changed")
                gone += 1
                continue
            broker.restrict(connection.session, decision.rights)
        for session in list(broker.sessions.values()):
            if session.writer is None:
                session.rights = self.access.rights_of(session.user, session.client_id)
                if not self.access.knows(session.user):
                    broker.end(session)
        self.turn()
        return gone

    def new_client_id(self) -> str:
        self._ids += 1
        return f"{self._id_prefix}{self._ids}"

    def decide(self, connection: Connection, connect: Connect, client_id: str) -> None:
        arguments = (connect.user_name, connect.password, client_id, connection.anonymous_allowed)
        decision = self.access.at_once(*arguments)
        if decision is not None:
            self._admit(connection, decision)
            return
        if self._verifying.full:
            connection.fail(Reason.SERVER_BUSY, "too many passwords wait to be verified")
            return
        wanted = partial(_is_undecided, connection)
        self._verifying.begin(arguments, wanted, partial(self._decided, connection))

    def _decided(self, connection: Connection, done: asyncio.Future[Decision | None]) -> None:
        self.iteration.begin()
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error("a password could not be verified", error=str(error))
            connection.fail(Reason.UNSPECIFIED_ERROR, "the server cannot verify passwords")
        else:
            decision = done.result()
            if decision is not None:
                self._admit(connection, self.access.renew(decision))
        self.turn()

    def _admit(self, connection: Connection, decision: Decision) -> None:
        """A session of a user is his: who only knows its id does not get it, and does not end it either."""
        session = self.broker.sessions.get(connection.client_id)
        if session is not None and session.user not in (None, decision.user_name):
            decision = decision.refused()
        connection.admitted(decision)


def _is_undecided(connection: Connection) -> bool:
    """Whether the client has not gone meanwhile."""
    return connection.phase is Phase.DECIDING
