"""The MQTT clients of this peer: reads the files that say who may do what, and runs the front.

Owns the front from its start to its end. What the front does with the clients is its own business.
"""

from __future__ import annotations

import ipaddress
import secrets
from pathlib import Path

import structlog

from mqtt_front.access import Access
from mqtt_front.errors import FrontError
from mqtt_front.front import Front, Listen
from overlay.config import Address
from peer.config import PeerConfig
from peer.errors import PeerError

log = structlog.get_logger()


class ClientsError(PeerError):
    """MQTT clients cannot be served as configured."""


class Clients:
    """Create inside a running event loop, `start`, and `stop` at the end."""

    def __init__(self, config: PeerConfig) -> None:
        self._config = config
        self._access = Access(
            password_file=str(config.passwords), acl_file=str(config.acl), memory_key=secrets.token_bytes(32)
        )
        self._front: Front | None = None

    async def start(self) -> Address:
        """Serve clients from now on; returns where. Raises ClientsError with one clear line."""
        mqtt = self._config.mqtt
        assert mqtt is not None, "there is nothing to start"
        host, port = mqtt
        try:
            self._access.reload(*self._texts())
            self._front = Front(access=self._access)
            return await self._front.listen(Listen(host=host, port=port, anonymous=self._lets_anybody_in(host)))
        except FrontError as error:
            raise ClientsError(str(error)) from error

    def _texts(self) -> tuple[str | None, str | None]:
        return _text(self._config.passwords), _text(self._config.acl)

    def _lets_anybody_in(self, host: str) -> bool:
        """By default only where nobody from outside can connect."""
        return is_loopback(host) if self._config.anonymous is None else self._config.anonymous

    def reload(self) -> None:
        """Read the password and the ACL file again; if one is wrong, the old ones go on to hold."""
        if self._front is None:
            return
        try:
            self._access.reload(*self._texts())
        except (FrontError, ClientsError) as error:
            log.error("the old passwords and rights go on to hold", why=str(error))
            return
        log.info("passwords and rights were read again", disconnected=self._front.renew_rights())

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
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ClientsError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ClientsError(f"{file} is not UTF-8: {error.reason}") from error
