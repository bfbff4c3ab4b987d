"""kill -9 in the middle of everything: nothing that a client was told is lost, and nothing with QoS 2 comes twice."""

from __future__ import annotations

import random
import resource
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

HOST = "127.0.0.1"
WITHIN_S = 30.0
MESSAGES = 1000
"""Of each QoS."""
IN_FLIGHT = 50

Start = Callable[..., Any]


class Client:
    """A client that keeps its session as the specification says, over any number of connections."""

    def __init__(self, version: Version, client_id: str) -> None:
        self.version = version
        self.client_id = client_id
        self.socket: socket.socket | None = None
        self.present = False
        self.ready = False
        self._reader = PacketReader(1 << 20)

    def connect(self, port: int) -> None:
        """Raises OSError while nobody listens."""
        self.socket = socket.create_connection((HOST, port), WITHIN_S)
        self._reader = PacketReader(1 << 20)
        self.ready = False
        lasting = Properties(session_expiry_s=1000) if self.version is Version.V5 else Properties()
        self.send(Connect(self.version, self.client_id, False, 0, properties=lasting))

    def send(self, *packets: Packet) -> None:
        assert self.socket is not None
        self.socket.sendall(b"".join(encode(self.version, packet) for packet in packets))

    def read(self) -> bool:
        """Take what has come; False when the connection is gone."""
        assert self.socket is not None
        try:
            data = self.socket.recv(65536)
        except ConnectionError:
            data = b""
        for first, body in self._reader.feed(data):
            packet = decode(self.version, first, body)
            if isinstance(packet, Connack):
                assert packet.reason == 0
                self.present, self.ready = packet.session_present, True
                self.connected()
            else:
                self.take(packet)
        return bool(data)

    def connected(self) -> None: ...
    def take(self, packet: Packet) -> None: ...


class Publisher(Client):
    """Numbers its messages, and repeats what was not acknowledged."""

    def __init__(self, version: Version, qos: int) -> None:
        super().__init__(version, f"publisher {qos}")
        self.qos = qos
        self.sent = 0
        self.flying: dict[int, int] = {}
        """Packet identifiers and their messages, not acknowledged."""
        self.releasing: set[int] = set()
        self.acknowledged: list[int] = []

    @property
    def done(self) -> bool:
        return self.sent == MESSAGES and not self.flying and not self.releasing

    def connected(self) -> None:
        self.send(*[self._publish(number, packet_id, True) for packet_id, number in self.flying.items()])
        self.send(*map(Pubrel, self.releasing))
        self.go_on()

    def _publish(self, number: int, packet_id: int, dup: bool) -> Publish:
        return Publish(f"t/{self.qos}", b"%d" % number, self.qos, False, dup, packet_id)

    def go_on(self) -> None:
        packets = []
        while self.sent < MESSAGES and len(self.flying) + len(self.releasing) < IN_FLIGHT:
            packet_id = next(one for one in range(1, 1000) if one not in self.flying and one not in self.releasing)
            self.flying[packet_id] = self.sent
            packets.append(self._publish(self.sent, packet_id, False))
            self.sent += 1
        if packets:
            self.send(*packets)

    def take(self, packet: Packet) -> None:
        if isinstance(packet, (Puback, Pubrec)):
            number = self.flying.pop(packet.packet_id, None)
            if number is not None:
                self.acknowledged.append(number)
            if isinstance(packet, Pubrec):
                self.releasing.add(packet.packet_id)
                self.send(Pubrel(packet.packet_id))
        elif isinstance(packet, Pubcomp):
            self.releasing.discard(packet.packet_id)
        self.go_on()


class Subscriber(Client):
    """Notes each message it takes; of QoS 2 those whose identifier it has not had already."""

    def __init__(self, version: Version) -> None:
        super().__init__(version, "subscriber")
        self.got: dict[int, list[int]] = {1: [], 2: []}
        self._held: set[int] = set()
        self.subscribed = False

    def connected(self) -> None:
        if not self.subscribed:
            self.send(Subscribe(1, (Subscription("t/#", 2),)))

    def take(self, packet: Packet) -> None:
        if isinstance(packet, Suback):
            self.subscribed = True
        elif isinstance(packet, Publish) and packet.qos == 1:
            self.got[1].append(int(bytes(packet.payload)))
            self.send(Puback(packet.packet_id))
        elif isinstance(packet, Publish):
            if packet.packet_id not in self._held:
                self._held.add(packet.packet_id)
                self.got[2].append(int(bytes(packet.payload)))
            self.send(Pubrec(packet.packet_id))
        elif isinstance(packet, Pubrel):
            self._held.discard(packet.packet_id)
            self.send(Pubcomp(packet.packet_id))


class Site:
    """One peer that is killed and started again, and the clients."""

    def __init__(self, start: Start, folder: Path, version: Version) -> None:
        self._start = start
        overlay, self.port = choose_ports(0, 2)
        self.arguments = ("peer", "--no-discovery", "--timing", "local", "--overlay", f"{HOST}:{overlay}")
        self.arguments += ("--mqtt", f"{HOST}:{self.port}", "--data", str(folder))
        self.subscriber = Subscriber(version)
        self.publishers = [Publisher(version, qos) for qos in (1, 2)]
        self.clients: list[Client] = [self.subscriber, *self.publishers]
        self.process = start(*self.arguments)

    def kill(self) -> None:
        self.process.end(signal.SIGKILL)
        self.process = self._start(*self.arguments)

    def run(self, until: Callable[[], bool]) -> None:
        """Let the clients talk, and come back when they are cut off."""
        deadline = time.monotonic() + WITHIN_S
        while not until():
            assert time.monotonic() < deadline, self.process.err
            for client in self.clients:
                if client.socket is None:
                    self._connect(client)
            sockets = {client.socket: client for client in self.clients if client.socket is not None}
            for readable in select.select(list(sockets), [], [], 0.01)[0]:
                client = sockets[readable]
                try:
                    alive = client.read()
                except ConnectionError:
                    alive = False
                if not alive:
                    readable.close()
                    client.socket = None

    def _connect(self, client: Client) -> None:
        if isinstance(client, Publisher) and not self.subscriber.subscribed:
            return
        try:
            client.connect(self.port)
        except ConnectionError:
            client.socket = None

    @property
    def progress(self) -> int:
        return sum(len(publisher.acknowledged) for publisher in self.publishers)

    def close(self) -> None:
        for client in self.clients:
            if client.socket is not None:
                client.socket.close()


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
@pytest.mark.parametrize("run", range(2))
def test_kill_9_amid_publications(start: Start, tmp_path: Path, version: Version, run: int) -> None:
    chance = random.Random(f"{version} {run}")
    site = Site(start, tmp_path / "data", version)
    try:
        kills = sorted(chance.sample(range(100, 2 * MESSAGES - 100), 5))
        for at in kills:
            site.run(lambda at=at: site.progress >= at)
            site.kill()
        site.run(lambda: all(publisher.done for publisher in site.publishers))
        wanted = list(range(MESSAGES))
        site.run(lambda: all(set(wanted) <= set(got) for got in site.subscriber.got.values()))
    finally:
        site.close()
    assert site.subscriber.present
    assert site.subscriber.got[2] == wanted
    assert first_times(site.subscriber.got[1]) == wanted


def first_times(numbers: list[int]) -> list[int]:
    return list(dict.fromkeys(numbers))


def test_a_peer_whose_disk_takes_no_more_says_so_and_ends(start: Start, tmp_path: Path) -> None:
    site = Site(start, tmp_path / "data", Version.V5)
    try:
        site.run(lambda: site.subscriber.subscribed)
        size = (tmp_path / "data" / "clients.sqlite-wal").stat().st_size
        resource.prlimit(site.process.pid, resource.RLIMIT_FSIZE, (size + 20_000, size + 20_000))
        site.run(lambda: site.process.popen.poll() is not None)
        assert site.process.popen.returncode == 1
        last = site.process.err.rstrip().split("\n")[-1]
        assert last == f"ringmq: cannot write to {tmp_path / 'data' / 'clients.sqlite'}: disk I/O error"
        site.process = start(*site.arguments)
        site.run(lambda: all(publisher.done for publisher in site.publishers))
        site.run(lambda: len(site.subscriber.got[2]) == MESSAGES)
    finally:
        site.close()
    assert set(site.subscriber.got[1]) == set(range(MESSAGES))


def test_what_a_stop_leaves_is_there_after_the_next_start(start: Start, tmp_path: Path) -> None:
    site = Site(start, tmp_path / "data", Version.V5)
    try:
        site.run(lambda: all(publisher.ready for publisher in site.publishers))
        assert site.process.end() == 0
        site.process = start(*site.arguments)
        site.run(lambda: all(publisher.done for publisher in site.publishers))
        site.run(lambda: len(site.subscriber.got[2]) == MESSAGES)
    finally:
        site.close()
    assert site.subscriber.got[2] == list(range(MESSAGES))
