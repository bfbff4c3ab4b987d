"""Sends messages to the clients of amqtt: at once, or when they reconnect.

Owns the bounds on messages in flight and in queues, and keeps unacknowledged messages. Must not know topics or rights.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import ApplicationMessage, Session

from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.counters import FrontCounters

READY: Final = "ringmq.ready"
"""Attribute of a session whose client is connected and has been sent its queue. Without it, messages are queued."""


class Sender:
    """One per broker."""

    def __init__(self, limits: FrontConfig, counters: FrontCounters) -> None:
        self._limits = limits
        self._counters = counters
        self._in_flight: dict[str, dict[asyncio.Task[Any], tuple[ApplicationMessage, int]]] = {}
        """Unacknowledged messages and their QoS by client id, in the order of sending."""

    def deliver(
        self, session: Session, handler: BrokerProtocolHandler | None, message: ApplicationMessage, qos: int
    ) -> None:
        """Send a message to a session, or queue it if its client is not connected. The message has its RETAIN flag."""
        if handler is not None and READY in session.attributes:
            self.send(session, handler, message, qos)
        elif qos:
            self.queue(session, message, qos)

    def send(self, session: Session, handler: BrokerProtocolHandler, message: ApplicationMessage, qos: int) -> None:
        client_id = session.client_id
        in_flight = self._in_flight.setdefault(client_id, {})
        if qos and len(in_flight) >= self._limits.max_queued:
            self._counters.dropped(message.topic)
            return

        def sent(task: asyncio.Task[Any]) -> None:
            """Queue the message again if it was not acknowledged: amqtt drops it after 5 s."""
            done = _is_sent(task)  # Always read, or asyncio would log an exception that nobody retrieved.
            if in_flight.pop(task, None) is None:
                return
            if not in_flight and self._in_flight.get(client_id) is in_flight:
                del self._in_flight[client_id]
            if done:
                self._counters.sent(message.topic, len(message.data))
            elif qos:
                self.queue(session, message, qos)

        publish = handler.mqtt_publish(message.topic, message.data, qos, message.retain)
        task = asyncio.get_running_loop().create_task(publish)
        in_flight[task] = message, qos
        task.add_done_callback(sent)

    def cut(self, session: Session) -> None:
        """Queue the messages in flight of a connection that has ended [MQTT-4.4.0-1]."""
        in_flight = self._in_flight.pop(session.client_id, {})
        for task, (message, qos) in in_flight.items():
            if qos and not (task.done() and _is_sent(task)):
                self.queue(session, message, qos)
            task.cancel()
        in_flight.clear()

    def queue(self, session: Session, message: ApplicationMessage, qos: int) -> None:
        """Queue a message until the client reconnects; drop it if the session ends with its connection."""
        if session.clean_session or session.is_anonymous:
            return
        if session.retained_messages.qsize() >= self._limits.max_queued:
            self._counters.dropped(message.topic)
            return
        session.retained_messages.put_nowait(ApplicationMessage(None, message.topic, qos, message.data, False))


def _is_sent(task: asyncio.Task[Any]) -> bool:
    """Whether the message was sent, and acknowledged if its QoS requires it."""
    return not task.cancelled() and task.exception() is None
