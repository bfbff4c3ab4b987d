"""`$SYS`: figures of a front, published to the clients that subscribe to them, under the names of Mosquitto.

Owns the names and the interval, and publishes only values that have changed. The messages go to clients of this front
alone: they are kept for later subscribers as retained messages are, but never reach the cluster or the journal.
"""

from __future__ import annotations

from math import inf
from typing import Final

from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.message import Message

PREFIX: Final = "$SYS/broker/"


class SysTopics:
    """Call `refresh` at least once per interval: it does nothing before the interval has passed."""

    def __init__(self, software: str, interval_s: float, now: float) -> None:
        """`software` is what `version` says. An interval of 0 means never."""
        self._software = software
        self._interval_s = interval_s
        self._started_at = now
        self._due = now if interval_s else inf
        self._published: dict[str, bytes] = {}
        self._kept: set[str] = set()
        self._most_clients = 0

    def refresh(self, broker: Broker) -> None:
        """Publish the values that have changed, if the interval has passed. The caller flushes the outboxes then."""
        if broker.clock.now < self._due:
            return
        self._due = broker.clock.now + self._interval_s
        for name, value in self.readings(broker).items():
            payload = str(value).encode()
            if self._published.get(name) != payload:
                self._publish(broker, name, payload)

    def _publish(self, broker: Broker, name: str, payload: bytes) -> None:
        # QoS 0: nobody wants yesterday's numbers, so nothing waits for clients that are away.
        message = Message(PREFIX + name, payload, retain=True)
        self._published[name] = payload
        if broker.retained.set(message):
            self._kept.add(name)
        # Not `publish`: all fronts use the same names, and in the cluster their values would overwrite each other.
        broker.distribute(message)

    def readings(self, broker: Broker) -> dict[str, int | str]:
        """All values as they are now."""
        counters, routes = broker.counters, broker.router.statistics()
        connected = inflight = queued = 0
        for session in broker.sessions.values():
            connected += session.writer is not None
            inflight += len(session.inflight)
            queued += len(session.queue)
        total = len(broker.sessions)
        self._most_clients = max(self._most_clients, connected)
        # The messages of `$SYS` are among the retained messages, and would otherwise count themselves.
        retained = len(broker.retained) - len(self._kept)
        return {
            "version": self._software,
            "uptime": f"{int(broker.clock.now - self._started_at)} seconds",
            "clients/total": total,
            "clients/connected": connected,
            "clients/disconnected": total - connected,
            "clients/maximum": self._most_clients,
            "clients/expired": counters.expired_sessions,
            "messages/received": counters.messages_received,
            "messages/sent": counters.messages_sent,
            "messages/inflight": inflight,
            "messages/stored": inflight + queued + retained,
            "publish/messages/received": counters.publish_received + counters.log_received,
            "publish/messages/sent": counters.publish_sent + counters.log_sent,
            "publish/messages/dropped": counters.publish_dropped + counters.log_dropped,
            "bytes/received": counters.bytes_received,
            "bytes/sent": counters.bytes_sent,
            "retained messages/count": retained,
            "subscriptions/count": routes.subscriptions,
            "shared_subscriptions/count": routes.shared_subscriptions,
        }
