"""The half of a connection that faces its client: how messages and acknowledgements become bytes in its outbox.

A message is encoded once for all receivers of the same version and QoS that want nothing special. Owns topic aliases
towards the client and the limits that it set. When the bytes leave is the shell's business.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.codec.encode import encode_ack, encode_publish
from ringmq.mqtt_front.codec.packets import Kind, Version
from ringmq.mqtt_front.codec.properties import delivery_properties
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.connection.encoded import Encoded
from ringmq.mqtt_front.sessions.queue import Delivery

ENDLESS: Final = 1 << 62


class Outgoing(ABC):
    """Bytes for one client. `out` is emptied by the shell; `plain` says that ready packets may be put into it."""

    __slots__ = (
        "_aliases",
        "_aliases_left",
        "_blocked",
        "_full_bytes",
        "_gathered_bytes",
        "_inflight_limit",
        "_packet_limit",
        "broker",
        "closing",
        "dirty",
        "out",
        "plain",
        "starved",
        "v5",
        "version",
    )

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.version = Version.V311
        self.v5 = False
        self.out: list[bytes] = []
        self.dirty = False
        self.closing = False
        """Close once `out` is sent."""
        self.plain = False
        self.starved = False
        """There is more to be done than goes into one turn: call `go_on` when `out` has been emptied."""
        self._blocked = False
        self._full_bytes = broker.config.max_buffer_bytes // 2
        """What one turn may gather: half of what may wait for the client at all."""
        self._gathered_bytes = 0
        self._aliases: dict[str, int] = {}
        self._aliases_left = 0
        self._packet_limit = ENDLESS
        self._inflight_limit = broker.config.max_inflight

    def face(self, version: Version, receive_maximum: int, packet_limit: int | None, aliases: int) -> None:
        """What the CONNECT says of the client."""
        self.version, self.v5 = version, version is Version.V5
        self._inflight_limit = min(self.broker.config.max_inflight, receive_maximum)
        self._packet_limit = packet_limit or ENDLESS
        self._aliases_left = min(aliases, self.broker.config.topic_alias_maximum)
        self._see_whether_plain()

    def _see_whether_plain(self) -> None:
        simple = self._packet_limit == ENDLESS and not self._aliases_left and not self._aliases
        self.plain = simple and not self._blocked and not self.closing

    def send(self, data: bytes) -> None:
        """Nothing follows the end of the connection, nor is the client sent more at a time than it takes."""
        if self.closing:
            return
        if not self._takes(data):  # [MQTT-3.1.2-24]
            self.fail(Reason.PACKET_TOO_LARGE, "an answer is larger than the client takes")
            return
        self.broker.counters.messages_sent += 1
        self.out.append(data)
        self.wake()

    def _takes(self, packet: bytes) -> bool:
        return len(packet) <= self._packet_limit

    def wake(self) -> None:
        """Have the shell look at this connection at the end of its turn."""
        if not self.dirty:
            self.dirty = True
            self.broker.dirty.append(self)

    @property
    def quota(self) -> int:
        """How many messages may be on their way to the client: none while it does not read."""
        if self._blocked or self.closing:
            return 0
        if self._gathered_bytes >= self._full_bytes and self.out:
            self.starved = True
            return 0
        return self._inflight_limit

    @property
    def reads(self) -> bool:
        return not self._blocked and not self.closing

    def block(self) -> None:
        """The client does not read: what may be dropped is, the rest waits in its session."""
        self._blocked = True
        self._see_whether_plain()

    def unblock(self) -> None:
        """It reads again; the session is to be pumped."""
        self._blocked = False
        self._see_whether_plain()

    @abstractmethod
    def fail(self, reason: Reason, text: str) -> None:
        """Close the connection, telling the client why where its version can."""

    def acknowledge(self, kind: Kind, packet_id: int) -> None:
        self.send(encode_ack(kind, self.version, packet_id))

    def publish(self, delivery: Delivery, dup: bool) -> bool:
        """Put a message into the outbox. False: dropped, since the client does not read or cannot take its size."""
        if self.closing:
            return False
        if not self.out:
            self._gathered_bytes = 0
        if not delivery.qos and (self._blocked or self._gathered_bytes >= self._full_bytes):
            self.broker.counters.dropped(delivery.message.topic)
            return False
        message = delivery.message
        special = delivery.ids or message.expires_at is not None or self._aliases_left or self._aliases
        if dup or (special and self.v5) or self._packet_limit != ENDLESS:
            return self._publish_specially(delivery, dup)
        encoded = self.broker.encoded
        if encoded is None or encoded.message is not message:
            encoded = self.broker.encoded = Encoded(message)
        if encoded.of_the_log:
            self.broker.counters.sent(message.topic, len(message.payload))
        else:
            self.broker.counters.publish_sent += 1
        if not delivery.qos:
            packet = encoded.whole(self.version, delivery.retain)
            self._gathered_bytes += len(packet)
            self.send(packet)
            return True
        head, tail = encoded.parts(self.version, delivery.qos, delivery.retain)
        self._gathered_bytes += len(head) + len(tail)
        self.out.append(head)
        self.out.append(delivery.packet_id.to_bytes(2, "big"))
        self.send(tail)
        return True

    def publish_plain(self, packet: bytes) -> None:
        """Put a ready PUBLISH with QoS 1 into the outbox, which must be `plain` and have a quota."""
        if not self.out:
            self._gathered_bytes = 0
        self._gathered_bytes += len(packet)
        counters = self.broker.counters
        counters.publish_sent += 1
        counters.messages_sent += 1
        self.out.append(packet)
        if not self.dirty:
            self.dirty = True
            self.broker.dirty.append(self)

    def _publish_specially(self, delivery: Delivery, dup: bool) -> bool:
        """With properties of this receiver's own, repeated, or for a client that does not take every size."""
        message = delivery.message
        topic, alias = self._alias_for(message.topic) if self.v5 else (message.topic, None)
        packet = self._encoded(delivery, dup, topic, alias)
        if len(packet) > self._packet_limit and alias is not None and topic:
            # Setting up the alias may be what was too much.
            del self._aliases[topic]
            self._aliases_left += 1
            packet = self._encoded(delivery, dup, topic, None)
        if len(packet) > self._packet_limit:
            return False
        self.broker.counters.sent(message.topic, len(message.payload))
        self._gathered_bytes += len(packet)
        self.send(packet)
        return True

    def _encoded(self, delivery: Delivery, dup: bool, topic: str, alias: int | None) -> bytes:
        message, section = delivery.message, b""
        if self.v5:
            section = delivery_properties(
                message.properties, message.remaining_s(self.broker.clock.now), delivery.ids, alias
            )
        return encode_publish(
            self.version,
            topic.encode(),
            message.payload,
            delivery.qos,
            delivery.retain,
            dup,
            delivery.packet_id,
            section,
        )

    def _alias_for(self, topic: str) -> tuple[str, int | None]:
        """The topic to be sent and its alias: the first time both, from then on the alias alone."""
        alias = self._aliases.get(topic)
        if alias is not None:
            return "", alias
        if not self._aliases_left:
            return topic, None
        self._aliases_left -= 1
        alias = self._aliases[topic] = len(self._aliases) + 1
        return topic, alias
