"""amqtt's broker in the place of our own, behind the same ports, for those who need its plugins.

Owns the listeners, who is let in, and the deadlines of the clients; what happens between them is amqtt's, as far as
`amqtt_service` leaves it that. docs/amqtt.md says what differs. amqtt is imported only when this front is created.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any, Final

import structlog

from ringmq.mqtt_front.access.access import Access, Decision
from ringmq.mqtt_front.access.shell.password_pool import PasswordPool
from ringmq.mqtt_front.amqtt.connection import AmqttConnection
from ringmq.mqtt_front.cluster import Cluster
from ringmq.mqtt_front.codec.packets import Connect, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.connection.opening import check_connect
from ringmq.mqtt_front.errors import FrontError, PacketError
from ringmq.mqtt_front.matching.topics import is_of_the_server
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.listeners import LINGER_S, Listen, accept_clients, address_of
from ringmq.mqtt_front.server.server import SWEEP_S

if TYPE_CHECKING:
    from ringmq.mqtt_front.amqtt.sessions import Service

log = structlog.get_logger("front")

MISSING: Final = 'the front amqtt is not installed: pip install "ringmq[amqtt]"'
STOP_S: Final = 5.0
"""How long amqtt and its plugins may take to stop."""


class AmqttServer:
    """As `MqttServer`: create inside a running event loop; `listen` for each listener, `stop` at the end."""

    def __init__(
        self,
        config: FrontConfig | None = None,
        access: Access | None = None,
        cluster: Cluster | None = None,
        settings: str | None = None,
        settings_file: str = "amqtt configuration",
    ) -> None:
        """`settings` is the text of a configuration file of amqtt's, in YAML. Raises FrontError with one clear line."""
        self.config = config or FrontConfig()
        self.access = access or Access()
        self._loop = asyncio.get_running_loop()
        self.broker = _broker(settings, settings_file, self.config, self.access, cluster)
        self._started = self._stopped = False
        self._servers: list[asyncio.Server] = []
        self._lines: set[AmqttConnection] = set()
        self._passwords = PasswordPool(self.access)
        self._id_prefix = f"auto-{secrets.token_hex(6)}-"
        self._ids = 0
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    async def listen(self, listen: Listen) -> tuple[str, int]:
        """Begin to accept clients; the address says which port it is. Raises FrontError with one clear line."""
        if not self._started:
            await self._start()

        def line() -> AmqttConnection:
            return AmqttConnection(self.config, self.broker.counters, lambda line: self._opened(line, listen.anonymous))

        server = await accept_clients(listen, line, self._faulty, self.config.connect_timeout_s)
        self._servers.append(server)
        return address_of(server)

    async def _start(self) -> None:
        try:
            await self.broker.start()
        except Exception as error:
            raise FrontError(f"amqtt does not start: {error}") from error
        self._started = True

    async def stop(self) -> None:
        """Close everything. Idempotent."""
        if self._stopped:
            return
        self._stopped = True
        self._sweeper.cancel()
        for server in self._servers:
            server.close()
        for line in self._lines:
            line.hang_up()
        tasks = [line.task for line in self._lines if line.task is not None]
        if tasks:
            for task in (await asyncio.wait(tasks, timeout=LINGER_S))[1]:
                task.cancel()
            await asyncio.wait(tasks)
        if self._started:
            try:
                await asyncio.wait_for(self.broker.shutdown(), STOP_S)
            except Exception as error:  # noqa: BLE001  # amqtt's or a plugin's, and nothing is left to be kept from it
                log.error("amqtt did not stop as it should", error=repr(error))
        self._passwords.stop()

    @property
    def connected(self) -> int:
        """How many clients are connected, or about to be."""
        return len(self._lines)

    def send_soon(self) -> None:
        """Does nothing: amqtt sends by tasks of its own, and nothing waits for the end of an iteration."""

    def renew_rights(self) -> int:
        """The rules of `access` have changed: apply them to those who are connected; how many had to go."""
        return self.broker.renew()

    def deliver(self, message: Message) -> int:
        """Give a message from elsewhere to the clients here that want it; how many that are."""
        return self.broker.distribute(message)

    # Connections

    def _faulty(self, why: str) -> None:
        self.broker.counters.protocol_errors += 1
        log.debug("a client violated the WebSocket protocol", why=why)

    def _opened(self, line: AmqttConnection, anonymous: bool) -> None:
        if self._stopped or len(self._lines) >= self.config.max_connections:
            self.broker.counters.refused += 1
            line.abort()
            return
        self._lines.add(line)
        line.task = self._loop.create_task(self._serve(line, anonymous))

    async def _serve(self, line: AmqttConnection, anonymous: bool) -> None:
        try:
            connect = await line.connect
            if connect is not None:
                await self._admit(line, connect, anonymous)
        except PacketError as error:
            line.refuse(Version.V311, error.reason)
        except Exception as error:  # noqa: BLE001  # the root of a task: what a plugin raises that is asked about a client
            log.error("a client could not be decided on", error=repr(error))
            line.refuse(Version.V311, Reason.SERVER_UNAVAILABLE)
        finally:
            line.hang_up()
            self._lines.discard(line)

    async def _admit(self, line: AmqttConnection, connect: Connect, anonymous: bool) -> None:
        check_connect(connect, self.config)
        decision = await self._decide(line, connect, anonymous)
        if decision is None:
            return
        reason, will = decision.reason, connect.will
        if reason is not Reason.SUCCESS:
            line.refuse(Version.V311, reason)
        elif will is not None and (is_of_the_server(will.topic) or not decision.rights.may_write(will.topic)):
            self.broker.counters.unauthorized += 1
            line.refuse(Version.V311, Reason.NOT_AUTHORIZED)
        else:
            line.keep_alive_s = connect.keep_alive_s
            await self.broker.serve(line, connect, decision)

    async def _decide(self, line: AmqttConnection, connect: Connect, anonymous: bool) -> Decision | None:
        """None if the client has gone meanwhile."""
        self._ids += 1
        client_id = connect.client_id or f"{self._id_prefix}{self._ids}"
        arguments = (connect.user_name, connect.password, client_id, anonymous)
        decision = self.access.at_once(*arguments)
        if decision is not None:
            return decision
        if self._passwords.full:
            raise PacketError(Reason.SERVER_BUSY, "too many passwords are waiting for verification")
        verified: asyncio.Future[asyncio.Future[Decision | None]] = self._loop.create_future()

        def told(done: asyncio.Future[Decision | None]) -> None:
            if not verified.done():
                verified.set_result(done)

        self._passwords.verify(arguments, lambda: not line.closing, told)
        decision = (await verified).result()
        return None if decision is None else self.access.renew(decision)

    def _sweep(self) -> None:
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)
        now = self._loop.time()
        for line in list(self._lines):
            if not line.connect.done():
                if now - line.opened_at > self.config.connect_timeout_s:
                    line.abort()
            elif line.paused:
                line.heard_at = now
            elif line.keep_alive_s and now - line.heard_at > 1.5 * line.keep_alive_s:
                self.broker.counters.keep_alive_timeouts += 1
                line.abort()


def _broker(settings: str | None, file: str, config: FrontConfig, access: Access, cluster: Cluster | None) -> Service:
    try:
        from ringmq.mqtt_front.amqtt.sessions import Service  # noqa: PLC0415  # only who wants this front needs amqtt
    except ImportError as error:
        raise FrontError(MISSING) from error
    given = settings_of(settings or "", file)
    try:
        return Service(given, config, access, cluster)
    except Exception as error:
        # amqtt raises whatever it comes across, at times without a word and with the cause behind it.
        why = str(error) or str(error.__cause__) or type(error).__name__
        raise FrontError(f"amqtt does not take {file}: {why}") from error


def settings_of(text: str, file: str) -> dict[str, Any]:
    """What a configuration file of amqtt's says, without its listeners. Raises FrontError with one clear line."""
    import yaml  # noqa: PLC0415  # it comes with amqtt

    try:
        settings = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FrontError(f"{file} is not YAML: {' '.join(str(error).split())}") from error
    if settings is None:
        settings = {}
    if not isinstance(settings, dict):
        raise FrontError(f"{file} is not a configuration of amqtt: it has no names")
    for name in ("auth", "topic-check", "topic_check"):
        if name in settings:
            raise FrontError(f"{file} has the section {name}, of amqtt before 0.11: name the plugins under `plugins`")
    if settings.get("plugins") is None:
        settings["plugins"] = {}  # or amqtt would take all that are installed
    if settings.pop("listeners", None) is not None:
        log.warning("the listeners are the peer's own: those in the configuration of amqtt are left out", file=file)
    return settings
