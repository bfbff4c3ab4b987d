"""The MQTT clients of this peer: reads the files that say who may do what, and runs the front with its listeners.

Owns the front from its start to its end. What the front does with the clients is its own business.
"""

from __future__ import annotations

import ipaddress
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
from ringmq.peer.settings.load import TLS_LISTENERS, WEBSOCKET_LISTENERS, PeerConfig

log = structlog.get_logger()

STORE: Final = "clients.sqlite"
"""In the data folder: what the clients of this peer must find again."""


class ClientsError(PeerError):
    """MQTT clients cannot be served as configured."""


class MqttService:
    """Create inside a running event loop, `prepare`, `restore`, `listen`, and `stop` at the end, in any case."""

    def __init__(
        self, config: PeerConfig, ports: Cluster, iteration: Iteration, on_fault: Callable[[], None] | None = None
    ) -> None:
        """`on_fault` is called when clients cannot be served any more; `fault` then says why."""
        self._config = config
        self._ports = ports
        self._iteration = iteration
        self._on_fault = on_fault
        self._access = Access(
            password_file=str(config.passwords), acl_file=str(config.acl), memory_key=secrets.token_bytes(32)
        )
        self._certificates: Certificates | None = None
        self._front: MqttServer | AmqttServer | None = None
        self._addresses: dict[str, Address] = {}

    def prepare(self) -> MqttServer | AmqttServer:
        """Read the files; serve nobody yet. Raises PeerError, one clear line."""
        config = self._config
        try:
            self._access.reload(*self._texts())
            if config.tls_cert is not None and config.tls_key is not None:
                self._certificates = Certificates(config.tls_cert, config.tls_key, config.tls_ca)
            if config.front == "amqtt":
                self._front = self._amqtt_front()
            else:
                self._front = MqttServer(self._iteration, config.limits, self._access, self._ports, self._on_fault)
        except FrontError as error:
            raise ClientsError(str(error)) from error
        return self._front

    def restore(self) -> None:
        """Take up what the data folder keeps. Raises PeerError, one clear line.

        Of 100,000 sessions this takes seconds, in which the event loop stands still.
        """
        if self._config.data is not None and isinstance(self._front, MqttServer):
            try:
                self._front.restore(Store(self._config.data / STORE, time.time() - self._iteration.begin()))
            except FrontError as error:
                raise ClientsError(str(error)) from error

    async def listen(self) -> dict[str, Address]:
        """Serve clients from now on; returns where, by the listeners' names. Raises PeerError."""
        front = self._front
        assert front is not None, "`prepare` comes first"
        listens = {name: self._listen(name, address) for name, address in self._config.listeners.items()}
        try:
            self._addresses = {name: await front.listen(listen) for name, listen in listens.items()}
        except FrontError as error:
            raise ClientsError(str(error)) from error
        return self._addresses

    def publish(self, message: Message, done: Done) -> None:
        """The peer itself publishes. It needs no rights."""
        front = self._front
        assert front is not None, "`prepare` comes first"
        if isinstance(front, MqttServer):
            self._iteration.begin()
            front.broker.publish(message, done)
            front.send_soon()
        else:
            self._ports.published(message, front.deliver(message), done)

    def status(self) -> dict[str, Any]:
        """JSON-able: where clients connect, once all listeners serve them, and what the front has and counts."""
        front = self._front
        assert front is not None, "`prepare` comes first"
        told: dict[str, Any] = {"kind": self._config.front}
        if isinstance(front, MqttServer):
            broker = front.broker
            routes = broker.router.statistics()
            told |= {"clients": len(front.clients), "sessions": len(broker.sessions), "retained": len(broker.retained)}
            told |= {"subscriptions": routes.subscriptions, "filters": routes.filters}
        else:
            told |= {"clients": front.connected, "subscriptions": front.broker.subscribed}
        listeners = {name: show(address) for name, address in self._addresses.items()}
        return {"listeners": listeners, "front": told | {"counters": front.broker.counters.as_dict()}}

    def _amqtt_front(self) -> AmqttServer:
        if self._config.data is not None:
            log.warning("with the front amqtt nothing of the clients is kept in the data folder")
        settings = self._config.amqtt_settings
        return AmqttServer(
            self._config.limits,
            self._access,
            self._ports,
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
        anonymous = self._lets_anybody_in(host)
        if not anonymous and self._config.passwords is None:
            log.warning("nobody can come in: no passwords, no anonymous clients", listener=name)
        tls = None
        if name in TLS_LISTENERS:
            assert self._certificates is not None, "a configuration that was loaded names the files"
            tls = self._certificates
        return Listen(host=host, port=port, tls=tls, anonymous=anonymous, websocket=name in WEBSOCKET_LISTENERS)

    def _lets_anybody_in(self, host: str) -> bool:
        """By default only where nobody from outside can connect."""
        return is_loopback(host) if self._config.anonymous is None else self._config.anonymous

    def reload(self) -> None:
        """Read the files again. If the rules are wrong, the old ones go on to hold, and so with the certificates."""
        if self._front is None:
            return
        self._reload_rules(self._front)
        if self._certificates is not None:
            self._reload_certificates(self._certificates)

    def _reload_rules(self, front: MqttServer | AmqttServer) -> None:
        try:
            self._access.reload(*self._texts())
        except (FrontError, PeerError) as error:
            log.error("the old passwords and rights go on to hold", why=str(error))
            return
        log.info("passwords and rights were read again", disconnected=front.renew_rights())

    def _reload_certificates(self, certificates: Certificates) -> None:
        try:
            certificates.reload()
        except (FrontError, OSError) as error:  # the second, if a file goes away between two looks at it
            log.error("the old certificates go on to hold", why=str(error))
            return
        log.info("certificates were read again")

    async def stop(self) -> None:
        """Idempotent."""
        if self._front is not None:
            await self._front.stop()


def is_loopback(host: str) -> bool:
    """Whether only clients of this machine reach this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _text(file: Path | None) -> str | None:
    return None if file is None else read_rules(file)
