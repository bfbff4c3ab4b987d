"""Kept sessions that go from peer to peer with their client, between real peers."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.peer.settings.addresses import parse_address
from tests.conftest import wait_until
from tests.peer.rings import Ring
from tests.peer.test_wills import Ring as DurableRing

Start = Callable[..., Any]
V5 = Version.V5
WITHIN_S = 30.0
WAITING = 20
MANY = 1000


class Device:
    """A client with a kept session, which it takes from peer to peer."""

    def __init__(self, stack: ExitStack, client_id: str) -> None:
        self._stack = stack
        self.client_id = client_id
        self.packets: list[Packet] = []
        self.came: list[tuple[bytes, int, bool]] = []
        """Payload, packet id and DUP of each PUBLISH."""
        self.acknowledges = True
        self.acknowledged = 0

    def connect(self, address: str, clean: bool = False) -> Connack:
        self.packets.clear()
        self._reader = PacketReader()
        self.socket = self._stack.enter_context(socket.create_connection(parse_address(address), WITHIN_S))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.send(Connect(V5, self.client_id, clean, 0, properties=Properties(session_expiry_s=600)))
        wait_until(lambda: self.read() and self.packets, WITHIN_S, "CONNACK")
        connack = self.packets[0]
        assert isinstance(connack, Connack)
        assert connack.reason is Reason.SUCCESS
        return connack

    def send(self, packet: Packet) -> None:
        self.socket.sendall(encode(V5, packet))

    def subscribe(self, *filters: str, qos: int = 1) -> None:
        self.send(Subscribe(1, tuple([Subscription(name, qos) for name in filters])))
        wait_until(lambda: self.read() and isinstance(self.packets[-1], Suback), WITHIN_S, "SUBACK")

    def leave(self) -> None:
        self.send(Disconnect(Reason.SUCCESS, Properties()))
        self.socket.close()

    def publish(self, topic: str, payload: bytes, qos: int = 1) -> None:
        """Publish, and wait for the acknowledgement."""
        before = self.acknowledged
        self.send(Publish(topic, payload, qos, False, False, 7))
        wait_until(lambda: self.read() is not None and self.acknowledged > before, WITHIN_S, "PUBACK")

    def read(self) -> list[Packet]:
        while select.select([self.socket], (), (), 0)[0]:
            data = self.socket.recv(1 << 16)
            assert data, "the peer closed the connection"
            for first, body in self._reader.feed(data):
                self._take(decode(V5, first, body))
        return self.packets

    def _take(self, packet: Packet) -> None:
        self.packets.append(packet)
        if isinstance(packet, Publish):
            self.came.append((bytes(packet.payload), packet.packet_id, packet.dup))
            if self.acknowledges and packet.qos:
                self.send(Puback(packet.packet_id) if packet.qos == 1 else Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrec):
            self.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self.send(Pubcomp(packet.packet_id))
        elif isinstance(packet, Puback | Pubcomp):
            self.acknowledged += 1

    def payloads(self) -> list[bytes]:
        self.read()
        return [payload for payload, _, _ in self.came]


@pytest.fixture
def device() -> Iterator[Callable[[str], Device]]:
    with ExitStack() as stack:
        yield lambda client_id: Device(stack, client_id)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


@pytest.mark.parametrize("data", [True, False])
def test_what_waits_for_a_client_comes_to_the_next_peer_that_it_connects_to(
    start: Start,
    ringmq: Start,
    tmp_path: Path,
    eventually: Start,
    device: Callable[[str], Device],
    data: bool,
) -> None:
    ring: Any = DurableRing(start, ringmq, tmp_path) if data else Ring(start, ringmq, eventually, 3)
    addresses = [f"127.0.0.1:{port}" for port in ring.mqtt] if data else ring.mqtt
    status = ring.status if data else (lambda place: ring.statuses()[place])
    subscriber, publisher = device("subscriber"), device("publisher")
    assert not subscriber.connect(addresses[0]).session_present
    subscriber.subscribe("q/#")
    subscriber.leave()
    publisher.connect(addresses[2])
    for payload in numbered(WAITING):
        publisher.publish("q/1", payload)
    assert subscriber.connect(addresses[1]).session_present
    wait_until(lambda: len(subscriber.payloads()) >= WAITING, WITHIN_S)
    for payload in numbered(WAITING, WAITING):
        publisher.publish("q/1", payload)
    wait_until(lambda: len(subscriber.payloads()) >= 2 * WAITING, WITHIN_S)
    assert subscriber.payloads() == numbered(2 * WAITING), "each once and in order"
    wait_until(lambda: status(0)["front"]["sessions"] == 0, WITHIN_S, "the old peer forgets the session")
    wait_until(lambda: status(0)["pubsub"]["subscribing"]["total"] == 0, WITHIN_S, "and its subscriptions")
    # It comes back to the first peer, as to any other.
    subscriber.leave()
    publisher.publish("q/1", b"last")
    assert subscriber.connect(addresses[0]).session_present
    wait_until(lambda: subscriber.payloads()[-1] == b"last", WITHIN_S)


def test_what_is_in_flight_is_repeated_first_with_the_same_identifiers(
    start: Start,
    ringmq: Start,
    eventually: Start,
    device: Callable[[str], Device],
) -> None:
    ring = Ring(start, ringmq, eventually, 3)
    subscriber, publisher = device("subscriber"), device("publisher")
    subscriber.connect(ring.mqtt[0])
    subscriber.subscribe("q/#", qos=2)
    publisher.connect(ring.mqtt[2])
    subscriber.acknowledges = False
    for number, payload in enumerate(numbered(WAITING)):
        publisher.publish("q/1", payload, 1 + number % 2)
    wait_until(lambda: len(subscriber.payloads()) == WAITING, WITHIN_S)
    before, subscriber.came = subscriber.came, []
    # The old connection is still open: it is closed with 0x8E.
    old = subscriber.socket
    subscriber.acknowledges = True
    assert subscriber.connect(ring.mqtt[1]).session_present
    wait_until(lambda: len(subscriber.payloads()) == WAITING, WITHIN_S)
    assert subscriber.came == [(payload, packet_id, True) for payload, packet_id, _ in before]
    publisher.publish("q/1", b"next")
    wait_until(lambda: subscriber.payloads()[-1] == b"next", WITHIN_S)
    assert len(subscriber.came) == WAITING + 1
    assert b"another client has connected with this id" in old.recv(1 << 16)


def test_a_client_that_is_thrown_around_misses_nothing(
    start: Start,
    ringmq: Start,
    eventually: Start,
    device: Callable[[str], Device],
) -> None:
    ring = Ring(start, ringmq, eventually, 5)
    subscriber, publisher = device("subscriber"), device("publisher")
    subscriber.connect(ring.mqtt[0])
    subscriber.subscribe("q/#")
    subscriber.leave()
    publisher.connect(ring.mqtt[4])
    for payload in numbered(MANY - 1):
        publisher.publish("q/1", payload)
    for step in range(1, 13):
        subscriber.connect(ring.mqtt[step % 4])
        if step % 3 == 0:
            subscriber.leave()
        publisher.publish("q/1", b"step %d" % step)
    subscriber.connect(ring.mqtt[1])
    expected = {*numbered(MANY - 1), *[b"step %d" % step for step in range(1, 13)]}
    wait_until(lambda: expected <= set(subscriber.payloads()), WITHIN_S)


def test_a_session_whose_peer_was_paused_hands_over_what_waits_when_it_goes_on(
    start: Start,
    ringmq: Start,
    eventually: Start,
    device: Callable[[str], Device],
) -> None:
    ring = Ring(start, ringmq, eventually, 4)
    subscriber, publisher = device("subscriber"), device("publisher")
    subscriber.connect(ring.mqtt[1])
    subscriber.subscribe("q/#")
    subscriber.leave()
    publisher.connect(ring.mqtt[3])
    for payload in numbered(WAITING):
        publisher.publish("q/1", payload)
    ring.processes[1].send(signal.SIGSTOP)
    try:
        assert not subscriber.connect(ring.mqtt[2]).session_present
    finally:
        ring.processes[1].send(signal.SIGCONT)
    wait_until(lambda: set(subscriber.payloads()) == set(numbered(WAITING)), WITHIN_S)
