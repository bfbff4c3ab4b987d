"""One connection for each client id in the whole ring, between real peers."""

from __future__ import annotations

import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from ringmq.mqtt_front.codec.codec import decode, encode
from ringmq.mqtt_front.codec.framing import PacketReader
from ringmq.mqtt_front.codec.packets import Connack, Connect, Disconnect, Packet, Properties, Version
from ringmq.mqtt_front.codec.reasons import Reason
from ringmq.mqtt_front.config import FrontConfig
from ringmq.overlay.core.ids import Id, nearness
from ringmq.peer.engines.partitioned.enrolling.enrolments import YIELD_S
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.replication.space import key_of_partition
from ringmq.peer.settings.addresses import parse_address
from tests.conftest import wait_until
from tests.peer.rings import Ring

WITHIN_S = 30.0
SLOW_MACHINE_S = 3.0
"""For this machine itself, beside the bounds of the peers."""
TAKEOVERS = 200
PAUSE_S = 0.01


class Wire:
    """A client of one peer that says no more than its CONNECT."""

    def __init__(self, address: str, client_id: str, version: Version = Version.V5, clean: bool = True) -> None:
        self.version = version
        self.packets: list[Packet] = []
        self.closed = False
        self._reader = PacketReader()
        self.socket = socket.create_connection(parse_address(address), WITHIN_S)
        expiry = Properties(session_expiry_s=600) if version is Version.V5 else Properties()
        self.socket.sendall(encode(version, Connect(version, client_id, clean, 60, properties=expiry)))

    def read(self) -> list[Packet]:
        """All that has come until now."""
        while not self.closed and select.select([self.socket], (), (), 0)[0]:
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                data = b""
            self.closed = not data
            self.packets += [decode(self.version, first, body) for first, body in self._reader.feed(data)]
        return self.packets

    def is_served(self) -> bool:
        return any(isinstance(packet, Connack) and packet.reason is Reason.SUCCESS for packet in self.read())

    def is_closed(self) -> bool:
        self.read()
        return self.closed


@pytest.fixture
def wires() -> Iterator[Callable[..., Wire]]:
    with ExitStack() as stack:

        def wire(*arguments: Any, **options: Any) -> Wire:
            made = Wire(*arguments, **options)
            stack.enter_context(made.socket)
            return made

        yield wire


def coordinator_of(ring: Ring, client_id: str) -> int:
    key = key_of_partition(partition_of(client_id))
    return min(range(len(ring.ids)), key=lambda place: nearness(key, Id.parse(ring.ids[place])))


@pytest.mark.parametrize("version", [Version.V311, Version.V5])
def test_of_two_connections_with_one_id_at_two_peers_the_earlier_one_is_closed(
    start: Callable[..., Any],
    ringmq: Callable[..., Any],
    eventually: Callable[..., Any],
    wires: Callable[..., Wire],
    version: Version,
) -> None:
    ring = Ring(start, ringmq, eventually, 3)
    first = wires(ring.mqtt[0], "c", version)
    wait_until(first.is_served, WITHIN_S)
    second = wires(ring.mqtt[1], "c", version)
    wait_until(second.is_served, WITHIN_S)
    wait_until(first.is_closed, WITHIN_S)
    if version is Version.V5:
        last = first.packets[-1]
        assert isinstance(last, Disconnect)
        assert last.reason is Reason.SESSION_TAKEN_OVER
    else:
        assert len(first.packets) == 1
    assert not second.is_closed()
    assert sum(one["front"]["clients"] for one in ring.statuses()) == 1
    assert sum(one["front"]["counters"]["taken_over"] for one in ring.statuses()) == 1


def test_an_id_that_is_thrown_around_five_peers_has_one_connection_at_the_end(
    start: Callable[..., Any], ringmq: Callable[..., Any], eventually: Callable[..., Any], wires: Callable[..., Wire]
) -> None:
    """Although the coordinator of the id is killed in the middle of it."""
    ring = Ring(start, ringmq, eventually, 5)
    coordinator = coordinator_of(ring, "c")
    others = [address for place, address in enumerate(ring.mqtt) if place != coordinator]
    thrown: list[Wire] = []
    for number in range(TAKEOVERS):
        if number == TAKEOVERS // 2:
            ring.processes[coordinator].end(signal.SIGKILL)
        until = time.monotonic() + PAUSE_S
        thrown.append(wires(others[number % len(others)], "c"))
        wait_until(lambda until=until: time.monotonic() > until, WITHIN_S)  # type: ignore[misc]
    # Those that are slowed down come in turns, each of which ends the one before.
    wait_until(lambda: sum(not wire.is_closed() for wire in thrown) == 1, 2 * WITHIN_S)
    (left,) = [wire for wire in thrown if not wire.closed]
    wait_until(left.is_served, WITHIN_S)
    left.socket.sendall(b"\xc0\x00")
    wait_until(lambda: len(left.read()) == 2, WITHIN_S, "PINGRESP")


def test_a_paused_peer_does_not_keep_its_client_from_connecting_elsewhere(
    start: Callable[..., Any], ringmq: Callable[..., Any], eventually: Callable[..., Any], wires: Callable[..., Wire]
) -> None:
    ring = Ring(start, ringmq, eventually, 4)
    paused, *others = range(4)
    client_ids = [f"c-{number}" for number in range(20)]
    before = [wires(ring.mqtt[paused], client_id) for client_id in client_ids]
    for wire in before:
        wait_until(wire.is_served, WITHIN_S)
    ring.processes[paused].send(signal.SIGSTOP)
    try:
        began = time.monotonic()
        after = [
            wires(ring.mqtt[others[number % len(others)]], client_id) for number, client_id in enumerate(client_ids)
        ]
        for wire in after:
            wait_until(wire.is_served, WITHIN_S)
        took_s = time.monotonic() - began
    finally:
        ring.processes[paused].send(signal.SIGCONT)
    assert took_s < FrontConfig().enrol_timeout_s + YIELD_S + SLOW_MACHINE_S
    for wire in before:
        wait_until(wire.is_closed, WITHIN_S, "the paused peer hears of it when it goes on")
    assert not any(wire.is_closed() for wire in after)
