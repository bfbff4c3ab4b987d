"""Messages that wait for a client: bounded by number and bytes, without those that have expired."""

from __future__ import annotations

from collections import deque
from math import inf

from ringmq.mqtt_front.message import Message


class Delivery:
    """One message for one client, with what this client is told about it."""

    __slots__ = ("ids", "message", "packet_id", "qos", "received", "retain")

    def __init__(self, message: Message, qos: int, retain: bool, ids: tuple[int, ...]) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.ids = ids
        self.packet_id = 0
        self.received = False
        """QoS 2: the client has it, and is to be told that the identifier is free again."""


class MessageQueue(deque[Delivery]):
    """The queue of one session, the oldest first. Only `append` and `popleft` change it, and `take_expired`."""

    def __init__(self) -> None:
        super().__init__()
        self.payload_bytes = 0
        self.expiry = inf
        """Before this, nothing here expires."""

    def append(self, delivery: Delivery) -> None:
        super().append(delivery)
        message = delivery.message
        self.payload_bytes += len(message.payload)
        if message.expires_at is not None and message.expires_at < self.expiry:
            self.expiry = message.expires_at

    def popleft(self) -> Delivery:
        delivery = super().popleft()
        self.payload_bytes -= len(delivery.message.payload)
        return delivery

    def has_room_for(self, message: Message, most: int, most_bytes: int) -> bool:
        """Within these bounds. A single message is never too large: larger ones were not let in."""
        size = self.payload_bytes + len(message.payload)
        return len(self) < most and (size <= most_bytes or not self)

    def take_expired(self, now: float) -> list[Delivery]:
        """Take out what has expired; gives it."""
        if now < self.expiry:
            return []
        everything = list(self)
        self.clear()
        self.payload_bytes, self.expiry = 0, inf
        expired = []
        for delivery in everything:
            if delivery.message.expired(now):
                expired.append(delivery)
            else:
                self.append(delivery)
        return expired
