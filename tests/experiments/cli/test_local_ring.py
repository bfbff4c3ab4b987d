"""A ring of real processes on this machine: it becomes whole, it heals, and it leaves no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from calendar import timegm
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ringmq.experiments.cli import local_ring
from ringmq.experiments.cli.local_ring import (
    RUN,
    STOP_S,
    LocalRing,
    expected_leaves,
    is_settled,
    settings_of,
    typed_name,
)
from ringmq.experiments.processes.ports import choose_ports
from ringmq.overlay.core.ids import ID_BITS, Id
from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import ask_status
from ringmq.peer.errors import ConfigError
from tests.overlay.core.distances import distance

Start = Callable[..., Any]
Eventually = Callable[..., Any]

IDLE_SPAN_S = 4.0
WITHIN_S = 10
FREE = ("--overlay-port", "0", "--mqtt-port", "0")


class Ring:
    """A running `ringmq ring`, observed from outside."""

    def __init__(self, process: Any, peers: int) -> None:
        self.process = process
        self.mqtt_ports = ports_of(process.says("ready: ", 60), f"ready: {peers} peers, mqtt 127.0.0.1")
        self.ports = ports_of(process.says("overlay: "), "overlay: 127.0.0.1")
        assert len(self.mqtt_ports) == len(self.ports) == peers
        self.pids = dict(zip(self.ports, self._children(), strict=True))

    def _children(self) -> list[int]:
        """The pids of the peers, in the order of their ports."""
        text = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        children = {}
        for pid in map(int, text.split()):
            line = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            children[line[line.index("--overlay") + 1]] = pid
        return [children[f"127.0.0.1:{port}"] for port in self.ports]

    def kill_remaining_peers(self) -> None:
        """Kill peers that a failed test left behind. A pid that another process has by now is left alone."""
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
        """Whether each of these peers is active and has exactly the others in its leaf set."""
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
    for running in rings:
        running.kill_remaining_peers()


def gone(usage: Callable[[int], Any], pids: list[int]) -> bool:
    return not any(usage(pid).runs for pid in pids)


def test_ring_becomes_ready_and_leaves_no_process(ring: Start, usage: Any, eventually: Eventually) -> None:
    five = ring(5)
    assert five.whole(five.ports)
    assert five.process.out.count("ready: ") == 1
    assert five.process.end(signal.SIGINT) == 0
    assert gone(usage, five.pids.values())
    assert "Traceback" not in five.process.err


def test_a_ready_ring_says_what_to_try(ring: Start, eventually: Eventually) -> None:
    """The lines work as they are printed, at two peers."""
    three = ring(3)
    three.process.says("try: ")
    eventually(lambda: three.process.out.count("\ntry: ") == 2 and three.process.out.endswith("\n"))
    sub, pub = [shlex.split(line.removeprefix("try: ")) for line in three.process.out.splitlines()[-2:]]
    ports = [int(words[words.index("-p") + 1]) for words in (sub, pub)]
    assert ports == [three.mqtt_ports[0], three.mqtt_ports[-1]]
    with subprocess.Popen([*sub, "-C", "1"], stdout=subprocess.PIPE, text=True) as listening:

        def published() -> bool:
            subprocess.run(pub, timeout=20, check=True)
            return listening.poll() is not None

        try:
            eventually(published, 20, "the message of the second line at the first")
            assert listening.stdout is not None
            assert listening.stdout.read() == "hello world\n"
        finally:
            listening.kill()
    assert three.process.end(signal.SIGINT) == 0


def test_the_program_is_named_as_the_user_can_type_it(tmp_path: Path) -> None:
    program = tmp_path / "a b" / "ringmq"
    program.parent.mkdir()
    program.touch()
    link = tmp_path / "ringmq"
    link.symlink_to(program)
    assert typed_name(str(program), str(link)) == "ringmq"
    assert typed_name(str(program), None) == f"'{program}'"
    assert typed_name(".venv/bin/ringmq", str(link)) == ".venv/bin/ringmq"
    assert typed_name("ringmq/__main__.py", str(link)) == f"{shlex.quote(sys.executable)} -m ringmq"


def test_ring_of_one_peer_is_active(ring: Start) -> None:
    single = ring(1)
    assert single.statuses(single.ports)[0]["active"] is True
    assert single.process.end() == 0


def test_killed_peer_leaves_all_leaf_sets_and_the_ring_goes_on(ring: Start, eventually: Eventually) -> None:
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


def test_paused_peer_is_declared_dead_and_comes_back(ring: Start, eventually: Eventually) -> None:
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


def test_paused_peer_ends_with_the_ring_without_sigkill(ring: Start, usage: Any) -> None:
    three = ring(3)
    os.kill(three.pids[three.ports[1]], signal.SIGSTOP)
    assert three.process.end(signal.SIGINT, within_s=STOP_S - 1) == 0, "it need not be killed"
    assert gone(usage, three.pids.values())


@pytest.mark.parametrize("paused", [False, True])
def test_killed_ring_leaves_no_process(ring: Start, usage: Any, eventually: Eventually, paused: bool) -> None:
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


def test_interrupt_while_starting_leaves_no_process(start: Start, usage: Any, eventually: Eventually) -> None:
    process = start("ring", "--peers", "30", *FREE)
    listing = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    eventually(lambda: len(listing.read_text().split()) >= 5, 20)
    pids = [int(pid) for pid in listing.read_text().split()]
    process.end(signal.SIGINT)
    assert "ready: " not in process.out
    assert "Traceback" not in process.err
    assert gone(usage, pids)


def test_the_page_of_the_ring_is_where_it_says(start: Start) -> None:
    process = start("ring", "--peers", "2", *FREE)
    page = process.says("page: http://127.0.0.1:").removeprefix("page: ")
    with urllib.request.urlopen(page, timeout=10) as response:
        assert b"<title>RingMQ</title>" in response.read()
    with urllib.request.urlopen(f"{page}api/v1/peers", timeout=10) as response:
        peers = json.load(response)["rows"]
    assert len(peers) == 2
    assert [peer["http"] for peer in peers if peer["http"]] == [page.removeprefix("http://").rstrip("/")]
    assert process.end(signal.SIGINT) == 0


def test_peer_has_at_most_45_mb_of_resident_memory(ring: Start, usage: Any) -> None:
    """The first one, which also serves the page, has at most 47 MB."""
    five = ring(5)
    first, *others = [usage(pid).resident_bytes for pid in five.pids.values()]
    print(f"\nfive peers: {max(others) / 1e6:.1f} MB resident at most, {first / 1e6:.1f} MB with the page")
    assert max(others) <= 45e6
    assert first <= 47e6


def test_idle_peers_use_at_most_2_percent_of_a_core(ring: Start, usage: Any, eventually: Eventually) -> None:
    """The measurement spans several heartbeats, which are the work of an idle peer."""
    five = ring(5)
    usages = [usage(pid) for pid in five.pids.values()]
    before, begun = [peer_usage.cpu_s for peer_usage in usages], time.monotonic()
    eventually(lambda: time.monotonic() - begun > IDLE_SPAN_S, IDLE_SPAN_S + 5)
    shares = [
        (peer_usage.cpu_s - was) / (time.monotonic() - begun) for peer_usage, was in zip(usages, before, strict=True)
    ]
    print(f"\nfive idle peers: {100 * max(shares):.2f} % of a core at most")
    assert max(shares) <= 0.02, "measured below 0.01; the clock counts in hundredths of a second"


def test_the_delay_reaches_the_peers(ring: Start) -> None:
    three = ring(3, "--delay", "5-6ms")
    assert three.whole(three.ports)
    trips_ms = [link["rtt_ms"] for status in three.statuses(three.ports) for link in status["links"] if "id" in link]
    assert len(trips_ms) >= 4
    assert min(trips_ms) >= 10


@pytest.mark.parametrize("option", ["--overlay-port", "--mqtt-port"])
def test_port_in_use_is_named_before_any_peer_starts(ringmq: Start, option: str) -> None:
    ports = choose_ports(0, 3)
    with socket.create_server(("127.0.0.1", ports[2])):
        process = ringmq("ring", "--peers", "3", *FREE, option, str(ports[0]))
    assert process.popen.returncode == 1
    assert process.out == ""
    assert process.err == f"ringmq: port {ports[2]} of {ports[0]}-{ports[2]} in use: try {option} 0\n"


def test_overlapping_port_ranges_are_refused(ringmq: Start) -> None:
    process = ringmq("ring", "--peers", "3", "--overlay-port", "20002", "--mqtt-port", "20000")
    assert process.popen.returncode == 2
    assert process.err.startswith(
        "ringmq: --overlay-port: 20002-20004 and 20000-20002 overlap: each peer needs its own "
    )
    assert process.err.count("\n") == 1


def test_child_that_cannot_start_ends_the_ring(ringmq: Start, tmp_path: Path) -> None:
    (tmp_path / "peer-003").touch()
    process = ringmq("ring", "--peers", "4", *FREE, "--data", str(tmp_path))
    assert process.popen.returncode == 1
    assert process.out == ""
    assert process.err.count("\n") == 1
    assert process.err.startswith("ringmq: peer 127.0.0.1:")
    assert f"did not start: data: cannot use {tmp_path / 'peer-003'}: " in process.err


def test_ring_with_data_keeps_its_ids_across_a_restart(ring: Start, tmp_path: Path) -> None:
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
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                try:
                    connection.sendall(chance.randbytes(size))
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(65536):
                        pass
                except ConnectionError:
                    continue
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for port in three.ports:
            sender.sendto(chance.randbytes(500), ("127.0.0.1", port))
    assert three.whole(three.ports)
    assert three.process.popen.poll() is None
    assert three.process.end() == 0
    assert "ended" not in three.process.err


def publish(port: int, topic: str, text: str) -> None:
    """Publish with QoS 1 and wait for the acknowledgement."""
    command = ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(port), "-t", topic, "-q", "1", "-m", text]
    subprocess.run(command, check=True, capture_output=True, timeout=WITHIN_S)


@pytest.fixture
def listen(tmp_path: Path) -> Iterator[Callable[..., Callable[[], list[str]]]]:
    """Subscribe a client to all topics of the test; return a function that reads its messages."""
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
def test_clients_of_different_peers_get_each_message_once(
    ring: Start, listen: Start, ringmq: Start, eventually: Eventually, options: tuple[str, ...]
) -> None:
    three = ring(3, *options)
    heard = [listen(port) for port in three.mqtt_ports]
    eventually(lambda: [in_force(status) for status in three.statuses(three.ports)] == [1, 1, 1], 20, "all subscribe")
    wanted = [f"from/{port} {number}" for port in three.mqtt_ports for number in range(3)]
    for line in wanted:
        topic, _, text = line.partition(" ")
        publish(int(topic.removeprefix("from/")), topic, text)
    for messages in heard:
        eventually(lambda read=messages: sorted(read()) == sorted(wanted), 10, "each client has each message once")
    topic = f"from/{three.mqtt_ports[0]}"
    found = topic_status(ringmq, three.ports[0], topic)["partitions"]
    for port in three.ports[1:]:
        other = topic_status(ringmq, port, topic)["partitions"]
        assert [row["coordinator"] for row in other] == [row["coordinator"] for row in found]
    (held,) = [row["held"] for row in found if "from/#" in row["filters"]]
    assert {subscriber["address"] for subscriber in held["subscribers"]} == {
        f"127.0.0.1:{port}" for port in three.ports
    }
    settings = [status["pubsub"]["settings"] for status in three.statuses(three.ports)]
    assert {(of_peer["dispatch"], of_peer["fanout"], of_peer["shadows"]) for of_peer in settings} == {
        ("guided", 1, 1) if options else ("direct", None, 2)
    }
    assert three.process.end(signal.SIGINT) == 0


def topic_status(ringmq: Start, port: int, topic: str) -> dict[str, Any]:
    process = ringmq("status", "--peer", f"127.0.0.1:{port}", "--topic", topic, "--json")
    assert process.popen.returncode == 0, process.err
    answer: dict[str, Any] = json.loads(process.out)
    return answer


def in_force(status: dict[str, Any]) -> int:
    count: int = status["pubsub"]["subscribing"]["stages"]["in_force"] if status else 0
    return count


def test_persistent_session_survives_a_restart_of_the_ring(ring: Start, eventually: Eventually, tmp_path: Path) -> None:
    """The message that was queued for the absent client is delivered after the restart."""
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


def test_config_file_applies_to_all_peers(ring: Start, tmp_path: Path) -> None:
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
            assert closes(second), "max_connections is 1"
    assert two.process.end() == 0


def closes(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("mqtt = '127.0.0.1:1'", {}, "mqtt: belongs to one peer, but all peers share this file: use --mqtt-port"),
        ("data = 'a'", {}, "data: belongs to one peer, but all peers share this file: use --data"),
        ("shadow = 2", {}, "unknown setting shadow: did you mean shadows?"),
    ],
)
def test_setting_of_a_single_peer_is_refused_in_the_file_of_all(
    tmp_path: Path, text: str, line: dict[str, object], says: str
) -> None:
    file = tmp_path / "all.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        settings_of(file, line)
    assert str(caught.value) == f"{file}: {says}"


def test_command_line_completes_and_overrides_the_file(tmp_path: Path) -> None:
    file = tmp_path / "all.toml"
    file.write_text("")
    run = {"run": "r"}
    assert settings_of(file, {"fanout": None, **run}) == settings_of(None, run) == {"timing": "local", **run}
    file.write_text("timing = 'wan'\n[limits]\nmax_queued = 7\n[record]\nrun = 'mine'")
    assert settings_of(file, {}) == {}
    assert settings_of(file, {"timing": "lan", "shadows": 0}) == {"timing": "lan", "shadows": 0}


def test_default_run_name_is_the_start_time() -> None:
    run = settings_of(None, {})["run"]
    assert isinstance(run, str)
    assert abs(timegm(time.strptime(run, RUN)) - time.time()) < 60


@pytest.mark.parametrize(("name", "value"), [("file", "r.jsonl"), ("metrics", "127.0.0.1:9183")])
def test_record_destination_of_a_single_peer_is_refused(tmp_path: Path, name: str, value: str) -> None:
    file = tmp_path / "all.toml"
    file.write_text(f"[record]\n{name} = '{value}'")
    with pytest.raises(ConfigError, match=f"record: {name}: belongs to one peer, but all peers share this file: "):
        settings_of(file, {})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--dispatch", "scribble"), "ringmq: --dispatch must be one of direct, guided, scribe, got 'scribble'"),
        (("--fanout", "3"), "ringmq: fanout: 3 has no effect with dispatch direct"),
        (("--shadows", "9"), "ringmq: --shadows must be a whole number from 0 to 8, got 9"),
        (("--timing", "fast"), "ringmq: --timing must be one of local, lan, wan, got 'fast'"),
        (
            ("--delay", "fast"),
            "ringmq: --delay must be a rising range such as 1-10ms, at most 10s, got 'fast'",
        ),
    ],
)
def test_wrong_setting_fails_with_one_line(ringmq: Start, options: tuple[str, ...], says: str) -> None:
    process = ringmq("ring", "--peers", "3", *FREE, *options)
    assert (process.popen.returncode, process.out) == (2, "")
    assert process.err.startswith(says)
    assert process.err.count("\n") == 1


async def test_ring_is_ready_when_all_peers_are_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """First the last peer does not answer and the others do not know it. Then it lacks one of them, while the second
    peer serves no clients."""
    ids = some_ids(3)
    asked: list[int] = []

    async def ask(address: tuple[str, int], timeout_s: float) -> dict[str, Any]:
        number = address[1]
        asked.append(number)
        others = [peer_id for peer_id in ids if peer_id != ids[number]]
        times = asked.count(number)
        if number == 2 and times == 1:
            raise OverlayError("not yet")
        status = answer(ids[number], others[: min(times, 2) if number != 2 else times - 1])
        return status | {"listeners": {}} if (number, times) == (1, 2) else status

    monkeypatch.setattr(local_ring, "ask_status", ask)
    watched = LocalRing(range(3), range(3, 6), [], None)
    watched.children = [Unborn(address) for address in watched.addresses]
    settled: list[int] = []
    await watched.settle(lambda: settled.append(len(asked)))
    assert settled == [6, 8, 8], "a settled peer is not asked again; no peer is settled before all ids are known"
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
    status = {"id": me.hex(), "active": active, "listeners": {"mqtt": "127.0.0.1:1"}}
    return status | {"leaves": {"clockwise": side, "counterclockwise": side[::-1]}}


def some_ids(count: int) -> list[Id]:
    chance = random.Random(count)
    return [Id(chance.getrandbits(ID_BITS)) for _ in range(count)]


@pytest.mark.parametrize("count", [1, 2, 5, 8, 9, 10, 50])
def test_expected_leaves_are_the_nearest_on_each_side(count: int) -> None:
    ids = sorted(some_ids(count))
    for position, own_id in enumerate(ids):
        near = {ids[(position + step) % count] for step in range(-2, 3)} - {own_id}
        leaves = expected_leaves(own_id, ids, half=4)
        assert leaves >= near
        assert len(leaves) == min(count - 1, 8)


def test_lopsided_ring_has_leaves_on_both_sides() -> None:
    ids = [Id(number) for number in range(20)]
    leaves = expected_leaves(Id(0), ids, half=2)
    assert leaves == {1, 2, 3, 19}
    assert distance(0, 19) == 19, "although they lie on the same side of the circle"


def test_settled_peer_is_active_with_exactly_its_expected_leaf_set() -> None:
    ids = some_ids(4)
    me, *others = ids
    assert is_settled(answer(me, others), ids)
    assert not is_settled(answer(me, others, active=False), ids)
    assert not is_settled(answer(me, others[1:]), ids)
    assert not is_settled(answer(me, [*others, Id(7)]), ids)
