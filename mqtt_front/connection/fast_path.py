"""The fast path: messages whose bytes go into outboxes as they came, and acknowledgements that nothing waits for.

All else takes the general path, which has the same outcome: `Handlers.handle` for packets of clients here,
`Broker.distribute_unshared` for messages from other peers. Five conditions lead to the fast path, each decided in one
place:

| of | condition | decided by |
|---|---|---|
| the sender | its session has all rights, so no access rule has to be checked | `Reader._run` |
| the packet | PUBLISH with QoS 0 or 1, without DUP, RETAIN and properties, or PUBACK | `Reader._run`, `FastPath` |
| the topic | no receiver wants anything special, and no shared subscription is served here | `Plan.fast` |
| the receiver | takes packets of any size, uses no topic aliases, and reads | `Writer.fast` |
| its session | with QoS 1: nothing queued, no journal, room for one more in flight | `Session.deliver_fast` |

A receiver that fails its own condition gets the message on the general path, beside the others. Outboxes belong to the
writers. With QoS 0 they are filled here, past `Writer.send`, as one more call for each receiver would be the largest
part of a delivery.
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


class FastPath:
    """The fast path of packets from one client.

    Each method returns the price of the packet in the budget of the iteration. A negative number says that the packet
    takes the general path: then nothing has been done with it.
    """

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
        # An empty topic without properties is an error, and topics of the server are refused: both on the general path.
        if after == start + 2 or data[start + 2] == DOLLAR:
            return -1
        topic = data[start + 2 : after]
        try:
            name = broker.topic_names[topic]
            plan = broker.plan(name)
        except PacketError:
            # No topic name. The general path raises the same error, and counts the packet first.
            return -1
        if not plan.fast:
            return -1
        counters = broker.counters
        counters.publish_received += 1
        counters.messages_received += 1
        same = data[at:end]
        other: bytes | None = None
        dirty = broker.dirty
        sent = 0
        for session in plan.sessions:
            writer = session.writer
            if writer is None:
                continue
            if not writer.fast:
                session.deliver(Message(name, bytes(data[after + v5 : end])), 0, False, ())
                continue
            if writer.v5 == v5:
                # The bytes of the packet serve all receivers of its version: nothing is encoded or copied for them.
                writer.out.append(same)
            else:
                if other is None:
                    version = Version.V311 if v5 else Version.V5
                    other = encode_publish(version, topic, data[after + v5 : end])
                writer.out.append(other)
            sent += 1
            if not writer.dirty:
                writer.dirty = True
                dirty.append(writer)
        counters.publish_sent += sent
        counters.messages_sent += sent
        if not broker.alone:
            broker.cluster.published_fast(name, data[after + v5 : end], len(plan.sessions))
        return len(plan.sessions) * (end - at + DELIVERY_BYTES) + plan.cost

    def publish_1(self, data: bytes, at: int, start: int, end: int) -> int:
        """A PUBLISH with QoS 1, to receivers that have subscribed with no less."""
        broker, writer, handlers = self._broker, self._writer, self._handlers
        v5, session = writer.v5, handlers.session
        id_at = start + 2 + (data[start] << 8 | data[start + 1]) if end - start > 4 else end
        begin = id_at + 2 + v5
        if begin > end or (v5 and data[begin - 1]) or id_at == start + 2 or data[start + 2] == DOLLAR:
            return -1
        packet_id = data[id_at : id_at + 2]
        # 0 is not a packet identifier [MQTT-2.2.1-3]. Unreleased messages count towards the receive maximum, which
        # `expect` checks, and a peer that is alone does not call it below.
        if packet_id == NO_ID or handlers.unreleased or session is None:
            return -1
        try:
            name = broker.topic_names[data[start + 2 : id_at]]
            plan = broker.plan(name)
        except PacketError:
            return -1
        # A packet with QoS 0 has no packet identifier [MQTT-2.2.1-2], so such a receiver needs other bytes.
        if not plan.fast or not plan.least_qos:
            return -1
        counters = broker.counters
        counters.publish_received += 1
        counters.messages_received += 1
        number = int.from_bytes(packet_id, "big")
        # Alone, the message is delivered when this returns, so the PUBACK needs no entry among the unanswered ones.
        done = None if broker.alone else handlers.when_done(session, handlers.expect(1, number))
        message = Message(name, data[begin:end], 1, False, b"", None, session.client_id)
        head, tail = data[at:id_at], data[id_at + 2 : end]
        for receiver in plan.sessions:
            if not receiver.deliver_fast(message, head, tail, v5):
                broker.deliver(receiver, message, 1, False, ())
        if done is not None:
            broker.cluster.published(message, len(plan.sessions), done)
        elif plan.sessions or not v5:
            writer.send(PUBACK_HEAD + packet_id)
        else:
            writer.send(encode_ack(Kind.PUBACK, writer.version, number, Reason.NO_MATCHING_SUBSCRIBERS))
        return len(plan.sessions) * (end - at + DELIVERY_BYTES) + PACKET_BYTES + plan.cost

    def puback(self, data: bytes, start: int) -> int:
        """A PUBACK, which needs no rights."""
        session = self._handlers.session
        if session is None or self._handlers.replay is not None:
            # The acknowledgement may make room for retained messages, which the general path then sends.
            return -1
        if not session.acknowledged_fast(data[start] << 8 | data[start + 1]):
            return -1
        self._broker.counters.messages_received += 1
        return PACKET_BYTES


def distribute_fast(broker: Broker, topic: bytes, payload: bytes) -> int:
    """Deliver a message from another peer to the subscribers here, without shared subscriptions; returns their number.

    The message has QoS 0, no properties, and is not retained. Raises PacketError if `topic` is no topic name.
    """
    name = broker.topic_names[topic]
    plan = broker.plan(name)
    if plan.special:
        return broker.distribute_unshared(Message(name, payload))
    packets: dict[bool, bytes] = {}
    sent = 0
    for session in plan.sessions:
        writer = session.writer
        if writer is None:
            continue
        if not writer.fast:
            session.deliver(Message(name, payload), 0, False, ())
            continue
        packet = packets.get(writer.v5)
        if packet is None:
            version = Version.V5 if writer.v5 else Version.V311
            packet = packets[writer.v5] = encode_publish(version, topic, payload)
        writer.out.append(packet)
        sent += 1
        if not writer.dirty:
            writer.dirty = True
            broker.dirty.append(writer)
    broker.counters.publish_sent += sent
    broker.counters.messages_sent += sent
    return len(plan.sessions)
