"""The session state of a client (5.0 §4.1): publications that are not complete, and QoS 2 messages not yet released.

It outlives connections: pass it to the next one. Knows nothing of bytes.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import Final

from ringmq.mqtt_front.codec.packets import NO_PROPERTIES, Buffer, Properties
from ringmq.mqtt_front.errors import CallError

MAX_PACKET_ID: Final = 65_535
DEFAULT_MAX_WAITING: Final = 10_000
"""Publications that wait until the server takes further ones. A user who publishes faster must be told, or the list
grows without end."""


class PublicationPhase(Enum):
    """What the server has of a publication."""

    WAITING = auto()
    """It was never sent."""
    SENT = auto()
    """Sent, perhaps on an earlier connection, and not acknowledged."""
    RELEASED = auto()
    """Only for QoS 2: the server has it (PUBREC), and was told to forget its id (PUBREL)."""
    COMPLETE = auto()


class Publication:
    """A message that is published with QoS 1 or 2. `key` is free for the user."""

    __slots__ = ("key", "packet_id", "payload", "phase", "properties", "qos", "retain", "topic")

    def __init__(
        self, topic: str, payload: Buffer, qos: int, retain: bool = False, properties: Properties = NO_PROPERTIES
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.packet_id = 0
        """Not 0 once it was sent."""
        self.phase = PublicationPhase.WAITING
        self.key: object = None

    def __repr__(self) -> str:
        return f"Publication({self.topic!r}, qos={self.qos}, packet_id={self.packet_id}, {self.phase.name})"


class SessionState:
    """One per session; connections change it, one after the other."""

    def __init__(self, max_waiting: int = DEFAULT_MAX_WAITING) -> None:
        self.max_waiting = max_waiting
        self.sent: dict[int, Publication] = {}
        """By packet id, in the order of their first PUBLISH."""
        self.waiting: deque[Publication] = deque()
        self.received: set[int] = set()
        """Packet ids of QoS 2 messages that arrived and were not released: they are not delivered again."""
        self.requested: set[int] = set()
        """Packet ids of SUBSCRIBE and UNSUBSCRIBE packets without an answer, of the current connection."""
        self._last_id = 0

    @property
    def pending(self) -> int:
        """Publications that are not complete."""
        return len(self.sent) + len(self.waiting)

    def add(self, publication: Publication) -> None:
        """Raises CallError if too many wait."""
        if len(self.waiting) >= self.max_waiting:
            raise CallError(f"at most {self.max_waiting} publications may wait for the server, got one more")
        self.waiting.append(publication)

    def free_id(self) -> int:
        """A packet id that is not in use. Raises CallError if all are."""
        for _ in range(MAX_PACKET_ID):
            self._last_id = self._last_id % MAX_PACKET_ID + 1
            if self._last_id not in self.sent and self._last_id not in self.requested:
                return self._last_id
        raise CallError(f"all {MAX_PACKET_ID} packet ids are in use: wait for acknowledgements")

    def has_free_id(self) -> bool:
        return len(self.sent) + len(self.requested) < MAX_PACKET_ID

    def complete(self, publication: Publication) -> None:
        """Forget it."""
        self.sent.pop(publication.packet_id, None)
        publication.phase = PublicationPhase.COMPLETE

    def discard(self) -> tuple[Publication, ...]:
        """Forget what the server has forgotten: returns the publications that were sent. Waiting ones stay."""
        lost = tuple(self.sent.values())
        for publication in lost:
            self.complete(publication)
        self.received.clear()
        return lost
