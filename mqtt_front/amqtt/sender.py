"""What goes out to the clients of amqtt: at once, or when they come back.

Owns how much may be under way to a client or wait for it, and that what it has not acknowledged is not forgotten.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import ApplicationMessage, Session

from ringmq.mqtt_front.config import FrontConfig
from ringmq.mqtt_front.counters import FrontCounters

READY: Final = "ringmq.ready"
"""What a session has while its client is here and has been sent what waited for it: until then, all has to wait."""


class Sending:
    """One per broker."""

    def __init__(self, limits: FrontConfig, counters: FrontCounters) -> None:
        self._limits = limits
        self._counters = counters
        self._under_way: dict[str, dict[asyncio.Task[Any], tuple[ApplicationMessage, int]]] = {}
        """By client id, in the order in which it was sent, what has not been acknowledged, and with which QoS."""

    def hand(
        self, session: Session, handler: BrokerProtocolHandler | None, message: ApplicationMessage, qos: int
    ) -> None:
        """To a session, whether its client is there or not. The message says whether its RETAIN flag is to be set."""
        if handler is not None and READY in session.attributes:
            self.send(session, handler, message, qos)
        elif qos:
            self.keep(session, message, qos)

    def send(self, session: Session, handler: BrokerProtocolHandler, message: ApplicationMessage, qos: int) -> None:
        client_id = session.client_id
        under_way = self._under_way.setdefault(client_id, {})
        if qos and len(under_way) >= self._limits.max_queued:
            self._counters.dropped(message.topic)
            return

        def sent(task: asyncio.Task[Any]) -> None:
            """amqtt forgets what is not acknowledged within 5 s."""
            done = _is_sent(task)  # asked in any case, or asyncio would tell of it
            if under_way.pop(task, None) is None:
                return
            if not under_way and self._under_way.get(client_id) is under_way:
                del self._under_way[client_id]
            if done:
                self._counters.sent(message.topic, len(message.data))
            elif qos:
                self.keep(session, message, qos)

        publish = handler.mqtt_publish(message.topic, message.data, qos, message.retain)
        task = asyncio.get_running_loop().create_task(publish)
        under_way[task] = message, qos
        task.add_done_callback(sent)

    def cut(self, session: Session) -> None:
        """The connection has ended: what was under way is kept."""
        under_way = self._under_way.pop(session.client_id, {})
        for task, (message, qos) in under_way.items():
            if qos and not (task.done() and _is_sent(task)):
                self.keep(session, message, qos)
            task.cancel()
        under_way.clear()

    def keep(self, session: Session, message: ApplicationMessage, qos: int) -> None:
        """For when its client comes back; for nobody, if it will not be the same session."""
        if session.clean_session or session.is_anonymous:
            return
        if session.retained_messages.qsize() >= self._limits.max_queued:
            self._counters.dropped(message.topic)
            return
        session.retained_messages.put_nowait(ApplicationMessage(None, message.topic, qos, message.data, False))


def _is_sent(task: asyncio.Task[Any]) -> bool:
    """And acknowledged, if it has to be."""
    return not task.cancelled() and task.exception() is None
