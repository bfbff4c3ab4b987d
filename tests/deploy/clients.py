"""MQTT clients that keep account: what each has sent, what was acknowledged, and what has come, each with its time.

They are driven by one `Traffic`, whose `until` is the only waiting there is.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final, TypeVar

import pytest

from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Packet,
    Properties,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from tests.deploy.hosts import Host

Result = TypeVar("Result")

QOS: Final = 1
EVERY_S: Final = 0.05
"""A publisher sends this often, acknowledged or not."""
KEPT_S: Final = 1000
"""How long a session outlives its connection, if it does."""
WITHIN_S: Final = 10.0
REFUSED: Final = 0x80
"""From here on reason codes say no."""


@dataclass(slots=True)
class Sent:
    """A message of one publisher; `number` counts them."""

    number: int
    at: float
    acknowledged_at: float = inf

    @property
    def is_acknowledged(self) -> bool:
        return self.acknowledged_at < inf


class Client:
    """One connection to the peer of a host, from a program on that host."""

    def __init__(self, host: Host, name: str, *, kept: bool = False) -> None:
        self.host = host
        self.name = name
        self.is_connected = False
        self.present = False
        """Whether the peer had a session of this client."""
        self._reader = PacketReader(1 << 20)
        self.socket = host.connect(host.address)
        properties = Properties(session_expiry_s=KEPT_S) if kept else Properties()
        self.send(Connect(Version.V5, name, not kept, 0, properties=properties))

    @property
    def is_ready(self) -> bool:
        return self.is_connected

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(Version.V5, packet))

    def read(self) -> None:
        """Take what has come; the socket has something."""
        data = self.socket.recv(65536)
        assert data, f"{self.name} was disconnected"
        for first, body in self._reader.feed(data):
            packet = decode(Version.V5, first, body)
            if isinstance(packet, Connack):
                assert packet.reason < REFUSED, packet
                self.is_connected, self.present = True, packet.session_present
            else:
                self.take(packet)

    def take(self, packet: Packet) -> None:
        raise AssertionError(f"{self.name} has no use for {packet}")

    def go_on(self, now: float) -> None:
        """Called again and again."""


class Publisher(Client):
    """Sends numbered messages to one topic at a steady pace, acknowledged or not, until it is told to stop."""

    def __init__(self, host: Host, name: str, topic: str) -> None:
        super().__init__(host, name)
        self.topic = topic
        self.sent: list[Sent] = []
        self.acknowledged = 0
        self.sends = True
        self._due = 0.0

    def go_on(self, now: float) -> None:
        if self.is_connected and self.sends and now >= self._due:
            self._due = now + EVERY_S
            number = len(self.sent)
            self.sent.append(Sent(number, now))
            # Numbers are identifiers too: no test sends as many as there are of these.
            self.send(Publish(self.topic, f"{self.name} {number}".encode(), QOS, packet_id=number + 1))

    def take(self, packet: Packet) -> None:
        assert isinstance(packet, Puback)
        assert packet.reason < REFUSED, packet
        self.sent[packet.packet_id - 1].acknowledged_at = time.monotonic()
        self.acknowledged += 1


class Retainer(Client):
    """Sets retained messages."""

    def __init__(self, host: Host, name: str) -> None:
        super().__init__(host, name)
        self.unacknowledged: set[int] = set()
        self._ids = 0

    def retain(self, topic: str, payload: bytes) -> None:
        self._ids += 1
        self.unacknowledged.add(self._ids)
        self.send(Publish(topic, payload, QOS, retain=True, packet_id=self._ids))

    def take(self, packet: Packet) -> None:
        assert isinstance(packet, Puback)
        assert packet.reason < REFUSED, packet
        self.unacknowledged.remove(packet.packet_id)


class Subscriber(Client):
    """Takes everything that its filter matches. With `since` it comes back to its session, subscribed since then."""

    def __init__(self, host: Host, name: str, topic_filter: str, *, kept: bool = False, since: float = 0.0) -> None:
        self.subscribed_at = since
        self.retained: dict[str, bytes] = {}
        self._arrived: dict[str, list[int]] = {}
        super().__init__(host, name, kept=kept)
        if not since:
            self.send(Subscribe(1, (Subscription(topic_filter, QOS),)))

    @property
    def is_ready(self) -> bool:
        return self.is_connected and self.subscribed_at > 0

    def take(self, packet: Packet) -> None:
        if isinstance(packet, Suback):
            assert all(reason < REFUSED for reason in packet.reasons), packet
            self.subscribed_at = time.monotonic()
            return
        assert isinstance(packet, Publish)
        if packet.retain:
            self.retained[packet.topic] = bytes(packet.payload)
        else:
            publisher, number = bytes(packet.payload).decode().split()
            self._arrived.setdefault(publisher, []).append(int(number))
        self.send(Puback(packet.packet_id))

    def numbers(self, publisher: Publisher) -> list[int]:
        """Of its messages, in the order in which they came."""
        return self._arrived.get(publisher.name, [])

    def newest(self, publisher: Publisher) -> float:
        """When the last one that came was sent; 0 before any has come."""
        numbers = self.numbers(publisher)
        return publisher.sent[numbers[-1]].at if numbers else 0.0


class Traffic:
    """All clients of a test."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self.clients: list[Client] = []

    def add(self, *clients: Client) -> None:
        """Returns when all are connected, and subscribed if they subscribe."""
        for client in clients:
            self.clients.append(client)
            self._selector.register(client.socket, selectors.EVENT_READ, client)
        names = ", ".join(client.name for client in clients)
        self.until(lambda: all(client.is_ready for client in clients), f"{names}: connected and subscribed")

    def drop(self, *clients: Client) -> None:
        """Their connections end without a DISCONNECT."""
        for client in clients:
            self.clients.remove(client)
            self._selector.unregister(client.socket)
            client.socket.close()

    def close(self) -> None:
        self.drop(*self.clients)
        self._selector.close()

    def until(self, condition: Callable[[], Result], what: str, within_s: float = WITHIN_S) -> Result:
        """Let the clients go on until the condition gives something true, which is returned; or fail."""
        deadline = time.monotonic() + within_s
        while not (result := condition()):
            if time.monotonic() > deadline:
                pytest.fail(f"not within {within_s:g} s: {what}")
            self._turn()
        return result

    def through(self, seconds: float) -> None:
        """Let them go on for so long: what a test is about may have a length of its own."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end, "the time is over", 2 * seconds)

    def settle(self, within_s: float = WITHIN_S) -> None:
        """Nobody publishes any more, until everything sent is acknowledged."""
        publishers = [client for client in self.clients if isinstance(client, Publisher)]
        for publisher in publishers:
            publisher.sends = False
        self.until(
            lambda: all(one.acknowledged == len(one.sent) for one in publishers), "all is acknowledged", within_s
        )

    def _turn(self) -> None:
        for key, _ in self._selector.select(0.01):
            key.data.read()
        now = time.monotonic()
        for client in self.clients:
            client.go_on(now)
