"""The short way of what clients send most: plain publications, and acknowledgements that nothing waits for.

Plain is what is not retained and has no properties. It goes as it came into the outboxes of receivers that want nothing
special. Each way says at once if a packet is not for it: then it has done nothing, and `Handlers.handle` is the way.
"""

from __future__ import annotations

from typing import Final

from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.codec.encode import encode_ack, encode_publish
from ringmq.mqtt_front.codec.packets import Kind, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.connection.budget import DELIVERY_BYTES, PACKET_BYTES
from ringmq.mqtt_front.connection.handlers import Handlers
from ringmq.mqtt_front.connection.writer import Writer
from ringmq.mqtt_front.errors import PacketError
from ringmq.mqtt_front.message import Message

PUBACK_HEAD: Final = b"\x40\x02"
NO_ID: Final = bytes(2)
DOLLAR: Final = ord("$")
"""Topics that begin with it are the server's."""


class ShortWay:
    """The ways give what they take of the turn, or a negative number. Only for clients with all rights."""

    __slots__ = ("_broker", "_handlers", "_writer")

    def __init__(self, broker: Broker, handlers: Handlers, writer: Writer) -> None:
        self._broker = broker
        self._handlers = handlers
        self._writer = writer

    def publish_0(self, data: bytes, at: int, start: int, end: int) -> int:
        """A PUBLISH with QoS 0."""
        broker = self._broker
        after = start + 2 + (data[start] << 8 | data[start + 1]) if end - start > 2 else end + 1
        v5 = self._writer.v5
        if after > end or (v5 and (after == end or data[after])):
            return -1
        if after == start + 2 or data[start + 2] == DOLLAR:
            return -1
        topic = data[start + 2 : after]
        try:
            plan = broker.plan(topic)
        except PacketError:
            return -1
        if plan.slow or (plan.groups and not broker.cluster.serves_groups):
            return -1
        counters = broker.counters
        counters.publish_received += 1
        counters.messages_received += 1
        same = data[at:end]
        other: bytes | None = None
        dirty = broker.dirty
        sent = 0
        for session in plan.quick:
            line = session.line
            if line is None:
                continue
            if not line.plain:
                session.deliver(Message(plan.topic, bytes(data[after + v5 : end])), 0, False, ())
                continue
            if line.v5 == v5:
                line.out.append(same)
            else:
                if other is None:
                    version = Version.V311 if v5 else Version.V5
                    other = encode_publish(version, topic, data[after + v5 : end])
                line.out.append(other)
            sent += 1
            if not line.dirty:
                line.dirty = True
                dirty.append(line)
        counters.publish_sent += sent
        counters.messages_sent += sent
        if not broker.alone:
            broker.cluster.plain_published(plan.topic, data[after + v5 : end], len(plan.quick))
        return len(plan.quick) * (end - at + DELIVERY_BYTES) + plan.cost

    def publish_1(self, data: bytes, at: int, start: int, end: int) -> int:
        """A PUBLISH with QoS 1, to receivers that have subscribed with no less."""
        broker, writer, handlers = self._broker, self._writer, self._handlers
        v5, session = writer.v5, handlers.session
        id_at = start + 2 + (data[start] << 8 | data[start + 1]) if end - start > 4 else end
        begin = id_at + 2 + v5
        if begin > end or (v5 and data[begin - 1]) or id_at == start + 2 or data[start + 2] == DOLLAR:
            return -1
        packet_id = data[id_at : id_at + 2]
        if packet_id == NO_ID or handlers.unreleased or session is None:
            return -1
        try:
            plan = broker.plan(data[start + 2 : id_at])
        except PacketError:
            return -1
        if plan.slow or not plan.least_qos or (plan.groups and not broker.cluster.serves_groups):
            return -1
        counters = broker.counters
        counters.publish_received += 1
        counters.messages_received += 1
        number = int.from_bytes(packet_id, "big")
        done = None if broker.alone else handlers.when_done(session, handlers.expect(1, number))
        message = Message(plan.topic, data[begin:end], 1, False, b"", None, session.client_id)
        head, tail = data[at:id_at], data[id_at + 2 : end]
        for receiver in plan.quick:
            if not receiver.deliver_plain(message, head, tail, v5):
                broker.deliver(receiver, message, 1, False, ())
        if done is not None:
            broker.cluster.published(message, len(plan.quick), done)
        elif plan.quick or not v5:
            writer.send(PUBACK_HEAD + packet_id)
        else:
            writer.send(encode_ack(Kind.PUBACK, writer.version, number, Reason.NO_MATCHING_SUBSCRIBERS))
        return len(plan.quick) * (end - at + DELIVERY_BYTES) + PACKET_BYTES + plan.cost

    def puback(self, data: bytes, start: int) -> int:
        """A PUBACK. Whoever sends it, it needs no rights."""
        session = self._handlers.session
        if session is None or self._handlers.replay is not None:
            return -1
        if not session.acknowledged_plain(data[start] << 8 | data[start + 1]):
            return -1
        self._broker.counters.messages_received += 1
        return PACKET_BYTES
