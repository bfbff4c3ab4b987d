"""The HTTP service of a peer: reads the tokens, and runs the server from its start to its end."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from ringmq.logger.errors import LoggerError
from ringmq.overlay.config import Address, Caller
from ringmq.overlay.errors import OverlayError
from ringmq.peer.administration.shell.topic_trace import trace
from ringmq.peer.errors import PeerError
from ringmq.peer.settings.addresses import parse_address
from ringmq.peer.web.api import AdministrationSite, Asks, Parts, Traced
from ringmq.peer.web.feed import Feed
from ringmq.peer.web.guard import Guard
from ringmq.peer.web.health import Health
from ringmq.peer.web.http_server import HttpServer
from ringmq.peer.web.metrics_site import Page
from ringmq.peer.web.tokens import Tokens

WEBSOCKET: Final = "mqtt_ws"
"""The listener that the page publishes and subscribes by."""
MAX_CONNECTIONS: Final = 128
"""Connections at the same time: some pages that are looked at, probes and scripts."""
MAX_FILE_BYTES: Final = 64 << 10
QUIET_S: Final = 60.0
"""Between two lines of the log about refusals for the same reason."""
MAX_REASONS: Final = 64
"""Different reasons within QUIET_S. Strangers choose a part of them."""

TRACE_S: Final = 3.0
"""How long a search for the coordinators of a topic may take."""
MAX_TRACES: Final = 16
"""Such searches at the same time; each has one connection at a time to another peer."""

log = structlog.get_logger("http")


class WebOwner(NamedTuple):
    """What the service asks its peer."""

    me: Callable[[], str]
    """Its id."""
    address: Callable[[], Address]
    """Its overlay address."""
    listeners: Callable[[], Mapping[str, str]]
    """The addresses of its listeners for clients, by their names."""
    health: Callable[[], Health]
    caller: Caller | None
    """Its identity towards other peers, in a ring that has identities."""


class WebError(PeerError):
    """HTTP cannot be served as configured."""


class WebService:
    """Create it inside a running event loop, `start` it when the node has started, and `stop` it at the end."""

    def __init__(self, listen: Address, tokens: Path | None, desk: Asks, owner: WebOwner) -> None:
        """Reads the file of tokens. Raises PeerError with one line."""
        self._listen = listen
        self._file = tokens
        self._owner = owner
        self._desk = desk
        self._feed = Feed(desk.ask, owner.me)
        self._traces: set[asyncio.Task[None]] = set()
        self._guard = Guard(read_tokens(tokens), frozenset({listen[0].lower(), socket.gethostname().lower()}))
        self._server: HttpServer | None = None
        self._quiet_until: dict[str, float] = {}

    async def start(self, metrics: Page) -> Address:
        """Listen; returns the bound address. Raises PeerError with one line."""
        parts = Parts(
            desk=self._desk,
            guard=self._guard,
            health=self._owner.health,
            metrics=metrics,
            log=self._refused,
            trace=self._trace,
            feed=self._feed,
            websocket_port=self._websocket_port,
        )
        self._server = HttpServer(AdministrationSite(parts), MAX_CONNECTIONS)
        try:
            return await self._server.listen(*self._listen)
        except LoggerError as error:
            raise WebError(str(error)) from error

    def reload(self) -> None:
        """Read the tokens again. If the file is wrong, the old ones stay in force."""
        try:
            self._guard.tokens = read_tokens(self._file)
        except PeerError as error:
            log.error("keeping the old tokens", why=str(error))
            return
        if self._file is not None:
            log.info("tokens reloaded")

    async def stop(self) -> None:
        """Idempotent."""
        self._feed.close()
        for task in self._traces:
            task.cancel()
        await asyncio.gather(*self._traces, return_exceptions=True)
        if self._server is not None:
            await self._server.close()

    def _trace(self, topic: str, done: Traced) -> None:
        if len(self._traces) >= MAX_TRACES:
            done(None, "this peer looks for too many topics already: try again")
            return
        task = asyncio.get_running_loop().create_task(self._find(topic, done), name="topic")
        self._traces.add(task)
        task.add_done_callback(self._traces.discard)

    async def _find(self, topic: str, done: Traced) -> None:
        try:
            async with asyncio.timeout(TRACE_S):
                found = await trace(self._owner.address(), topic, self._owner.caller)
        except TimeoutError:
            done(None, "the peers on the way to its coordinators do not answer")
        except OverlayError as error:
            done(None, str(error))
        except Exception:
            log.exception("unhandled error while looking for a topic")
            done(None, "it failed to answer; its log has the reason")
        else:
            done(found, "")

    def _websocket_port(self) -> int | None:
        address = self._owner.listeners().get(WEBSOCKET)
        return None if address is None else parse_address(address)[1]

    def _refused(self, host: str, why: str) -> None:
        """Log a refusal, but the same reason only once in a while: whoever is refused may ask a thousand times."""
        now = time.monotonic()
        if self._quiet_until.get(why, 0.0) > now:
            return
        if len(self._quiet_until) >= MAX_REASONS:
            self._quiet_until = {reason: until for reason, until in self._quiet_until.items() if until > now}
            if len(self._quiet_until) >= MAX_REASONS:
                return
        self._quiet_until[why] = now + QUIET_S
        log.warning("request refused", host=host, why=why)


def read_tokens(file: Path | None) -> Tokens | None:
    """The tokens of a file; None without one. Raises PeerError with one line."""
    if file is None:
        return None
    try:
        with file.open("rb") as source:
            raw = source.read(MAX_FILE_BYTES + 1)
        if len(raw) > MAX_FILE_BYTES:
            raise WebError(f"{file}: longer than {MAX_FILE_BYTES} bytes")
        return Tokens(raw.decode(), str(file))
    except OSError as error:
        raise WebError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise WebError(f"{file} is not text in UTF-8") from error
