"""A front with a listener of every kind, in a thread of its own, on the event loop that a peer has; its certificates;
and what a real client must do to be put through the tests.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import trustme

from ringmq.mqtt_front.server.listeners import Listen
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.mqtt_front.server.tls import server_context
from ringmq.peer.iteration import Iteration

try:
    from uvloop import new_event_loop
except ImportError:
    from asyncio import new_event_loop

HOST = "127.0.0.1"
WITHIN_S = 10.0
"""Anything that takes longer does not come."""


class Got(NamedTuple):
    """A message as a client got it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Where a client connects, and how: what is None is not needed there."""

    port: int
    version: int
    websocket: bool
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @property
    def is_v5(self) -> bool:
        return self.version == 5


class RealClient(Protocol):
    """Connected when it is made. Every call returns when the server has answered, or raises after WITHIN_S."""

    def __init__(self, reach: Reach, will: Got | None = None) -> None: ...
    def subscribe(self, topic_filter: str, qos: int) -> None: ...
    def publish(self, topic: str, payload: bytes, qos: int, retain: bool = False) -> None: ...
    def take(self) -> Got:
        """The next message."""

    def vanish(self) -> None:
        """Without a DISCONNECT."""

    def close(self) -> None: ...


class Inbox:
    """What a client got, from whatever thread."""

    def __init__(self) -> None:
        self._messages: queue.Queue[Got] = queue.Queue()
        self.put = self._messages.put

    def take(self) -> Got:
        return self._messages.get(timeout=WITHIN_S)


class Listeners:
    """One of each kind; `reach` says how to get there, `close` ends it all."""

    def __init__(self, folder: Path) -> None:
        ca = trustme.CA()
        self.ca = folder / "ca.pem"
        ca.cert_pem.write_to_path(str(self.ca))
        self._server = _issue(ca, folder, "server")
        self._client = _issue(ca, folder, "client")
        self.cluster: dict[str, int] = {}
        self._ready: queue.Queue[BaseException | None] = queue.Queue()
        self._loop: asyncio.AbstractEventLoop
        self._stop: asyncio.Event
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        failure = self._ready.get(timeout=WITHIN_S)
        if failure is not None:
            raise failure

    def reach(self, kind: str, version: int) -> Reach:
        certificate, key = self._client if kind == "mutual" else (None, None)
        return Reach(
            port=self.cluster[kind],
            version=version,
            websocket=kind in ("ws", "wss"),
            ca=None if kind in ("tcp", "ws") else self.ca,
            certificate=certificate,
            key=key,
        )

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WITHIN_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:  # noqa: BLE001  # it is raised in the other thread
                self._ready.put(error)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tls, mutual = server_context(*self._server), server_context(*self._server, self.ca)
        listens = {
            "tcp": Listen(host=HOST, port=0),
            "tls": Listen(host=HOST, port=0, tls=tls),
            "mutual": Listen(host=HOST, port=0, tls=mutual),
            "ws": Listen(host=HOST, port=0, websocket=True),
            "wss": Listen(host=HOST, port=0, tls=tls, websocket=True),
        }
        front = MqttServer(Iteration())
        try:
            for kind, listen in listens.items():
                self.cluster[kind] = (await front.listen(listen))[1]
            self._ready.put(None)
            await self._stop.wait()
        finally:
            await front.stop()


def _issue(ca: trustme.CA, folder: Path, name: str) -> tuple[Path, Path]:
    issued = ca.issue_cert(HOST, common_name=name)
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    return certificate, key
