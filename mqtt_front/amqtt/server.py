"""amqtt's broker as a front, in place of RingMQ's own broker, for users who need its plugins.

Owns the listeners, the admission of clients and their deadlines; `sessions` and amqtt do the rest. docs/amqtt.md has
the differences. amqtt is imported only when this front is created. Must not know the ring.
"""

from __future__ import annotations

import asyncio
import secrets
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import structlog

from ringmq.mqtt_front.access.access import Access, Decision
from ringmq.mqtt_front.access.shell.password_pool import PasswordPool
from ringmq.mqtt_front.amqtt.connection import AmqttConnection
from ringmq.mqtt_front.cluster import Cluster
from ringmq.mqtt_front.codec.packets import Connect, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.opening import allows_will, check_connect
from ringmq.mqtt_front.errors import FrontError, PacketError
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.listeners import LINGER_S, Listen, accept_clients, address_of, count_breach
from ringmq.mqtt_front.server.server import SWEEP_S
from ringmq.mqtt_front.server.tls_handshakes import Handshakes

if TYPE_CHECKING:
    from ringmq.mqtt_front.amqtt.sessions import SessionBroker

log = structlog.get_logger("front")

MISSING: Final = 'the front amqtt is not installed: pip install "ringmq[amqtt]"'
STOP_S: Final = 5.0
"""Time in which amqtt and its plugins must stop."""


class AmqttServer:
    """Like `MqttServer`: create inside a running event loop; `listen` for each listener, `stop` at the end."""

    def __init__(
        self,
        config: FrontConfig | None = None,
        access: Access | None = None,
        cluster: Cluster | None = None,
        settings: str | None = None,
        settings_file: str = "amqtt configuration",
    ) -> None:
        """`settings` is the text of a configuration file of amqtt, in YAML. Raises FrontError with one clear line."""
        self.config = config or FrontConfig()
        self.access = access or Access()
        self._loop = asyncio.get_running_loop()
        self.broker = _broker(settings, settings_file, self.config, self.access, cluster)
        self._started = self._stopped = False
        self._servers: list[asyncio.Server] = []
        self._handshakes = Handshakes(self.config.connect_timeout_s, self._has_room, self.broker.counters)
        self._connections: set[AmqttConnection] = set()
        self._passwords = PasswordPool(self.access)
        self._id_prefix = f"auto-{secrets.token_hex(6)}-"
        self._ids = 0
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    async def listen(self, listen: Listen) -> tuple[str, int]:
        """Begin to accept clients; returns the bound address. Raises FrontError with one clear line."""
        if not self._started:
            await self._start()

        def client() -> AmqttConnection:
            return AmqttConnection(self.config, self.broker.counters, partial(self._opened, anonymous=listen.anonymous))

        server = await accept_clients(listen, client, partial(count_breach, self.broker.counters), self._handshakes)
        self._servers.append(server)
        return address_of(server)

    async def _start(self) -> None:
        try:
            await self.broker.start()
        except Exception as error:
            raise FrontError(f"cannot start amqtt: {error}") from error
        self._started = True

    async def stop(self) -> None:
        """Close everything. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._sweeper.cancel()
        for server in self._servers:
            server.close()
        self._handshakes.stop()
        for connection in self._connections:
            connection.hang_up()
        tasks = [connection.task for connection in self._connections if connection.task is not None]
        if tasks:
            for task in (await asyncio.wait(tasks, timeout=LINGER_S))[1]:
                task.cancel()
            await asyncio.wait(tasks)
        if self._started:
            try:
                await asyncio.wait_for(self.broker.shutdown(), STOP_S)
            except Exception as error:  # noqa: BLE001  # An error of amqtt or a plugin, and everything is closed.
                log.error("amqtt failed to stop", error=repr(error))
        self._passwords.stop()

    def _has_room(self, handshakes: int) -> bool:
        return len(self._connections) + handshakes < self.config.max_connections

    @property
    def connected(self) -> int:
        """Number of clients that are connected or connecting."""
        return len(self._connections)

    def send_soon(self) -> None:
        """Does nothing: amqtt sends by tasks of its own, and nothing waits for the end of an iteration."""

    def renew_rights(self) -> int:
        """Apply changed rules of `access` to all clients and sessions; returns the number of disconnected clients."""
        return self.broker.renew()

    def deliver(self, message: Message) -> int:
        """Deliver a message of the cluster to local subscribers; returns their number."""
        return self.broker.distribute(message)

    def _opened(self, connection: AmqttConnection, anonymous: bool) -> None:
        if self._stopped or not self._has_room(0):
            self.broker.counters.refused += 1
            connection.abort()
            return
        self._connections.add(connection)
        connection.serve(self._serve(connection, anonymous))

    async def _serve(self, connection: AmqttConnection, anonymous: bool) -> None:
        try:
            connect = await connection.connect
            if connect is not None:
                await self._admit(connection, connect, anonymous)
        except PacketError as error:
            connection.refuse(Version.V311, error.reason)
        except Exception as error:  # noqa: BLE001  # The root of a task; a plugin can raise anything.
            log.error("unhandled error while admitting a client", error=repr(error))
            connection.refuse(Version.V311, Reason.SERVER_UNAVAILABLE)
        finally:
            connection.hang_up()
            self._connections.discard(connection)

    async def _admit(self, connection: AmqttConnection, connect: Connect, anonymous: bool) -> None:
        check_connect(connect, self.config)
        decision = await self._decide(connection, connect, anonymous)
        if decision is None:
            return
        if decision.reason is not Reason.SUCCESS:
            connection.refuse(Version.V311, decision.reason)
        elif not self.broker.counters.authorized(allows_will(connect, decision.rights)):
            connection.refuse(Version.V311, Reason.NOT_AUTHORIZED)
        else:
            connection.admitted(connect.keep_alive_s)
            await self.broker.serve(connection, connect, decision)

    async def _decide(self, connection: AmqttConnection, connect: Connect, anonymous: bool) -> Decision | None:
        """The decision; None if the client has gone."""
        self._ids += 1
        client_id = connect.client_id or f"{self._id_prefix}{self._ids}"
        arguments = (connect.user_name, connect.password, client_id, anonymous)
        decision = self.access.at_once(*arguments)
        if decision is not None:
            return decision
        if self._passwords.full:
            raise PacketError(Reason.SERVER_BUSY, "too many passwords are waiting for verification")
        verified: asyncio.Future[asyncio.Future[Decision | None]] = self._loop.create_future()

        def on_verified(done: asyncio.Future[Decision | None]) -> None:
            # `stop` cancels the task, and with it `verified`.
            if not verified.done():
                verified.set_result(done)

        self._passwords.verify(arguments, lambda: not connection.closing, on_verified)
        decision = (await verified).result()
        # The rules may have changed while the password was verified.
        return None if decision is None else self.access.renew(decision)

    def _sweep(self) -> None:
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        now = self._loop.time()
        for connection in list(self._connections):
            if not connection.connect.done():
                if now - connection.opened_at > self.config.connect_timeout_s:
                    connection.abort()
            elif connection.is_silent(now):
                self.broker.counters.keep_alive_timeouts += 1
                connection.abort()


def _broker(
    settings: str | None, file: str, config: FrontConfig, access: Access, cluster: Cluster | None
) -> SessionBroker:
    try:
        from ringmq.mqtt_front.amqtt.sessions import SessionBroker  # noqa: PLC0415  # amqtt is an optional dependency.
    except ImportError as error:
        raise FrontError(MISSING) from error
    given = settings_of(settings or "", file)
    try:
        return SessionBroker(given, config, access, cluster)
    except Exception as error:
        # amqtt raises exceptions of any type, some without a text and with the cause attached.
        why = str(error) or str(error.__cause__) or type(error).__name__
        raise FrontError(f"amqtt rejects {file}: {why}") from error


def settings_of(text: str, file: str) -> dict[str, Any]:
    """The settings in a file of amqtt, without its listeners. Raises FrontError with one clear line."""
    import yaml  # noqa: PLC0415  # It is installed with amqtt.

    try:
        settings = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FrontError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if settings is None:
        settings = {}
    if not isinstance(settings, dict):
        raise FrontError(f"{file} is not a configuration of amqtt: it must be a mapping")
    for name in ("auth", "topic-check", "topic_check"):
        if name in settings:
            raise FrontError(f"{file} has the section {name}, of amqtt before 0.11: name the plugins under `plugins`")
    if settings.get("plugins") is None:
        settings["plugins"] = {}  # Otherwise amqtt would load its default plugins.
    if settings.pop("listeners", None) is not None:
        log.warning("ignoring the listeners in the configuration of amqtt: the peer has its own", file=file)
    return settings
