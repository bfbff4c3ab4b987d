"""Publishers, subscribers and servers of a benchmark, and its packets of one size. Knows no socket and no server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from ringmq.mqtt_front.codec.codec import encode, encode_publish
from ringmq.mqtt_front.codec.packets import Connect, Subscribe, Subscription, Version

PAYLOAD_BYTES: Final = 32
"""Size of a payload in the paper (§6.1)."""
PACKET_IDS: Final = 1000
"""Packet ids that a publisher uses in rotation. It must never have more unacknowledged messages."""
PACKETS_BYTES: Final = 1 << 28
"""Memory for the packets of all publishers with QoS 1 or 2. Large payloads get fewer packet ids to stay below it."""
LEAST_PACKET_IDS: Final = 4

At = Callable[[int, int], int]
"""Maps the number of a topic and the number of a client of this topic to the number of the client's server."""


def _first(topic: int, client: int) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class Pattern:
    """Topics with their publishers and subscribers, at one server or distributed over several."""

    name: str
    topics: int
    publishers: int
    """Publishers of each topic."""
    subscribers: int
    """Subscribers of each topic: the sp-ratio of §5.3, since all topics are equal."""
    qos: int
    servers: int = 1
    publisher_at: At = _first
    subscriber_at: At = _first
    prober_at: int = 0
    probed: tuple[int, ...] = (0,)
    """Servers with subscribers that measure the latency of publications at `prober_at`."""
    payload_bytes: int = PAYLOAD_BYTES

    @property
    def sp_ratio(self) -> int:
        return self.subscribers

    @property
    def all_publishers(self) -> int:
        return self.topics * self.publishers

    def topic(self, number: int) -> str:
        return f"bench/{number:02d}"

    def packets(self, topic: int) -> list[bytes]:
        """Packets that a publisher of the topic sends, in rotation."""
        name = self.topic(topic).encode()
        ids = range(1, self.packet_ids + 1) if self.qos else range(1)
        return [encode_publish(Version.V311, name, bytes(self.payload_bytes), self.qos, packet_id=i) for i in ids]

    @property
    def packet_ids(self) -> int:
        """The number of packet ids that a publisher with QoS 1 or 2 uses in rotation."""
        fitting = PACKETS_BYTES // (self.all_publishers * max(1, self.payload_bytes))
        return max(LEAST_PACKET_IDS, min(PACKET_IDS, fitting))

    @property
    def packet_bytes(self) -> int:
        """The size of every PUBLISH, from a publisher and to a subscriber."""
        return len(
            encode_publish(Version.V311, self.topic(0).encode(), bytes(self.payload_bytes), self.qos, packet_id=1)
        )

    def varied(self, qos: int | None, payload_bytes: int | None) -> Pattern:
        """The same clients with the given QoS and size of payloads, which also change the name."""
        qos = self.qos if qos is None else qos
        payload_bytes = self.payload_bytes if payload_bytes is None else payload_bytes
        name = self.name
        if qos != self.qos:
            name = f"qos{qos}-{name.removeprefix(f'qos{self.qos}-')}"
        if payload_bytes != self.payload_bytes:
            name = f"{name}-{payload_bytes}B"
        return replace(self, name=name, qos=qos, payload_bytes=payload_bytes)


PATTERNS: Final = {
    pattern.name: pattern
    for pattern in (
        Pattern("qos0-1to10", topics=5, publishers=10, subscribers=10, qos=0),
        Pattern("qos0-1to1", topics=50, publishers=1, subscribers=1, qos=0),
        Pattern("qos1-1to1", topics=50, publishers=1, subscribers=1, qos=1),
    )
}


def chosen(
    patterns: Mapping[str, Pattern], names: Iterable[str], qos: int | None, payload_bytes: int | None
) -> list[Pattern]:
    """The patterns of these names, varied. Patterns that become equal appear once."""
    varied = (patterns[name].varied(qos, payload_bytes) for name in names)
    return list({pattern.name: pattern for pattern in varied}.values())


def _second(topic: int, client: int) -> int:
    return 1


def _everywhere(topic: int, client: int) -> int:
    """No locality: two clients of every topic at each of five servers."""
    return client // 2


def _at_home(topic: int, client: int) -> int:
    """High locality: each of five servers has its own topic."""
    return topic


def _mostly_at_home(topic: int, client: int) -> int:
    """Low locality: eight clients of a topic at one server, and one client at each of two others."""
    return topic if client < 8 else (topic + client - 7) % 5


def _across(name: str, topics: int, clients: int) -> Pattern:
    """A pattern with all publishers at one of two servers, and all subscribers at the other."""
    return Pattern(name, topics, clients, clients, 0, servers=2, subscriber_at=_second, probed=(1,))


def _cooperation(name: str, at: At) -> Pattern:
    """A pattern of five servers (§6.4 of the paper). Each measures the latency of publications at the last."""
    five = tuple(range(5))
    return Pattern(name, 5, 10, 10, 0, len(five), publisher_at=at, subscriber_at=at, prober_at=4, probed=five)


RING_PATTERNS: Final = {
    pattern.name: pattern
    for pattern in (
        Pattern("one-A", 5, 10, 10, 0),
        _across("two-1to10", topics=5, clients=10),
        _across("two-1to1", topics=50, clients=1),
        _cooperation("five-B", _everywhere),
        _cooperation("five-C", _at_home),
        _cooperation("five-D", _mostly_at_home),
    )
}
"""Pattern A of the paper has one broker with the software that joins brokers: here it is a ring of one peer."""


def connect_packet(client_id: str) -> bytes:
    return encode(Version.V311, Connect(Version.V311, client_id, clean_start=True, keep_alive_s=0))


def subscribe_packet(*filters: str, qos: int = 0) -> bytes:
    return encode(Version.V311, Subscribe(1, tuple(Subscription(name, qos) for name in filters)))
