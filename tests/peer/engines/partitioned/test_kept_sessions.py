"""kill -9 of peers with kept sessions: what is acknowledged after the next start reaches them."""

from __future__ import annotations

import asyncio
import contextlib
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.experiments.processes.ports import choose_ports
from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import (
    Connack,
    Connect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Version,
)
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.node import ask_status

HOST = "127.0.0.1"
PUBLISHER, SUBSCRIBER = 0, 1
"""The peers that these clients connect to."""
WITHIN_S = 40.0
SERVING_ALONE_S = 2.0
"""How long clients publish before the subscriber's peer starts again. Acknowledgements take a fraction of it."""
PAUSE_S = 0.01
"""Between two messages of a publisher."""
FILTERS = ("hall/+/door", "yard", *[f"room/{number}" for number in range(40)])
TOPICS = ("hall/1/door", "hall/2/door", *FILTERS[1:])
"""So many that any three neighbours of six are the owners of some."""

Start = Callable[..., Any]


def _connected(port: int) -> socket.socket:
    """A peer is a member of the ring a moment before it listens for clients."""
    deadline = time.monotonic() + WITHIN_S
    while True:
        try:
            return socket.create_connection((HOST, port), WITHIN_S)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise


class Client:
    """A client that acknowledges what it gets."""

    def __init__(self, port: int, name: str, *, clean: bool) -> None:
        self._socket = _connected(port)
        self._reader = PacketReader(1 << 20)
        self._count = 0
        self._acknowledged: set[int] = set()
        self.sent: dict[int, bytes] = {}
        self.got: set[bytes] = set()
        self._send(Connect(Version.V311, name, clean, 0))
        self._until(lambda packet: isinstance(packet, Connack))

    def _send(self, packet: Packet) -> None:
        self._socket.sendall(encode(Version.V311, packet))

    def _until(self, condition: Callable[[Packet], bool]) -> None:
        deadline, found = time.monotonic() + WITHIN_S, False
        while not found:
            assert time.monotonic() < deadline
            found = any(map(condition, self.read()))

    def read(self) -> list[Packet]:
        """What has come; waits for it for a moment."""
        if not select.select([self._socket], [], [], 0.02)[0]:
            return []
        packets = [decode(Version.V311, first, body) for first, body in self._reader.feed(self._socket.recv(65536))]
        for packet in packets:
            if isinstance(packet, Puback):
                self._acknowledged.add(packet.packet_id)
            elif isinstance(packet, Publish):
                self.got.add(bytes(packet.payload))
                self._send(Puback(packet.packet_id))
        return packets

    def subscribe(self, *filters: str) -> None:
        self._send(Subscribe(1, tuple(Subscription(one, 1) for one in filters)))
        self._until(lambda packet: isinstance(packet, Suback))

    def publish(self, name: str, *, retain: bool) -> None:
        self._count += 1
        self.sent[self._count] = f"{name} {self._count}".encode()
        topic = TOPICS[self._count % len(TOPICS)]
        self._send(Publish(topic, self.sent[self._count], 1, retain, False, self._count))

    def publish_for(self, span_s: float, name: str, *, retain: bool = False) -> None:
        now = time.monotonic()
        until = now + span_s
        while now < until:
            self.publish(name, retain=retain)
            following = now + PAUSE_S
            while now < following:
                self.read()
                now = time.monotonic()

    @property
    def acknowledged(self) -> set[bytes]:
        return {self.sent[packet_id] for packet_id in self._acknowledged}

    def close(self) -> None:
        self._socket.close()


class Ring:
    """Peers with data folders that are killed and started again."""

    def __init__(self, start: Start, folder: Path, eventually: Callable[..., None], count: int) -> None:
        self.count = count
        self._start = start
        self._eventually = eventually
        self._folder = folder
        ports = choose_ports(0, 2 * count)
        self.overlay, self.mqtt = ports[:count], ports[count:]
        self._processes: dict[int, Any] = {}

    def start(self, *numbers: int) -> None:
        for number in numbers:
            addresses = ("--overlay", f"{HOST}:{self.overlay[number]}", "--mqtt", f"{HOST}:{self.mqtt[number]}")
            data = ("--data", str(self._folder / f"data {number}"))
            join = ("--join", f"{HOST}:{self.overlay[0]}") if number else ()
            arguments = ("peer", "--no-discovery", "--timing", "local", *addresses, *data, *join)
            self._processes[number] = self._start(*arguments)
        self._eventually(lambda: all(map(self._is_active, numbers)), WITHIN_S, "all are active")

    def settle(self) -> None:
        self._eventually(
            lambda: all(map(self._knows_all, range(self.count))), WITHIN_S, "everybody knows all the others"
        )

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self._processes[number].send(signal.SIGKILL)
        for number in numbers:
            self._processes[number].popen.wait(10)

    def status(self, number: int) -> dict[str, Any]:
        with contextlib.suppress(OverlayError):
            return asyncio.run(ask_status((HOST, self.overlay[number])))
        return {}

    def _is_active(self, number: int) -> bool:
        return bool(self.status(number).get("active"))

    def _knows_all(self, number: int) -> bool:
        status = self.status(number)
        sides = status.get("leaves", {}).values()
        return bool(status.get("active")) and len({leaf["id"] for side in sides for leaf in side}) == self.count - 1


@pytest.fixture
def rings(start: Start, tmp_path: Path, eventually: Callable[..., None]) -> Callable[[int], Ring]:
    """Begin a ring of so many peers."""

    def begin(count: int) -> Ring:
        ring = Ring(start, tmp_path, eventually, count)
        # One after the other: the newest peers joined a moment before the test begins.
        for number in range(count):
            ring.start(number)
        ring.settle()
        return ring

    return begin


def keep_session(ring: Ring) -> None:
    client = Client(ring.mqtt[SUBSCRIBER], "kept", clean=False)
    client.subscribe(*FILTERS)
    client.close()


def check_nothing_is_missing(ring: Ring, publisher: Client) -> None:
    """All that was acknowledged by now is in the session, or comes into it."""
    deadline = time.monotonic() + WITHIN_S
    while len(publisher.acknowledged) < len(publisher.sent) and time.monotonic() < deadline:
        publisher.read()
    publisher.close()
    assert len(publisher.acknowledged) == len(publisher.sent), "each message is acknowledged in the end"
    kept = Client(ring.mqtt[SUBSCRIBER], "kept", clean=False)
    deadline = time.monotonic() + 5.0
    while publisher.acknowledged - kept.got and time.monotonic() < deadline:
        kept.read()
    kept.close()
    assert publisher.acknowledged - kept.got == set()


@pytest.mark.parametrize(("count", "retain"), [(3, False), (3, True), (6, False)])
def test_after_a_power_cut_of_all_peers_publishers_wait_for_kept_sessions(
    rings: Callable[[int], Ring], count: int, retain: bool
) -> None:
    """The publisher's peer is back first. Of three it has all entries on its disk, of six it lacks some."""
    ring = rings(count)
    keep_session(ring)
    ring.kill(*range(count))
    ring.start(PUBLISHER)
    publisher = Client(ring.mqtt[PUBLISHER], "publisher", clean=True)
    publisher.publish_for(SERVING_ALONE_S, "before", retain=retain)
    ring.start(*[number for number in range(count) if number != PUBLISHER])
    publisher.publish_for(2.0, "after", retain=retain)
    check_nothing_is_missing(ring, publisher)


@pytest.mark.parametrize("retain", [False, True])
def test_restart_of_the_peer_of_a_kept_session_misses_nothing(rings: Callable[[int], Ring], retain: bool) -> None:
    ring = rings(3)
    keep_session(ring)
    publisher = Client(ring.mqtt[PUBLISHER], "publisher", clean=True)
    publisher.publish_for(0.5, "before", retain=retain)
    ring.kill(SUBSCRIBER)
    publisher.publish_for(SERVING_ALONE_S, "meanwhile", retain=retain)
    ring.start(SUBSCRIBER)
    publisher.publish_for(2.0, "after", retain=retain)
    check_nothing_is_missing(ring, publisher)
