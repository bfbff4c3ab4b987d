"""A ring of real processes on this machine: it gets whole, it heals, and nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from calendar import timegm
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.experiments.cli import local_ring
from ringmq.experiments.cli.local_ring import RUN, STOP_S, LocalRing, expected_leaves, is_settled, settings_of
from ringmq.experiments.processes.ports import choose_ports
from ringmq.overlay.core.ids import ID_BITS, Id, distance
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import ask_status
from ringmq.peer.errors import ConfigError

Start = Callable[..., Any]
Eventually = Callable[..., Any]

IDLE_SPAN_S = 4.0
WITHIN_S = 10
FREE = ("--overlay-port", "0", "--mqtt-port", "0")


class Ring:
    """A running `ringmq ring`, seen from outside."""

    def __init__(self, process: Any, peers: int) -> None:
        self.process = process
        self.mqtt_ports = ports_of(process.says("ready: ", 60), f"ready: {peers} peers, mqtt 127.0.0.1")
        self.ports = ports_of(process.says("overlay: "), "overlay: 127.0.0.1")
        assert len(self.mqtt_ports) == len(self.ports) == peers
        self.pids = dict(zip(self.ports, self._children(), strict=True))

    def _children(self) -> list[int]:
        """The pids of the peers, in the order of their ports, as those of their start."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        children = {}
        for pid in map(int, text.split()):
            line = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            children[line[line.index("--overlay") + 1]] = pid
        return [children[f"127.0.0.1:{port}"] for port in self.ports]

    def kill_what_is_left(self) -> None:
        """After a test that failed there may be something; a pid may long be another process's."""
        for port, pid in self.pids.items():
            with contextlib.suppress(OSError):
                if f"127.0.0.1:{port}" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                    os.kill(pid, signal.SIGKILL)

    def statuses(self, ports: list[int]) -> list[dict[str, Any]]:
        async def ask(port: int) -> dict[str, Any]:
            with contextlib.suppress(OverlayError):
                return await ask_status(("127.0.0.1", port), 1.0)
            return {}

        async def ask_all() -> list[dict[str, Any]]:
            return await asyncio.gather(*map(ask, ports))

        return asyncio.run(ask_all())

    def whole(self, ports: list[int]) -> bool:
        """Whether each of these peers is active and has just the others in its leaf set."""
        return all(
            status.get("active") and neighbours(status) == set(ports) - {port}
            for port, status in zip(ports, self.statuses(ports), strict=True)
        )


def ports_of(line: str, before: str) -> list[int]:
    said, _, ports = line.rpartition(":")
    assert said == before
    first, last = map(int, ports.split("-"))
    return list(range(first, last + 1))


def neighbours(status: dict[str, Any]) -> set[int]:
    return {int(leaf["address"].rpartition(":")[2]) for side in status["leaves"].values() for leaf in side}


@pytest.fixture
def ring(start: Start) -> Iterator[Callable[..., Ring]]:
    rings: list[Ring] = []

    def starter(peers: int, *options: str) -> Ring:
        rings.append(Ring(start("ring", "--peers", str(peers), *FREE, *options), peers))
        return rings[-1]

    yield starter
    for one in rings:
        one.kill_what_is_left()


def gone(usage: Callable[[int], Any], pids: list[int]) -> bool:
    return not any(usage(pid).runs for pid in pids)


def test_a_ring_gets_ready_and_leaves_nothing(ring: Start, usage: Any, eventually: Eventually) -> None:
    five = ring(5)
    assert five.whole(five.ports)
    assert five.process.out.count("ready: ") == 1
    assert five.process.end(signal.SIGINT) == 0
    assert gone(usage, five.pids.values())
    assert "Traceback" not in five.process.err


def test_a_ring_of_one(ring: Start) -> None:
    one = ring(1)
    assert one.statuses(one.ports)[0]["active"] is True
    assert one.process.end() == 0


def test_a_killed_peer_is_forgotten_at_once(ring: Start, eventually: Eventually) -> None:
    five = ring(5)
    victim, *others = five.ports
    os.kill(five.pids[victim], signal.SIGKILL)
    begun = time.monotonic()
    eventually(lambda: five.whole(others), 5, "the others know that it is gone")
    took_s = time.monotonic() - begun
    print(f"\nkill -9: gone from all leaf sets after {took_s:.2f} s, asking included")
    assert five.process.popen.poll() is None, "the ring goes on"
    eventually(lambda: f"peer 127.0.0.1:{victim} ended: killed by SIGKILL" in five.process.err, 5)
    assert five.process.end(signal.SIGINT) == 0


def test_a_paused_peer_is_declared_dead_and_comes_back(ring: Start, eventually: Eventually) -> None:
    five = ring(5)
    victim, *others = five.ports
    os.kill(five.pids[victim], signal.SIGSTOP)
    begun = time.monotonic()
    eventually(lambda: five.whole(others), 5, "the others know that it is gone")
    dead_s = time.monotonic() - begun
    os.kill(five.pids[victim], signal.SIGCONT)
    begun = time.monotonic()
    eventually(lambda: five.whole(five.ports), 10, "it is back")
    print(f"\nSIGSTOP: declared dead after {dead_s:.2f} s; SIGCONT: back after {time.monotonic() - begun:.2f} s")
    assert five.process.end(signal.SIGINT) == 0


def test_a_paused_peer_does_not_hinder_the_end(ring: Start, usage: Any) -> None:
    three = ring(3)
    os.kill(three.pids[three.ports[1]], signal.SIGSTOP)
    assert three.process.end(signal.SIGINT, within_s=STOP_S - 1) == 0, "it need not be killed"
    assert gone(usage, three.pids.values())


@pytest.mark.parametrize("paused", [False, True])
def test_nothing_is_left_of_a_killed_ring(ring: Start, usage: Any, eventually: Eventually, paused: bool) -> None:
    five = ring(5)
    if paused:
        pid = five.pids[five.ports[1]]
        os.kill(pid, signal.SIGSTOP)
        eventually(lambda: usage(pid).state == "T", 5)
    five.process.popen.kill()
    five.process.popen.wait(5)
    begun = time.monotonic()
    eventually(lambda: gone(usage, five.pids.values()), 10, "all peers are gone")
    print(f"\nkill -9 of the ring: nothing left after {time.monotonic() - begun:.2f} s")


def test_an_interrupt_while_starting_leaves_nothing(start: Start, usage: Any, eventually: Eventually) -> None:
    process = start("ring", "--peers", "30", *FREE)
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    eventually(lambda: len(listing.read_text().split()) >= 5, 20)
    pids = [int(pid) for pid in listing.read_text().split()]
    process.end(signal.SIGINT)
    assert "ready: " not in process.out
    assert "Traceback" not in process.err
    assert gone(usage, pids)


def test_peers_are_small(ring: Start, usage: Any) -> None:
    five = ring(5)
    resident = [usage(pid).resident_bytes for pid in five.pids.values()]
    print(f"\nfive peers: {max(resident) / 1e6:.1f} MB resident at most")
    assert max(resident) <= 45e6


def test_idle_peers_are_idle(ring: Start, usage: Any, eventually: Eventually) -> None:
    """As the span of the measurement the test waits for the heartbeats that make an idle peer's work."""
    five = ring(5)
    used = [usage(pid) for pid in five.pids.values()]
    before, begun = [one.cpu_s for one in used], time.monotonic()
    eventually(lambda: time.monotonic() - begun > IDLE_SPAN_S, IDLE_SPAN_S + 5)
    shares = [(one.cpu_s - was) / (time.monotonic() - begun) for one, was in zip(used, before, strict=True)]
    print(f"\nfive idle peers: {100 * max(shares):.2f} % of a core at most")
    assert max(shares) <= 0.02, "measured below 0.01; the clock counts in hundredths of a second"


def test_the_delay_reaches_the_peers(ring: Start) -> None:
    three = ring(3, "--delay", "5-6ms")
    assert three.whole(three.ports)
    trips_ms = [link["rtt_ms"] for status in three.statuses(three.ports) for link in status["links"] if "id" in link]
    assert len(trips_ms) >= 4
    assert min(trips_ms) >= 10


@pytest.mark.parametrize("option", ["--overlay-port", "--mqtt-port"])
def test_a_port_in_use_is_named_before_anything_starts(ringmq: Start, option: str) -> None:
    ports = choose_ports(0, 3)
    with socket.create_server(("127.0.0.1", ports[2])):
        process = ringmq("ring", "--peers", "3", *FREE, option, str(ports[0]))
    assert process.popen.returncode == 1
    assert process.out == ""
    assert process.err == f"ringmq: port {ports[2]} of {ports[0]}-{ports[2]} in use: try {option} 0\n"


def test_ports_for_two_purposes(ringmq: Start) -> None:
    process = ringmq("ring", "--peers", "3", "--overlay-port", "20002", "--mqtt-port", "20000")
    assert process.popen.returncode == 2
    assert process.err.startswith(
        "ringmq: --overlay-port: 20002-20004 and 20000-20002 overlap: each peer needs its own "
    )
    assert process.err.count("\n") == 1


def test_a_child_that_cannot_start_ends_the_ring(ringmq: Start, tmp_path: Path) -> None:
    (tmp_path / "peer-003").touch()
    process = ringmq("ring", "--peers", "4", *FREE, "--data", str(tmp_path))
    assert process.popen.returncode == 1
    assert process.out == ""
    assert process.err.count("\n") == 1
    assert process.err.startswith("ringmq: peer 127.0.0.1:")
    assert f"did not start: data: cannot use {tmp_path / 'peer-003'}: " in process.err


def test_a_ring_with_data_starts_again(ring: Start, tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        three = ring(3, "--data", str(tmp_path))
        ids.append({status["id"] for status in three.statuses(three.ports)})
        assert three.process.end() == 0
    assert ids[0] == ids[1]


def test_garbage_does_not_disturb_the_ring(ring: Start) -> None:
    three = ring(3)
    chance = random.Random(7)
    for size in (0, 1, 4, 100, 10_000, 100_000):
        for port in three.ports:
            with socket.create_connection(("127.0.0.1", port), 5) as line:
                try:
                    line.sendall(chance.randbytes(size))
                    line.shutdown(socket.SHUT_WR)
                    while line.recv(65536):
                        pass
                except ConnectionError:
                    continue
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        for port in three.ports:
            line.sendto(chance.randbytes(500), ("127.0.0.1", port))
    assert three.whole(three.ports)
    assert three.process.popen.poll() is None
    assert three.process.end() == 0
    assert "ended" not in three.process.err


def publish(port: int, topic: str, text: str) -> None:
    """With QoS 1; waits until it is acknowledged."""
    command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-t", topic, "-q", "1", "-m", text]
    subprocess.run(command, check=True, capture_output=True, timeout=WITHIN_S)


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Callable[..., Callable[[], list[str]]]]:
    """Subscribe a client to all topics of the test, and return what tells the messages that it has."""
    if shutil.which("mosquitto_sub") is None:
        pytest.skip("mosquitto_sub is not installed")
    running: list[subprocess.Popen[bytes]] = []

    def listener(port: int) -> Callable[[], list[str]]:
        out = tmp_path / f"client-{len(running)}"
        command = ["mosquitto_sub", "-h", "127.0.0.1", "-p", str(port), "-t", "from/#", "-q", "1", "-v"]
        with out.open("wb") as file:
            running.append(subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT))
        return lambda: out.read_text().splitlines()

    yield listener
    for process in running:
        process.kill()
        process.wait(WITHIN_S)


@pytest.mark.parametrize("options", [(), ("--dispatch", "guided", "--fanout", "1", "--shadows", "1")])
def test_clients_of_different_peers_talk(
    ring: Start, listen: Start, ringmq: Start, eventually: Eventually, options: tuple[str, ...]
) -> None:
    three = ring(3, *options)
    heard = [listen(port) for port in three.mqtt_ports]
    eventually(lambda: [in_force(status) for status in three.statuses(three.ports)] == [1, 1, 1], 20, "all subscribe")
    wanted = [f"from/{port} {number}" for port in three.mqtt_ports for number in range(3)]
    for line in wanted:
        topic, _, text = line.partition(" ")
        publish(int(topic.removeprefix("from/")), topic, text)
    for one in heard:
        eventually(lambda one=one: sorted(one()) == sorted(wanted), 10, "each client has each message once")
    topic = f"from/{three.mqtt_ports[0]}"
    places = {place["place"]: place for place in told_of(ringmq, three.ports[0], topic)["places"]}
    for port in three.ports[1:]:
        other = told_of(ringmq, port, topic)["places"]
        assert [one["coordinator"] for one in other] == [one["coordinator"] for one in places.values()]
    assert {subscriber["address"] for subscriber in places["from/#"]["held"]["subscribers"]} == {
        f"127.0.0.1:{port}" for port in three.ports
    }
    choices = [status["pubsub"]["settings"] for status in three.statuses(three.ports)]
    assert {(one["dispatch"], one["fanout"], one["shadows"]) for one in choices} == {
        ("guided", 1, 1) if options else ("direct", None, 2)
    }
    assert three.process.end(signal.SIGINT) == 0


def told_of(ringmq: Start, port: int, topic: str) -> dict[str, Any]:
    process = ringmq("status", "--peer", f"127.0.0.1:{port}", "--topic", topic, "--json")
    assert process.popen.returncode == 0, process.err
    answer: dict[str, Any] = json.loads(process.out)
    return answer


def in_force(status: dict[str, Any]) -> int:
    count: int = status["pubsub"]["subscribing"]["stages"]["in_force"] if status else 0
    return count


def test_a_ring_keeps_its_clients(ring: Start, eventually: Eventually, tmp_path: Path) -> None:
    """A session that waits for its client outlives the ring, with what waits in it."""
    if shutil.which("mosquitto_sub") is None:
        pytest.skip("mosquitto_sub is not installed")
    session = ["mosquitto_sub", "-h", "127.0.0.1", "-i", "sleeper", "-c", "-q", "1", "-t", "a/#"]
    three = ring(3, "--data", str(tmp_path))
    subprocess.run([*session, "-p", str(three.mqtt_ports[0]), "-E"], check=True, timeout=WITHIN_S)
    publish(three.mqtt_ports[2], "a/b", "for later")
    assert three.process.end() == 0
    again = ring(3, "--data", str(tmp_path))
    command = [*session, "-p", str(again.mqtt_ports[0]), "-C", "1", "-W", str(WITHIN_S)]
    assert subprocess.run(command, check=True, capture_output=True, timeout=2 * WITHIN_S).stdout == b"for later\n"
    assert again.process.end() == 0


def test_a_file_for_all_peers(ring: Start, tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text(
        "dispatch = 'guided'\nshadows = 1\ntiming = 'lan'\ndiscovery = false\n[limits]\nmax_connections = 1"
    )
    two = ring(2, "--config", str(file), "--shadows", "3")
    for status in two.statuses(two.ports):
        settings = status["pubsub"]["settings"]
        assert (settings["dispatch"], settings["shadows"]) == ("guided", 3)
    for port in two.mqtt_ports:
        where = ("127.0.0.1", port)
        with socket.create_connection(where, WITHIN_S), socket.create_connection(where, WITHIN_S) as second:
            assert closes(second), "there is room for one"
    assert two.process.end() == 0


def closes(line: socket.socket) -> bool:
    try:
        return line.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("mqtt = '127.0.0.1:1'", {}, "mqtt: is for one peer, where all have the same file: say --mqtt-port"),
        ("data = 'a'", {}, "data: is for one peer, where all have the same file: say --data"),
        ("shadow = 2", {}, "unknown setting shadow: did you mean shadows?"),
    ],
)
def test_a_file_that_is_not_for_all(tmp_path: Path, text: str, line: dict[str, object], says: str) -> None:
    file = tmp_path / "all.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        settings_of(file, line)
    assert str(caught.value) == f"{file}: {says}"


def test_what_a_file_leaves_open(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text("")
    run = {"run": "r"}
    assert settings_of(file, {"fanout": None, **run}) == settings_of(None, run) == {"timing": "local", **run}
    file.write_text("timing = 'wan'\n[limits]\nmax_queued = 7\n[record]\nrun = 'mine'")
    assert settings_of(file, {}) == {}
    assert settings_of(file, {"timing": "lan", "shadows": 0}) == {"timing": "lan", "shadows": 0}


def test_each_ring_is_a_run_of_its_own() -> None:
    run = settings_of(None, {})["run"]
    assert isinstance(run, str)
    assert abs(timegm(time.strptime(run, RUN)) - time.time()) < 60


@pytest.mark.parametrize(("name", "value"), [("file", "r.jsonl"), ("metrics", "127.0.0.1:9183")])
def test_no_two_peers_record_to_the_same_place(tmp_path: Path, name: str, value: str) -> None:
    file = tmp_path / "all.toml"
    file.write_text(f"[record]\n{name} = '{value}'")
    with pytest.raises(ConfigError, match=f"record: {name}: is for one peer, where all have the same file: "):
        settings_of(file, {})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--dispatch", "scribble"), "ringmq: --dispatch: 'scribble' is not one of "),
        (("--fanout", "3"), "ringmq: fanout: 3 is of no use with dispatch direct"),
        (("--shadows", "9"), "ringmq: --shadows: 9 is not a whole number from 0 to 8"),
        (("--timing", "fast"), "ringmq: --timing: 'fast' is not one of local, lan, wan"),
        (("--delay", "fast"), "ringmq: --delay: 'fast' is not a range"),
    ],
)
def test_a_wrong_setting_is_one_line(ringmq: Start, options: tuple[str, ...], says: str) -> None:
    process = ringmq("ring", "--peers", "3", *FREE, *options)
    assert (process.popen.returncode, process.out) == (2, "")
    assert process.err.startswith(says)
    assert process.err.count("\n") == 1


async def test_ready_is_when_all_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last peer answers at first not at all, when the others do not know it; then that it lacks one of them, while
    the second serves no clients."""
    points = some_ids(3)
    asked: list[int] = []

    async def ask(address: tuple[str, int], timeout_s: float) -> dict[str, Any]:
        place = address[1]
        asked.append(place)
        others = [point for point in points if point != points[place]]
        times = asked.count(place)
        if place == 2 and times == 1:
            raise OverlayError("not yet")
        told = answer(points[place], others[: min(times, 2) if place != 2 else times - 1])
        return told | {"listeners": {}} if (place, times) == (1, 2) else told

    monkeypatch.setattr(local_ring, "ask_status", ask)
    watched = LocalRing(range(3), range(3, 6), [], None)
    watched.children = [Unborn(address) for address in watched.addresses]
    settled: list[int] = []
    await watched.settle(lambda: settled.append(len(asked)))
    assert settled == [6, 8, 8], "who is settled is not asked again; before all ids are known nobody is"
    await watched.stop()


class Unborn:
    """A child without a process."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.ended = asyncio.Event()

    def send(self, number: signal.Signals) -> None:
        self.ended.set()


def answer(me: Id, leaves: list[Id], active: bool = True) -> dict[str, Any]:
    side = [{"id": leaf.hex(), "address": "127.0.0.1:1"} for leaf in leaves]
    told = {"id": me.hex(), "active": active, "listeners": {"mqtt": "127.0.0.1:1"}}
    return told | {"leaves": {"clockwise": side, "counterclockwise": side[::-1]}}


def some_ids(count: int) -> list[Id]:
    chance = random.Random(count)
    return [Id(chance.getrandbits(ID_BITS)) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 8, 9, 10, 50])
def test_expected_leaves_are_the_nearest_on_each_side(count: int) -> None:
    points = sorted(some_ids(count))
    for place, point in enumerate(points):
        near = {points[(place + step) % count] for step in range(-2, 3)} - {point}
        leaves = expected_leaves(point, points, half=4)
        assert leaves >= near
        assert len(leaves) == min(count - 1, 8)


def test_a_lopsided_ring_has_leaves_on_both_sides() -> None:
    points = [Id(number) for number in range(20)]
    leaves = expected_leaves(Id(0), points, half=2)
    assert leaves == {1, 2, 3, 19}
    assert distance(0, 19) == 19, "although they lie on the same side of the circle"


def test_settled_is_active_and_nobody_missing_or_too_many() -> None:
    points = some_ids(4)
    me, *others = points
    assert is_settled(answer(me, others), points)
    assert not is_settled(answer(me, others, active=False), points)
    assert not is_settled(answer(me, others[1:]), points)
    assert not is_settled(answer(me, [*others, Id(7)]), points)
