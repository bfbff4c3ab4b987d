"""The encodings of one message, shared by all who receive it with the same version, QoS and retain flag."""

from __future__ import annotations

from ringmq.logger.recorder import is_of_the_log
from ringmq.mqtt_front.codec.encode import encode_publish, encode_publish_parts
from ringmq.mqtt_front.codec.packets import Version
from ringmq.mqtt_front.message import Message


class Encoded:
    """Made when first wanted; a broker keeps that of the message it is giving out."""

    __slots__ = ("_parts", "_topic", "_whole", "message", "of_the_log")

    def __init__(self, message: Message) -> None:
        self.message = message
        self.of_the_log = is_of_the_log(message.topic)
        """Such messages are counted apart."""
        self._topic = message.topic.encode()
        self._whole: dict[tuple[Version, bool], bytes] = {}
        self._parts: dict[tuple[Version, int, bool], tuple[bytes, bytes]] = {}

    def whole(self, version: Version, retain: bool) -> bytes:
        """With QoS 0."""
        packet = self._whole.get((version, retain))
        if packet is None:
            message = self.message
            packet = self._whole[version, retain] = encode_publish(
                version, self._topic, message.payload, 0, retain, properties=message.properties
            )
        return packet

    def parts(self, version: Version, qos: int, retain: bool) -> tuple[bytes, bytes]:
        """What comes before and after the packet identifier."""
        parts = self._parts.get((version, qos, retain))
        if parts is None:
            message = self.message
            parts = self._parts[version, qos, retain] = encode_publish_parts(
                version, self._topic, message.payload, qos, retain, False, message.properties
            )
        return parts
