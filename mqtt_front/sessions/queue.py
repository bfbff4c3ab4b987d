"""The queue of messages for a client: bounded by number and bytes; expired messages make room."""

from __future__ import annotations

from collections import deque
from math import inf

from ringmq.mqtt_front.message import Message


class Delivery:
    """One message for one client, with the fields that differ between receivers."""

    __slots__ = ("ids", "message", "packet_id", "qos", "received", "retain")

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool,
        ids: tuple[int, ...],
        packet_id: int = 0,
        received: bool = False,
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.ids = ids
        self.packet_id = packet_id
        self.received = received
        """QoS 2: the client has the message; PUBREL has been sent, or must be repeated."""


class MessageQueue(deque[Delivery]):
    """The queue of one session, the oldest first. Only `append` and `popleft` change it, and `take_expired`."""

    def __init__(self) -> None:
        super().__init__()
        self.payload_bytes = 0
        self.expiry = inf
        """No message in the queue expires before this time."""

    def append(self, delivery: Delivery) -> None:
        super().append(delivery)
        message = delivery.message
        self.payload_bytes += len(message.payload)
        if message.expires_at is not None and message.expires_at < self.expiry:
            self.expiry = message.expires_at

    def popleft(self) -> Delivery:
        delivery = super().popleft()
        # `expiry` may be too early after this. The price is one vain `take_expired`, which corrects it.
        self.payload_bytes -= len(delivery.message.payload)
        return delivery

    def has_room_for(self, message: Message, most: int, most_bytes: int) -> bool:
        """Whether one more message keeps these bounds. A message alone always does: its packet was not too large."""
        size = self.payload_bytes + len(message.payload)
        return len(self) < most and (size <= most_bytes or not self)

    def take_expired(self, now: float) -> list[Delivery]:
        """Remove the expired messages and return them."""
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
