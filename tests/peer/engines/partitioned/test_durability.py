"""kill -9 of whole rings: every retained message whose publisher was told so is there after the next start."""

from __future__ import annotations

import asyncio
import resource
import select
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
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
PEERS = 4
TOPICS = 40
WITHIN_S = 40.0

Start = Callable[..., Any]


class Client:
    """A client that waits for what it asks."""

    def __init__(self, port: int, name: str) -> None:
        self.socket = socket.create_connection((HOST, port), WITHIN_S)
        self._reader = PacketReader(1 << 20)
        self._ids = 0
        self._acknowledged: set[int] = set()
        self.retained: dict[str, bytes] = {}
        self._take_until(Connect(Version.V311, name, True, 0), lambda packet: isinstance(packet, Connack))

    def _take_until(self, first: Packet, condition: Callable[[Packet], bool]) -> None:
        self.socket.sendall(encode(Version.V311, first))
        deadline, found = time.monotonic() + WITHIN_S, False
        while not found:
            assert time.monotonic() < deadline
            found = any(map(condition, self.read()))

    def read(self) -> list[Packet]:
        """What has come; waits for it for a moment."""
        if not select.select([self.socket], [], [], 0.05)[0]:
            return []
        data = self.socket.recv(65536)
        packets = [decode(Version.V311, first, body) for first, body in self._reader.feed(data)]
        for packet in packets:
            if isinstance(packet, Puback):
                self._acknowledged.add(packet.packet_id)
            elif isinstance(packet, Publish) and packet.retain:
                self.retained[packet.topic] = bytes(packet.payload)
        return packets

    def retain(self, topic: str, payload: bytes) -> int:
        self._ids += 1
        self.socket.sendall(encode(Version.V311, Publish(topic, payload, 1, True, False, self._ids)))
        return self._ids

    def acknowledged(self, packet_id: int) -> bool:
        return packet_id in self._acknowledged

    def find(self, *filters: str) -> dict[str, bytes]:
        """What is retained there. One that is published after SUBACK comes after all of it."""
        wanted = tuple(Subscription(one, 1) for one in (*filters, "end"))
        self._take_until(Subscribe(1, wanted), lambda packet: isinstance(packet, Suback))
        end = Publish("end", b"", 1, False, False, 9)
        self._take_until(end, lambda packet: isinstance(packet, Publish) and packet.topic == "end")
        return self.retained

    def close(self) -> None:
        self.socket.close()


class Ring:
    """Peers that are killed and started again."""

    def __init__(self, start: Start, folder: Path, eventually: Callable[..., None]) -> None:
        self._start = start
        self._eventually = eventually
        self._folder = folder
        ports = choose_ports(0, 2 * PEERS)
        self.overlay, self.mqtt = ports[:PEERS], ports[PEERS:]
        self.processes = [self._process(number) for number in range(PEERS)]
        self.settle()

    def _process(self, number: int) -> Any:
        addresses = ("--overlay", f"{HOST}:{self.overlay[number]}", "--mqtt", f"{HOST}:{self.mqtt[number]}")
        data = ("--data", str(self._folder / f"data {number}"))
        join = ("--join", f"{HOST}:{self.overlay[0]}") if number else ()
        return self._start("peer", "--no-discovery", "--timing", "local", *addresses, *data, *join)

    def kill(self, *numbers: int) -> None:
        for number in numbers:
            self.processes[number].send(signal.SIGKILL)
        for number in numbers:
            self.processes[number].popen.wait(10)

    def start_again(self, *numbers: int) -> None:
        for number in numbers:
            self.processes[number] = self._process(number)
        self.settle()

    def settle(self) -> None:
        self._eventually(lambda: all(map(self._knows_all, range(PEERS))), WITHIN_S, "everybody knows all the others")

    def _knows_all(self, number: int) -> bool:
        try:
            status = asyncio.run(ask_status((HOST, self.overlay[number])))
        except OverlayError:
            return False
        sides = status.get("leaves", {}).values()
        return bool(status.get("active")) and len({leaf["id"] for side in sides for leaf in side}) == PEERS - 1


@pytest.fixture
def ring(start: Start, tmp_path: Path, eventually: Callable[..., None]) -> Ring:
    return Ring(start, tmp_path, eventually)


class History:
    """Of each topic the payloads in their order, and how far they were acknowledged."""

    def __init__(self) -> None:
        self._payloads: dict[str, list[bytes]] = {}
        self._sent: list[tuple[str, int, int]] = []

    def publish(self, client: Client, topic: str, payload: bytes) -> None:
        payloads = self._payloads.setdefault(topic, [])
        payloads.append(payload)
        self._sent.append((topic, len(payloads), client.retain(topic, payload)))

    def acknowledged(self, client: Client) -> int:
        return sum(client.acknowledged(packet_id) for _, _, packet_id in self._sent)

    def check(self, client: Client, found: dict[str, bytes]) -> None:
        """Of each topic the last one that was acknowledged, or a later one."""
        least: dict[str, int] = {}
        for topic, number, packet_id in self._sent:
            if client.acknowledged(packet_id):
                least[topic] = max(number, least.get(topic, 0))
        assert least
        for topic, payloads in self._payloads.items():
            known = least.get(topic, 0)
            right = [*payloads[known - 1 :]] if known else [b"", *payloads]
            assert found.get(topic, b"") in right, topic


@pytest.mark.parametrize("seed", range(2))
def test_kill_9_of_a_whole_ring(ring: Ring, seed: int) -> None:
    random, history = Random(seed), History()
    speaker = Client(ring.mqtt[0], "speaker")
    for number in range(200):
        topic = f"room/{random.randrange(TOPICS)}"
        history.publish(speaker, topic, b"" if random.random() < 0.2 else b"%d" % number)
    while history.acknowledged(speaker) < 100 + 50 * seed:
        speaker.read()
    ring.kill(*range(PEERS))
    for number in range(1000):
        if not speaker.read() and number:
            break  # what was acknowledged before the end counts too
    speaker.close()
    ring.start_again(*range(PEERS))
    for number, filters in enumerate((("#",), ("room/+",), [f"room/{number}" for number in range(TOPICS)])):
        reader = Client(ring.mqtt[number + 1], "reader")
        history.check(speaker, reader.find(*filters))
        reader.close()


def test_kill_9_of_one_after_the_other(ring: Ring) -> None:
    """At any time one has what the others lack, or lacks what they have."""
    history = History()
    speaker = Client(ring.mqtt[0], "speaker")
    for number in range(1, PEERS):
        for topic in range(TOPICS):
            clears = topic % (number + 1) == number
            history.publish(speaker, f"room/{topic}", b"" if clears else b"%d" % number)
        ring.kill(number)
        deadline = time.monotonic() + WITHIN_S
        while history.acknowledged(speaker) < number * TOPICS:
            speaker.read()
            assert time.monotonic() < deadline
        ring.start_again(number)
    ring.kill(*range(PEERS))
    ring.start_again(*range(PEERS))
    reader = Client(ring.mqtt[1], "reader")
    history.check(speaker, reader.find("room/#"))
    for client in (speaker, reader):
        client.close()


def test_a_peer_whose_disk_takes_no_more_says_so_and_ends(ring: Ring, tmp_path: Path) -> None:
    speaker = Client(ring.mqtt[0], "speaker")
    speaker.retain("a", b"x")
    file = tmp_path / "data 1" / "retained.sqlite"
    size = file.with_name("retained.sqlite-wal").stat().st_size
    victim = ring.processes[1]
    resource.prlimit(victim.pid, resource.RLIMIT_FSIZE, (size + 20_000, size + 20_000))
    deadline = time.monotonic() + WITHIN_S
    number = 0
    while victim.popen.poll() is None:
        assert time.monotonic() < deadline
        number += 1
        speaker.retain(f"b/{number}", bytes(1000))
        speaker.read()
    assert victim.popen.returncode == 1
    assert victim.err.rstrip().split("\n")[-1] == f"ringmq: cannot write to {file}: disk I/O error"
    speaker.close()
