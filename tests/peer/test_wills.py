"""Wills over the end of their peer, between real peers with data folders: with QoS 1 each kept session gets a will at
least once, with QoS 2 once.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import CallbackAPIVersion, MQTTMessage
from paho.mqtt.client import Client as PahoClient

from ringmq.experiments.processes.ports import choose_ports
from ringmq.mqtt_front.codec.codec import encode
from ringmq.mqtt_front.codec.packets import Connect, Properties, Version, Will
from tests.conftest import wait_until

HOST = "127.0.0.1"
WITHIN_S = 40.0
ANSWER_S = 1.0
"""A slow answer, from a peer that is not taken for dead yet."""
V5 = Version.V5


class Ring:
    """Peers with data folders, which keep their ports over restarts."""

    def __init__(
        self, start: Callable[..., Any], ringmq: Callable[..., Any], folder: Path, timing: str = "local"
    ) -> None:
        count, self._timing = 3, timing
        self._start, self._ringmq, self._folder = start, ringmq, folder
        self.mqtt = list(choose_ports(0, count))
        self._overlay = list(choose_ports(0, count, apart_from=range(self.mqtt[0], self.mqtt[-1] + 1)))
        self.peers: list[Any] = [None] * count
        for place in range(count):
            self.begin(place)

    def begin(self, place: int) -> None:
        line = ["--overlay", f"{HOST}:{self._overlay[place]}", "--mqtt", f"{HOST}:{self.mqtt[place]}"]
        line += ["--timing", self._timing, "--no-discovery", "--data", str(self._folder / f"data-{place}")]
        for other in self._overlay:
            line += ["--join", f"{HOST}:{other}"]
        self.peers[place] = self._start("peer", *line)
        self.peers[place].says("active: ")
        wait_until(lambda: self.status(place)["listeners"], WITHIN_S)

    def status(self, place: int) -> dict[str, Any]:
        told = self._ringmq("status", "--peer", f"{HOST}:{self._overlay[place]}", "--json").out
        status: dict[str, Any] = json.loads(told)
        return status

    def kill(self, place: int) -> None:
        self.peers[place].end(signal.SIGKILL)


class Subscriber:
    """A client with a kept session. It remembers what came, over all its connections."""

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.came: list[tuple[str, bytes]] = []
        self._client: PahoClient | None = None

    def connect(self, port: int, topic_filter: str = "") -> None:
        self.leave()
        client = self._client = PahoClient(CallbackAPIVersion.VERSION2, self.client_id, clean_session=False)
        ready: list[str] = []

        def took(_client: PahoClient, _data: object, message: MQTTMessage) -> None:
            self.came.append((message.topic, message.payload))

        client.on_message = took
        client.on_connect = lambda *_: client.subscribe(topic_filter, 2) if topic_filter else ready.append("present")
        client.on_subscribe = lambda *_: ready.append("granted")
        client.connect(HOST, port)
        client.loop_start()
        wait_until(lambda: ready, WITHIN_S, "CONNACK and SUBACK")

    def leave(self) -> None:
        if self._client is not None:
            self._client.disconnect()
            self._client.loop_stop()


@pytest.fixture
def subscribers() -> Iterator[list[Subscriber]]:
    made = [Subscriber(f"subscriber-{place}") for place in range(2)]
    yield made
    for one in made:
        one.leave()


def leaving(stack: ExitStack, port: int, name: str, qos: int, kept: bool) -> socket.socket:
    """A client with a will; it goes when its socket is closed."""
    wire = stack.enter_context(socket.create_connection((HOST, port), WITHIN_S))
    will = Will(f"wills/{name}", name.encode(), qos, False)
    expiry = Properties(session_expiry_s=600 if kept else 0)
    wire.sendall(encode(V5, Connect(V5, name, True, 0, will, properties=expiry)))
    assert wire.recv(2)[0] == 0x20
    return wire


@pytest.mark.parametrize("kept", [True, False])
def test_the_wills_of_a_peer_that_is_stopped_reach_the_others(
    start: Callable[..., Any], ringmq: Callable[..., Any], tmp_path: Path, subscribers: list[Subscriber], kept: bool
) -> None:
    """Although it has published to none of their topics before, and those that it must ask answer late."""
    ring = Ring(start, ringmq, tmp_path, "lan")
    away, here = subscribers
    away.connect(ring.mqtt[1], "wills/#")
    away.leave()
    here.connect(ring.mqtt[2], "wills/#")
    names = [f"{qos}-{number}" for qos in (1, 2) for number in range(10)]
    with ExitStack() as stack:
        for name in names:
            leaving(stack, ring.mqtt[0], name, int(name[0]), kept)
        for other in ring.peers[1:]:
            other.send(signal.SIGSTOP)
        ring.peers[0].send(signal.SIGTERM)
        ends = time.monotonic() + ANSWER_S
        wait_until(lambda: ring.peers[0].popen.poll() is not None or time.monotonic() > ends, 2 * ANSWER_S)
        for other in ring.peers[1:]:
            other.send(signal.SIGCONT)
        assert ring.peers[0].popen.wait(WITHIN_S) == 0
    away.connect(ring.mqtt[1])
    wait_until(lambda: all(len(one.came) >= len(names) for one in subscribers), WITHIN_S)
    # They have reached everybody before the peer ended, so it does not publish them again.
    ring.begin(0)
    with ExitStack() as stack:
        leaving(stack, ring.mqtt[0], "2-after", 2, False).close()
        wait_until(lambda: all(one.came[-1][1] == b"2-after" for one in subscribers), WITHIN_S)
    for one in subscribers:
        assert sorted(payload.decode() for _, payload in one.came) == sorted([*names, "2-after"])


def test_wills_on_their_way_survive_a_kill_and_with_qos_2_come_once(
    start: Callable[..., Any], ringmq: Callable[..., Any], tmp_path: Path, subscribers: list[Subscriber]
) -> None:
    """One subscriber has them when their peer is killed, the other does not."""
    ring = Ring(start, ringmq, tmp_path)
    prompt, late = subscribers
    prompt.connect(ring.mqtt[1], "wills/#")
    late.connect(ring.mqtt[2], "wills/#")
    names = ["1-kept", "2-kept", "1-clean", "2-clean"]
    with ExitStack() as stack:
        # The peer learns where the subscribers are.
        leaving(stack, ring.mqtt[0], "1-before", 1, False).close()
        wait_until(lambda: late.came and prompt.came, WITHIN_S)
        wires = [leaving(stack, ring.mqtt[0], name, int(name[0]), name.endswith("kept")) for name in names]
        ring.peers[2].send(signal.SIGSTOP)
        for wire in wires:
            wire.close()
        wait_until(lambda: len(prompt.came) == 1 + len(names), WITHIN_S, "wills at the subscriber that is there")
        ring.kill(0)
        ring.peers[2].send(signal.SIGCONT)
    ring.begin(0)
    wait_until(lambda: {payload.decode() for _, payload in late.came} >= set(names), WITHIN_S, "wills at the other")
    # Whatever is repeated has come before this one, on the same way.
    with ExitStack() as stack:
        leaving(stack, ring.mqtt[0], "2-after", 2, False).close()
        wait_until(lambda: all(one.came[-1][1] == b"2-after" for one in subscribers), WITHIN_S)
    for one in subscribers:
        payloads = [payload.decode() for _, payload in one.came]
        assert [payloads.count(name) for name in names if name[0] == "2"] == [1, 1], one.client_id
        assert all(payloads.count(name) >= 1 for name in names)


def test_wills_on_their_way_survive_a_power_cut(
    start: Callable[..., Any], ringmq: Callable[..., Any], tmp_path: Path, subscribers: list[Subscriber]
) -> None:
    """The peer of one subscriber has stored them, and remembers that over its own end."""
    ring = Ring(start, ringmq, tmp_path)
    prompt, late = subscribers
    prompt.connect(ring.mqtt[1], "wills/#")
    late.connect(ring.mqtt[2], "wills/#")
    names = ["1-a", "2-a"]
    with ExitStack() as stack:
        leaving(stack, ring.mqtt[0], "1-before", 1, False).close()
        wait_until(lambda: late.came and prompt.came, WITHIN_S)
        wires = [leaving(stack, ring.mqtt[0], name, int(name[0]), False) for name in names]
        ring.peers[2].send(signal.SIGSTOP)
        for wire in wires:
            wire.close()
        wait_until(lambda: len(prompt.came) == 1 + len(names), WITHIN_S, "wills at the subscriber that is there")
        for place in range(3):
            ring.kill(place)
    for place in range(3):
        ring.begin(place)
    prompt.connect(ring.mqtt[1])
    late.connect(ring.mqtt[2])
    wait_until(lambda: {payload.decode() for _, payload in late.came} >= set(names), WITHIN_S, "wills at the other")
    with ExitStack() as stack:
        leaving(stack, ring.mqtt[0], "2-after", 2, False).close()
        wait_until(lambda: all(one.came[-1][1] == b"2-after" for one in subscribers), WITHIN_S)
    for one in subscribers:
        payloads = [payload for _, payload in one.came]
        assert payloads.count(b"2-a") == 1, one.client_id
        assert payloads.count(b"1-a") >= 1
