"""The requests that change something: clients that are kicked, and retained messages that are cleared.

Each row says what was done, once it is done. The caller has checked the rights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import structlog

from ringmq.mqtt_front.cluster import Done
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.server.server import MqttServer
from ringmq.peer.administration.requests import ChangedRow, Request, RequestError, Row, shown
from ringmq.peer.administration.retained_topics import retained_here
from ringmq.peer.engines.partitioned.engine import PartitionedEngine
from ringmq.peer.messaging.shell.adapter import EngineAdapter
from ringmq.peer.mqtt_service import MqttService

MAX_CLEARING: Final = 100
"""Topics that are being cleared at the same time: their publications wait for the disk, and for other peers."""
KICKED: Final = "ended by an administrator"

log = structlog.get_logger("administration")


class Changes:
    """One per peer. `publish` publishes a message of the peer itself."""

    def __init__(
        self, adapter: EngineAdapter[Any], clients: MqttService | None, publish: Callable[[Message, Done], None]
    ) -> None:
        self._adapter = adapter
        self._clients = clients
        self._publish = publish

    def kick(self, request: Request) -> Iterator[Row | None]:
        """End the connection of a client with DISCONNECT 0x98 (MQTT 5), or without a word (MQTT 3), and with
        `session` all that the broker keeps for it. Its will is published."""
        front = None if self._clients is None else self._clients.front
        if front is None:
            return
        if not isinstance(front, MqttServer):
            raise RequestError("its front is amqtt, which does not end connections")
        broker = front.broker
        session = broker.sessions.get(request.client)
        if session is None or (request.user and session.user != request.user):
            return
        done = "disconnected" if session.writer is not None else ""
        if session.writer is not None:
            session.writer.fail(Reason.ADMINISTRATIVE_ACTION, KICKED)
        if request.session and broker.sessions.get(request.client) is session:
            broker.end(session)
            done = "session ended"
        front.send_soon()
        if done:
            log.info("client kicked", client=shown(request.client), done=done)
            yield ChangedRow(name=shown(request.client), done=done)

    def clear(self, request: Request) -> Iterator[Row | None]:
        """Publish an empty retained message to each topic: subscribers see it, as if a client had cleared the topic."""
        engine = self._adapter.core
        if not isinstance(engine, PartitionedEngine):
            raise RequestError("its engine does not list retained messages")
        clearing: dict[str, Reason | None] = {}
        begun = 0
        for record in retained_here(engine, request.filter):
            if record is None:
                yield None
                continue
            if begun == request.limit:
                break
            begun += 1
            clearing[record.name] = None
            done = partial(clearing.__setitem__, record.name)
            self._publish(Message(record.name, b"", 1, True), done)
            while len(clearing) >= MAX_CLEARING:
                yield from _settled(clearing)
        while clearing:
            yield from _settled(clearing)


def _settled(clearing: dict[str, Reason | None]) -> Iterator[Row | None]:
    """The topics that are cleared by now; then None, to wait for the others."""
    for name, reason in list(clearing.items()):
        if reason is not None:
            del clearing[name]
            if reason < Reason.UNSPECIFIED_ERROR:
                yield ChangedRow(name=shown(name), done="cleared")
            else:
                yield ChangedRow(name=shown(name), done=f"not cleared: {reason.name.lower().replace('_', ' ')}")
    if clearing:
        yield None
