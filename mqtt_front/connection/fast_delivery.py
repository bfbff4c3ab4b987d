"""Plain messages from elsewhere, on the short way: those of QoS 0, not retained, without properties."""

from __future__ import annotations

from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.codec.encode import encode_publish
from ringmq.mqtt_front.codec.packets import Version
from ringmq.mqtt_front.message import Message


def give_plain(broker: Broker, topic: bytes, payload: bytes) -> int:
    """Give one to the clients here that want it, without shared subscriptions; how many that are.

    Raises PacketError for what is no topic.
    """
    plan = broker.plan(topic)
    if plan.slow:
        return broker.distribute_plain(Message(plan.topic, payload))
    packets: dict[bool, bytes] = {}
    sent = 0
    for session in plan.quick:
        line = session.line
        if line is None:
            continue
        if not line.plain:
            session.deliver(Message(plan.topic, payload), 0, False, ())
            continue
        packet = packets.get(line.v5)
        if packet is None:
            version = Version.V5 if line.v5 else Version.V311
            packet = packets[line.v5] = encode_publish(version, topic, payload)
        line.out.append(packet)
        sent += 1
        if not line.dirty:
            line.dirty = True
            broker.dirty.append(line)
    broker.counters.publish_sent += sent
    broker.counters.messages_sent += sent
    return len(plan.quick)
