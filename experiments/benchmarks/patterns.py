"""Who publishes to whom in a benchmark, and the packets of it, all of one size. Knows no socket and no server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mqtt_front.codec import encode, encode_publish
from mqtt_front.packets import Connect, Subscribe, Subscription, Version

PAYLOAD_BYTES: Final = 32
"""As in the paper (§6.1)."""
PACKET_IDS: Final = 1000
"""A publisher uses so many packet ids in turn, so it may never have more unacknowledged."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """So many topics, each with its publishers and subscribers."""

    name: str
    topics: int
    publishers: int
    """Of each topic."""
    subscribers: int
    """Of each topic; the sp-ratio of §5.3, since all topics are alike."""
    qos: int

    @property
    def sp_ratio(self) -> int:
        return self.subscribers

    @property
    def all_publishers(self) -> int:
        return self.topics * self.publishers

    def topic(self, number: int) -> str:
        return f"bench/{number:02d}"

    def packets(self, topic: int) -> list[bytes]:
        """What one publisher of the topic sends, in turn."""
        name = self.topic(topic).encode()
        ids = range(1, PACKET_IDS + 1) if self.qos else range(1)
        return [encode_publish(Version.V311, name, bytes(PAYLOAD_BYTES), self.qos, packet_id=i) for i in ids]

    @property
    def packet_bytes(self) -> int:
        """The size of every PUBLISH, from a publisher and to a subscriber."""
        return len(self.packets(0)[0])


PATTERNS: Final = {
    pattern.name: pattern
    for pattern in (
        Pattern("qos0-1to10", topics=5, publishers=10, subscribers=10, qos=0),
        Pattern("qos0-1to1", topics=50, publishers=1, subscribers=1, qos=0),
        Pattern("qos1-1to1", topics=50, publishers=1, subscribers=1, qos=1),
    )
}


def connect_packet(client_id: str) -> bytes:
    return encode(Version.V311, Connect(Version.V311, client_id, clean_start=True, keep_alive_s=0))


def subscribe_packet(*filters: str, qos: int = 0) -> bytes:
    return encode(Version.V311, Subscribe(1, tuple(Subscription(one, qos) for one in filters)))
