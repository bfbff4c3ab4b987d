"""The writer of a connection: encodes messages and acknowledgements, and gathers their bytes in the outbox.

Owns the outbox, the topic aliases towards the client, and the limits that the client has set. A message is encoded once
for all receivers of the same version and QoS that want nothing special. The shell decides when the bytes leave. Only
`mqtt_front.connection.fast_path` appends to an outbox beside the writer: a method call for each receiver of a small
message would cost more than the rest of its delivery.
"""

from __future__ import annotations

import weakref
from typing import Final, Protocol

from ringmq.logger.recorder import is_of_the_log
from ringmq.mqtt_front.broker import Broker
from ringmq.mqtt_front.codec.encode import encode_ack, encode_publish, encode_publish_parts
from ringmq.mqtt_front.codec.packets import Kind, Version
from ringmq.mqtt_front.codec.properties import delivery_properties
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.queue import Delivery

NO_LIMIT: Final = 1 << 62


class Encoded:
    """The encodings of one message, shared by all receivers with the same version, QoS and retain flag.

    Each is made when it is first wanted. The broker keeps the encodings of the message that it is delivering.
    """

    __slots__ = ("_parts", "_topic", "_whole", "message", "of_the_log")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.of_the_log = is_of_the_log(message.topic)
        """Whether the counters count it apart."""
        self._topic = message.topic.encode()
        self._whole: dict[tuple[Version, bool], bytes] = {}
        self._parts: dict[tuple[Version, int, bool], tuple[bytes, bytes]] = {}

    def whole(self, version: Version, retain: bool) -> bytes:
        """The packet with QoS 0."""
        packet = self._whole.get((version, retain))
        if packet is None:
            message = self.message
            packet = self._whole[version, retain] = encode_publish(
                version, self._topic, message.payload, 0, retain, properties=message.properties
            )
        return packet

    def parts(self, version: Version, qos: int, retain: bool) -> tuple[bytes, bytes]:
        """The bytes before and after the packet identifier."""
        parts = self._parts.get((version, qos, retain))
        if parts is None:
            message = self.message
            parts = self._parts[version, qos, retain] = encode_publish_parts(
                version, self._topic, message.payload, qos, retain, False, message.properties
            )
        return parts


class Owner(Protocol):
    """The connection, for its parts. They hold it weakly: it owns them, and in a cycle it would outlive its client
    until the next search for garbage, which a peer makes very seldom.
    """

    def fail(self, reason: Reason, text: str) -> None: ...
    def close(self, will: bool) -> None: ...


class Writer:
    """The writer of one connection. A session sends through it (`SessionWriter`); the shell empties it."""

    __slots__ = (
        "_aliases",
        "_aliases_left",
        "_blocked",
        "_broker",
        "_full_bytes",
        "_gathered_bytes",
        "_inflight_limit",
        "_owner",
        "_packet_limit",
        "closing",
        "dirty",
        "fast",
        "out",
        "starved",
        "v5",
        "version",
    )

    def __init__(self, broker: Broker, owner: weakref.ref[Owner]) -> None:
        self._broker = broker
        self._owner = owner
        self.version = Version.V311
        self.v5 = False
        """Whether `version` is 5.0: the comparison is made for every delivery."""
        self.out: list[bytes] = []
        """The outbox. Only the writer and the fast path change it."""
        self.dirty = False
        """Whether this writer is on the broker's list of writers that the shell must flush."""
        self.closing = False
        """The shell closes the socket once `out` is sent."""
        self.fast = False
        """Whether ready packets may be put into `out`."""
        self.starved = False
        """There is more to send than one iteration allows: the shell calls `Connection.go_on` once `out` is empty."""
        self._blocked = False
        self._full_bytes = broker.config.max_buffer_bytes // 2
        """Bytes that one iteration may gather: half of the bytes that may wait for the client at all."""
        self._gathered_bytes = 0
        self._aliases: dict[str, int] = {}
        self._aliases_left = 0
        self._packet_limit = NO_LIMIT
        self._inflight_limit = broker.config.max_inflight

    def speak(self, version: Version) -> None:
        """Encode for this version from now on."""
        self.version, self.v5 = version, version is Version.V5

    def face(self, receive_maximum: int, packet_limit: int | None, aliases: int) -> None:
        """Set the limits of the client's CONNECT."""
        config = self._broker.config
        # The server must not have more publications unacknowledged than the receive maximum [MQTT-3.3.4-9].
        self._inflight_limit = min(config.max_inflight, receive_maximum)
        self._packet_limit = packet_limit or NO_LIMIT
        self._aliases_left = min(aliases, config.topic_alias_maximum)
        self._update_fast()

    def _update_fast(self) -> None:
        simple = self._packet_limit == NO_LIMIT and not self._aliases_left and not self._aliases
        self.fast = simple and not self._blocked and not self.closing

    def block(self) -> None:
        """The client does not read: QoS 0 is dropped, everything else waits in its session."""
        self._blocked = True
        self._update_fast()

    def unblock(self) -> None:
        """The client reads again; the caller pumps the session."""
        self._blocked = False
        self._update_fast()

    def takes(self, packet: bytes) -> bool:
        """Whether the client accepts a packet of this size."""
        return len(packet) <= self._packet_limit

    @property
    def quota(self) -> int:
        """How many messages may be on their way to the client: none while it does not read."""
        if self._blocked or self.closing:
            return 0
        if self._gathered_bytes >= self._full_bytes and self.out:
            # The rest waits in the session, which keeps its bounds; the shell asks for more once this is sent.
            self.starved = True
            return 0
        return self._inflight_limit

    @property
    def reads(self) -> bool:
        return not self._blocked and not self.closing

    def fail(self, reason: Reason, text: str) -> None:
        """Close the connection, with the reason where the client's version allows it."""
        owner = self._owner()
        if owner is not None:
            owner.fail(reason, text)

    def close(self) -> None:
        """Accept no more bytes. The shell sends those in the outbox, then closes the socket."""
        self.closing = True
        self.fast = False
        # The shell closes the socket at the flush, which passes over writers that are not dirty.
        self.wake()

    def wake(self) -> None:
        """Have the shell look at this connection at the end of its iteration."""
        if not self.dirty:
            self.dirty = True
            self._broker.dirty.append(self)

    def starve(self) -> None:
        """Have the shell call `Connection.go_on` in the next iteration."""
        self.starved = True
        self.wake()

    def resume(self) -> None:
        """`Connection.go_on` sends the rest now."""
        self.starved = False

    def gathered(self) -> bytes:
        """The bytes of the outbox, which stay there: a write may fail."""
        out = self.out
        return out[0] if len(out) == 1 else b"".join(out)

    def clear(self) -> None:
        """The shell has taken the bytes of the outbox, and does not have to look at this connection again."""
        self.out.clear()
        self.dirty = False

    def discard(self) -> None:
        """The socket is gone: there is nobody to send the bytes to."""
        self.out.clear()

    def send(self, data: bytes) -> None:
        """Send a packet other than a PUBLISH. Closes the connection if the packet exceeds the client's limit."""
        if self.closing:
            return
        if not self.takes(data):  # [MQTT-3.1.2-24]
            self.fail(Reason.PACKET_TOO_LARGE, "an answer is larger than the client takes")
            return
        self._broker.counters.messages_sent += 1
        self.out.append(data)
        self.wake()

    def acknowledge(self, kind: Kind, packet_id: int) -> None:
        self.send(encode_ack(kind, self.version, packet_id))

    def publish(self, delivery: Delivery, dup: bool) -> bool:
        """Put a message into the outbox. False: dropped, since the client does not read or cannot take its size."""
        if self.closing:
            return False
        if not self.out:
            self._gathered_bytes = 0
        broker, message = self._broker, delivery.message
        # QoS 0 may be lost. If it were kept, the outbox of a client that does not read would grow without bound.
        if not delivery.qos and (self._blocked or self._gathered_bytes >= self._full_bytes):
            broker.counters.dropped(message.topic)
            return False
        # These properties cannot be shared: the remaining expiry changes with time [MQTT-3.3.2-6], subscription
        # identifiers differ between receivers, and an alias holds for one connection [MQTT-3.3.2-7].
        special = delivery.ids or message.expires_at is not None or self._aliases_left or self._aliases
        if dup or (special and self.v5) or self._packet_limit != NO_LIMIT:
            return self._publish_specially(delivery, dup)
        encoded = broker.encoded
        if encoded is None or encoded.message is not message:
            encoded = broker.encoded = Encoded(message)
        if encoded.of_the_log:
            broker.counters.sent(message.topic, len(message.payload))
        else:
            broker.counters.publish_sent += 1
        if not delivery.qos:
            packet = encoded.whole(self.version, delivery.retain)
            self._gathered_bytes += len(packet)
            self.send(packet)
            return True
        # Only the identifier belongs to this receiver; all receivers share the parts before and after it.
        head, tail = encoded.parts(self.version, delivery.qos, delivery.retain)
        self._gathered_bytes += len(head) + len(tail)
        self.out.append(head)
        self.out.append(delivery.packet_id.to_bytes(2, "big"))
        self.send(tail)
        return True

    def publish_fast(self, packet: bytes) -> None:
        """Put a ready PUBLISH with QoS 1 into the outbox, which must be `fast` and have a quota."""
        if not self.out:
            self._gathered_bytes = 0
        self._gathered_bytes += len(packet)
        broker = self._broker
        counters = broker.counters
        counters.publish_sent += 1
        counters.messages_sent += 1
        self.out.append(packet)
        if not self.dirty:
            self.dirty = True
            broker.dirty.append(self)

    def _publish_specially(self, delivery: Delivery, dup: bool) -> bool:
        """Send with properties of this receiver's own, repeated, or to a client with a limit to its packets."""
        message = delivery.message
        topic, alias = self._alias_for(message.topic) if self.v5 else (message.topic, None)
        packet = self._encoded(delivery, dup, topic, alias)
        if len(packet) > self._packet_limit and alias is not None and topic:
            # The property that sets up the alias may be what exceeds the limit.
            del self._aliases[topic]
            self._aliases_left += 1
            packet = self._encoded(delivery, dup, topic, None)
        if len(packet) > self._packet_limit:
            return False
        self._broker.counters.sent(message.topic, len(message.payload))
        self._gathered_bytes += len(packet)
        self.send(packet)
        return True

    def _encoded(self, delivery: Delivery, dup: bool, topic: str, alias: int | None) -> bytes:
        message, section = delivery.message, b""
        if self.v5:
            remaining_s = message.remaining_s(self._broker.clock.now)
            section = delivery_properties(message.properties, remaining_s, delivery.ids, alias)
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
        """The topic to send and its alias: both the first time, the alias alone from then on."""
        alias = self._aliases.get(topic)
        if alias is not None:
            return "", alias
        if not self._aliases_left:
            return topic, None
        self._aliases_left -= 1
        # Only the newest alias is ever taken back, so this number is free. 0 is not allowed [MQTT-3.3.2-8].
        alias = self._aliases[topic] = len(self._aliases) + 1
        return topic, alias
