"""The queue of a session that goes from one front to another.

While a session moves, both fronts take messages for it, as publishers hear of its new place one after the other. So
each message that comes meanwhile is kept with its origin, by which the new front knows it again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import chain

from ringmq.mqtt_front.message import Message
from ringmq.mqtt_front.sessions.moving_session import Carried, Origin
from ringmq.mqtt_front.sessions.queue import Delivery, MessageQueue


class MovingQueue(MessageQueue):
    """`append` queues what comes here; `arrive`, what comes from the other front. While that front has more, nothing
    that has come here counts for its length, so that no message overtakes an earlier one."""

    def __init__(self, origin_of: Callable[[Message], Origin], earlier: MessageQueue | None = None) -> None:
        """`origin_of` gives the origin of a message that comes here now. With `earlier`, these messages wait, and no
        other front has any."""
        super().__init__()
        self._origin_of = origin_of
        self._origins: dict[Delivery, Origin] = {}
        self._behind: MessageQueue | None = MessageQueue() if earlier is None else None
        """What has come here while another front has more."""
        while earlier:
            super().append(earlier.popleft())

    def __bool__(self) -> bool:
        """While another front has more, nothing may pass this queue, even if nothing has come."""
        return self._behind is not None or len(self) > 0

    def __iter__(self) -> Iterator[Delivery]:
        return chain(super().__iter__(), self._behind or ())

    def append(self, delivery: Delivery) -> None:
        self._origins[delivery] = self._origin_of(delivery.message)
        if self._behind is None:
            super().append(delivery)
        else:
            self._behind.append(delivery)

    def arrive(self, delivery: Delivery, origin: Origin | None) -> None:
        super().append(delivery)
        if origin is not None:
            self._origins[delivery] = origin

    def take(self) -> Carried:
        """The next message that may be sent, with its origin if it came since the session began to move."""
        delivery = self.popleft()
        return delivery, self._origins.pop(delivery, None)

    def drop_known(self, known: Container[tuple[Origin, str]]) -> list[Delivery]:
        """Drop what has come here and is known from the other front; returns that."""
        if self._behind is None:
            return []
        behind, self._behind, dropped = self._behind, MessageQueue(), []
        for delivery in behind:
            if (self._origins[delivery], delivery.message.topic) in known:
                dropped.append(delivery)
            else:
                self._behind.append(delivery)
        return dropped

    def release(self) -> None:
        """The other front has nothing more: what has come here is next."""
        behind, self._behind = self._behind, None
        while behind:
            super().append(behind.popleft())

    def settled(self) -> MessageQueue:
        """All that waits, as the queue of a session that moves no more."""
        queue = MessageQueue()
        for delivery in self:
            queue.append(delivery)
        return queue

    def has_room_for(self, message: Message, most: int, most_bytes: int) -> bool:
        behind = self._behind or ()
        count = len(self) + len(behind)
        size = self.payload_bytes + len(message.payload)
        size += self._behind.payload_bytes if self._behind is not None else 0
        return count < most and (size <= most_bytes or not count)

    def take_expired(self, now: float) -> list[Delivery]:
        """None: messages that have expired are left out when they are sent."""
        return []
