"""MQTT service of a peer: reads the files about access and TLS, and runs the front with its listeners.

Owns the front from its start to its end. Knows nothing of how the front serves the clients.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import structlog

from ringmq.mqtt_front.access.access import Access
from ringmq.mqtt_front.amqtt.server import AmqttServer
from ringmq.mqtt_front.cluster import Cluster, Done
from ringmq.mqtt_front.errors import FrontError
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.listeners import Listen
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.sessions.shell.sqlite_journal import Store
from ringmq.overlay.config import Address, show
from ringmq.peer.certificates import Certificates
from ringmq.peer.cli.passwd import read_rules
from ringmq.peer.errors import PeerError
from ringmq.peer.iteration import Iteration
from ringmq.peer.settings.addresses import is_loopback
from ringmq.peer.settings.model import TLS_LISTENERS, WEBSOCKET_LISTENERS, PeerConfig

log = structlog.get_logger()

STORE: Final = "clients.sqlite"
"""File in the data folder with the sessions and retained messages of the front."""


class ClientsError(PeerError):
    """MQTT clients cannot be served as configured."""


class MqttService:
    """Create inside a running event loop, then `prepare`, `restore`, `listen`; finally `stop`, in any case."""

    def __init__(
        self, config: PeerConfig, cluster: Cluster, iteration: Iteration, on_fault: Callable[[], None] | None = None
    ) -> None:
        """`on_fault` is called when clients cannot be served any more; `fault` then has the reason."""
        self._config = config
        self._cluster = cluster
        self._iteration = iteration
        self._on_fault = on_fault
        # The key is random: hashes of verified passwords, which speed up reconnecting, must be useless elsewhere.
        self._access = Access(
            password_file=str(config.passwords), acl_file=str(config.acl), memory_key=secrets.token_bytes(32)
        )
        self._certificates: Certificates | None = None
        self._front: MqttServer | AmqttServer | None = None
        self._addresses: dict[str, Address] = {}

    def prepare(self) -> MqttServer | AmqttServer:
        """Read the files and create the front. Raises PeerError with one line."""
        config = self._config
        try:
            self._access.reload(*self._texts())
            if config.tls_cert is not None and config.tls_key is not None:
                self._certificates = Certificates(config.tls_cert, config.tls_key, config.tls_ca)
            if config.front == "amqtt":
                self._front = self._amqtt_front()
            else:
                self._front = MqttServer(self._iteration, config.limits, self._access, self._cluster, self._on_fault)
        except FrontError as error:
            raise ClientsError(str(error)) from error
        return self._front

    def restore(self) -> None:
        """Restore the sessions from the data folder. Raises PeerError with one line.

        100,000 sessions take seconds, which block the event loop.
        """
        if self._config.data is not None and isinstance(self._front, MqttServer):
            try:
                # Expiry times in the file outlive this process, so they are times of day, not times of the event loop.
                self._front.restore(Store(self._config.data / STORE, time.time() - self._iteration.begin()))
            except FrontError as error:
                raise ClientsError(str(error)) from error

    async def listen(self) -> dict[str, Address]:
        """Start the listeners; returns their addresses by listener name. Raises PeerError."""
        front = self._front
        assert front is not None, "`prepare` comes first"
        listens = {name: self._listen(name, address) for name, address in self._config.listeners.items()}
        try:
            self._addresses = {name: await front.listen(listen) for name, listen in listens.items()}
        except FrontError as error:
            raise ClientsError(str(error)) from error
        return self._addresses

    def publish(self, message: Message, done: Done) -> None:
        """Publish a message of the peer itself, which needs no rights."""
        front = self._front
        assert front is not None, "`prepare` comes first"
        if isinstance(front, MqttServer):
            self._iteration.begin()
            front.broker.publish(message, done)
            front.send_soon()
        else:
            self._cluster.published(message, front.deliver(message), done)

    @property
    def front(self) -> MqttServer | AmqttServer:
        assert self._front is not None, "`prepare` comes first"
        return self._front

    @property
    def connected(self) -> int:
        """Number of clients that are connected or connecting."""
        front = self.front
        return len(front.clients) if isinstance(front, MqttServer) else front.connected

    def listening(self) -> dict[str, str]:
        """Addresses by listener name, once all of them serve."""
        return {name: show(address) for name, address in self._addresses.items()}

    def status(self) -> dict[str, Any]:
        """JSON-able: addresses of the listeners once all of them serve, sizes of the front, and its counters."""
        front = self._front
        assert front is not None, "`prepare` comes first"
        sizes: dict[str, Any] = {"kind": self._config.front}
        if isinstance(front, MqttServer):
            broker = front.broker
            routes = broker.router.statistics()
            sizes |= {"clients": self.connected, "sessions": len(broker.sessions), "retained": len(broker.retained)}
            sizes |= {"subscriptions": routes.subscriptions, "filters": routes.filters}
        else:
            sizes |= {"clients": self.connected, "subscriptions": front.broker.subscribed}
        return {"listeners": self.listening(), "front": sizes | {"counters": front.broker.counters.as_dict()}}

    def _amqtt_front(self) -> AmqttServer:
        if self._config.data is not None:
            log.warning("the front amqtt saves no client state in the data folder")
        settings = self._config.amqtt_settings
        return AmqttServer(
            self._config.limits,
            self._access,
            self._cluster,
            settings=_text(settings),
            settings_file=str(settings or "amqtt settings"),
        )

    @property
    def fault(self) -> str | None:
        return self._front.fault if isinstance(self._front, MqttServer) else None

    def _texts(self) -> tuple[str | None, str | None]:
        return _text(self._config.passwords), _text(self._config.acl)

    def _listen(self, name: str, address: Address) -> Listen:
        host, port = address
        anonymous = self._admits_anonymous(host)
        if not anonymous and self._config.passwords is None:
            log.warning("no client can connect: no passwords, no anonymous clients", listener=name)
        tls = None
        if name in TLS_LISTENERS:
            assert self._certificates is not None, "`load` refuses a TLS listener without its files"
            tls = self._certificates
        return Listen(host=host, port=port, tls=tls, anonymous=anonymous, websocket=name in WEBSOCKET_LISTENERS)

    def _admits_anonymous(self, host: str) -> bool:
        # The default is safe without passwords: clients from other machines cannot connect to a loopback address.
        return is_loopback(host) if self._config.anonymous is None else self._config.anonymous

    def reload(self) -> None:
        """Read the files again. If rules or certificates are wrong, the old ones stay in force."""
        if self._front is None:
            return
        self._reload_rules(self._front)
        if self._certificates is not None:
            self._reload_certificates(self._certificates)

    def _reload_rules(self, front: MqttServer | AmqttServer) -> None:
        try:
            self._access.reload(*self._texts())
        except (FrontError, PeerError) as error:
            log.error("keeping the old passwords and rights", why=str(error))
            return
        log.info("passwords and rights reloaded", disconnected=front.renew_rights())

    def _reload_certificates(self, certificates: Certificates) -> None:
        try:
            certificates.reload()
        except (FrontError, OSError) as error:  # OSError if a file disappears between two reads of it
            log.error("keeping the old certificates", why=str(error))
            return
        log.info("certificates reloaded")

    async def stop(self) -> None:
        """Stop the front. Idempotent."""
        if self._front is not None:
            await self._front.stop()


def _text(file: Path | None) -> str | None:
    return None if file is None else read_rules(file)
