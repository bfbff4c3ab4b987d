"""amqtt's broker, restricted: its clients' subscriptions and messages, checked by rights and passed to the cluster.

Replaces the methods of amqtt that send messages to unauthorized clients or lose them; docs/amqtt.md lists them. Uses
private parts of amqtt: the extra in pyproject.toml names the versions it was written for. Must not know connections,
which `sessions` adds.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import Any, Final

import structlog
from amqtt.broker import Broker, RetainedApplicationMessage
from amqtt.contexts import Action
from amqtt.events import BrokerEvents
from amqtt.mqtt.protocol.broker_handler import BrokerProtocolHandler
from amqtt.session import ApplicationMessage, Session

from ringmq.mqtt_front.access.access import Decision
from ringmq.mqtt_front.access.acl import ALL_RIGHTS, Rights
from ringmq.mqtt_front.amqtt.sender import READY, Sender
from ringmq.mqtt_front.cluster import Cluster, Standalone
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import NEVER_EXPIRES_S, FrontConfig
from ringmq.mqtt_front.counters import FrontCounters
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.matching.topics import SHARED, check_filter, is_of_the_server
from ringmq.mqtt_front.message import Message

log = structlog.get_logger("front")

REFUSED: Final = 0x80
"""The failure code of a SUBACK; reasons from here on are failures."""
DECISION: Final = "ringmq.decision"
"""Attribute of a session with the Decision on its client."""
MAX_WAITING: Final = 10_000
"""Messages queued for local clients. At the bound, publishing clients wait; messages of the cluster are dropped."""
LOGGERS: Final = ("amqtt.broker", "amqtt.mqtt", "amqtt.session")
"""The loggers with a line for each error of a client. Plugins have loggers of their own."""


def rights_of(session: Session) -> Rights:
    """Rights of a session; all if a plugin restored it, as its queue is checked when its client comes."""
    decision: Decision | None = session.attributes.get(DECISION)
    return ALL_RIGHTS if decision is None else decision.rights


class RestrictedBroker(Broker):  # type: ignore[misc]
    """The cluster calls `distribute` and `retain`."""

    def __init__(self, settings: dict[str, Any], limits: FrontConfig, cluster: Cluster | None) -> None:
        """`settings` as amqtt reads them; `plugins` must be there, perhaps empty. Raises amqtt's own exceptions."""
        expiry_s = None if limits.session_expiry_3_s == NEVER_EXPIRES_S else limits.session_expiry_3_s
        own: dict[str, Any] = {"listeners": {"default": {"type": "external"}}}
        super().__init__({"session_expiry_interval": expiry_s} | settings | own, plugin_namespace="amqtt.plugins")
        # Any stranger could fill the log with errors.
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        self.limits = limits
        self.cluster: Cluster = cluster or Standalone()
        self.counters = FrontCounters()
        self._broadcast_queue: asyncio.Queue[tuple[Message, list[tuple[Session, int]]]] = asyncio.Queue(MAX_WAITING)
        self._in_force: dict[str, asyncio.Future[Reason]] = {}
        """By filter, the answer of the cluster: it is in force everywhere, or refused."""
        self._sender = Sender(limits, self.counters)

    async def _topic_filtering(self, session: Session, topic: str, action: Action) -> bool:
        rights = rights_of(session)
        ask = {
            Action.SUBSCRIBE: rights.may_subscribe,
            Action.PUBLISH: rights.may_write,
            Action.RECEIVE: rights.may_read,
        }
        return ask[action](topic) and bool(await super()._topic_filtering(session, topic, action))

    async def add_subscription(self, subscription: tuple[str, int], session: Session) -> int:
        topic_filter, _ = subscription
        full = topic_filter not in self._subscriptions and len(self._subscriptions) >= self.limits.max_subscriptions
        if full or topic_filter.startswith(SHARED) or not _is_filter(topic_filter):
            return REFUSED
        qos = int(await super().add_subscription(subscription, session))
        if qos >= REFUSED:
            self.counters.unauthorized += 1
            return REFUSED
        # amqtt keeps the old QoS when a subscription is repeated; it must be replaced [MQTT-3.8.4-3].
        held = self._subscriptions[topic_filter]
        held[:] = [(subscriber, qos if subscriber is session else old) for subscriber, old in held]
        in_force = self._in_force.get(topic_filter)
        # The session of a client that left before the answer keeps a filter that was refused.
        if in_force is None or (in_force.done() and in_force.result() >= REFUSED):
            in_force = self._in_force[topic_filter] = asyncio.get_running_loop().create_future()
            self.cluster.filter_added(topic_filter, partial(_settle, in_force))
        # The SUBACK promises delivery, so it waits for the cluster. A client that goes meanwhile cancels its own wait.
        if await asyncio.shield(in_force) >= REFUSED:
            self._del_subscription(topic_filter, session)
            return REFUSED
        return qos

    def _del_subscription(self, a_filter: str, session: Session) -> int:
        deleted = int(super()._del_subscription(a_filter, session))
        if deleted and not self._subscriptions[a_filter]:
            del self._subscriptions[a_filter]
            _settle(self._in_force.pop(a_filter), Reason.SUCCESS)
            self.cluster.filter_removed(a_filter)
        return deleted

    async def _del_all_subscriptions(self, session: Session) -> None:
        for topic_filter in list(self._subscriptions):
            self._del_subscription(topic_filter, session)

    async def _handle_subscription(
        self, session: Session, handler: BrokerProtocolHandler, waiter: asyncio.Future[Any]
    ) -> None:
        wanted = waiter.result()
        codes = [await self.add_subscription(entry, session) for entry in wanted.topics]
        await handler.mqtt_acknowledge_subscription(wanted.packet_id, codes)
        for (topic_filter, _), qos in zip(wanted.topics, codes, strict=True):
            if qos < REFUSED:
                event = {"client_id": session.client_id, "topic": topic_filter, "qos": qos}
                await self.plugins_manager.fire_event(BrokerEvents.CLIENT_SUBSCRIBED, **event)
                await self._send_retained(session, topic_filter, qos)

    async def _send_retained(self, session: Session, topic_filter: str, qos: int) -> None:
        for topic, kept in list(self._retained_messages.items()):
            if self._matches(topic, topic_filter) and await self._topic_filtering(session, topic, Action.RECEIVE):
                self._sender.deliver(session, self._get_handler(session), kept, min(kept.qos or 0, qos))
                await asyncio.sleep(0)  # Otherwise all of them would be in flight before the first is sent.

    async def _publish_retained_messages_for_subscription(self, _: tuple[str, int], __: Session) -> None:
        """Does nothing: amqtt calls it with the filters of all clients whenever a client connects."""

    async def _handle_message_delivery(
        self, session: Session, handler: BrokerProtocolHandler, waiter: asyncio.Future[Any]
    ) -> bool:
        message = waiter.result()
        if message is not None:
            await self._receive(session, message)
            handler.reader.pace(session.delivered_message_queue.qsize())
        return True

    async def _receive(self, session: Session, message: ApplicationMessage) -> None:
        """Publish the message of a client."""
        event = {"client_id": session.client_id, "message": message}
        await self.plugins_manager.fire_event(BrokerEvents.MESSAGE_RECEIVED, **event)
        topic = message.topic
        allowed = not is_of_the_server(topic) and await self._topic_filtering(session, topic, Action.PUBLISH)
        if not self.counters.authorized(allowed):
            return
        await self.plugins_manager.fire_event(BrokerEvents.MESSAGE_BROADCAST, **event)
        await self._publish(Message(topic, bytes(message.data), message.qos, message.retain, origin=session.client_id))

    async def _broadcast_message(
        self, session: Session | None, topic: str, data: bytes | bytearray, force_qos: int | None = None
    ) -> None:
        """Publish the message of a plugin; messages of clients come through `_receive`."""
        await self._publish(Message(topic, bytes(data), force_qos or 0))

    async def _publish(self, message: Message) -> None:
        """Deliver a local message to local clients, and to the cluster except for the server's own `$` topics."""
        if message.retain and not self.cluster.keeps_retained:
            await self.retain_message(None, message.topic, message.payload, message.qos)
        receivers = self._receivers(message)
        if receivers:
            await self._broadcast_queue.put((message, receivers))
        if not message.topic.startswith("$") or message.origin:
            done = partial(self._count_failed, message.retain) if message.qos else None
            self.cluster.published(message, len(receivers), done)

    def _count_failed(self, retain: bool, reason: Reason) -> None:
        """Count a message that the cluster failed to deliver or to retain. amqtt has already acknowledged it."""
        if reason >= REFUSED and retain:
            self.counters.not_retained += 1
        elif reason >= REFUSED:
            self.counters.publish_dropped += 1

    @property
    def subscribed(self) -> int:
        """Number of subscriptions of all sessions."""
        return sum(map(len, self._subscriptions.values()))

    def distribute(self, message: Message) -> int:
        """Deliver a message of the cluster to local subscribers; returns their number."""
        receivers = self._receivers(message)
        if self._broadcast_queue.full():
            self.counters.publish_dropped += len(receivers)
            return 0
        if receivers:
            self._broadcast_queue.put_nowait((message, receivers))
        return len(receivers)

    def _receivers(self, message: Message) -> list[tuple[Session, int]]:
        return [
            (session, min(qos, message.qos))
            for topic_filter, held in self._subscriptions.items()
            if self._matches(message.topic, topic_filter)
            for session, qos in held
            if rights_of(session).may_read(message.topic)
        ]

    async def _run_broadcast(self, _: deque[Any]) -> None:
        message, receivers = await self._broadcast_queue.get()
        # An established subscription gets the message without RETAIN, however it was published [MQTT-3.3.1-9].
        outgoing = ApplicationMessage(None, message.topic, message.qos, message.payload, False)
        for session, qos in receivers:
            try:
                if await self._topic_filtering(session, message.topic, Action.RECEIVE):
                    self._sender.deliver(session, self._get_handler(session), outgoing, qos)
            except Exception as error:  # noqa: BLE001  # A plugin can raise anything; the other receivers still get it.
                self.counters.publish_dropped += 1
                log.error("unhandled error in a plugin while delivering a message", error=str(error))

    async def _publish_session_retained_messages(self, session: Session) -> None:
        """Send the queue of a client that has connected; later messages then go to it directly."""
        handler, waiting = self._get_handler(session), session.retained_messages
        while not waiting.empty():
            message = waiting.get_nowait()
            # The rights may have changed while the message was queued.
            if await self._topic_filtering(session, message.topic, Action.RECEIVE):
                self._sender.send(session, handler, message, message.qos)
        session.attributes[READY] = True

    async def retain_message(
        self, source_session: Session | None, topic_name: str, data: bytes | bytearray, qos: int | None = None
    ) -> None:
        if data and topic_name not in self._retained_messages and self._is_full():
            self.counters.not_retained += 1
            return
        await super().retain_message(source_session, topic_name, data, qos)

    def retain(self, message: Message) -> bool:
        """Store a retained message of the cluster without delivering it. False at the bound."""
        # An empty payload removes the retained message [MQTT-3.3.1-10].
        if not message.payload:
            self._retained_messages.pop(message.topic, None)
            return True
        if message.topic not in self._retained_messages and self._is_full():
            return False
        kept = RetainedApplicationMessage(None, message.topic, message.payload, message.qos)
        self._retained_messages[message.topic] = kept
        return True

    def _is_full(self) -> bool:
        return len(self._retained_messages) >= self.limits.max_retained


def _settle(in_force: asyncio.Future[Reason], reason: Reason) -> None:
    if not in_force.done():
        in_force.set_result(reason)


def _is_filter(topic_filter: str) -> bool:
    try:
        check_filter(topic_filter)
    except PacketError:
        return False
    return True
