"""One peer as a process: its start, its signals, its parent, its data folder."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from structlog.testing import capture_logs

import ringmq.peer.process as process_module
from ringmq.experiments.processes.ports import choose_ports
from ringmq.mqtt_front.config import FrontConfig
from ringmq.overlay.config import OverlayConfig
from ringmq.overlay.core.ids import SPACE, Id
from ringmq.overlay.core.leaf_set import LeafSet
from ringmq.overlay.core.messages import Peer
from ringmq.peer.engines.partitioned.names import partition_of
from ringmq.peer.process import OWN_FILES, PeerProcess, known_addresses, peer
from ringmq.peer.settings.load import RECORD_LINE, SETTINGS
from ringmq.peer.settings.model import FANOUT, PeerConfig

Start = Callable[..., Any]
LISTEN = ("--overlay", "127.0.0.1:0", "--timing", "local", "--no-discovery")


def address_of(process: Any) -> str:
    """Waits until the peer serves, then tells its address."""
    address: str = process.says("active: ").rpartition(" ")[2]
    return address


def status_of(ringmq: Start, address: str) -> dict[str, Any]:
    process = ringmq("status", "--peer", address, "--json")
    assert process.popen.returncode == 0, process.err
    answer: dict[str, Any] = json.loads(process.out)
    return answer


def free_address() -> str:
    return f"127.0.0.1:{choose_ports(0, 1)[0]}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_a_peer_gracefully(start: Start, number: signal.Signals) -> None:
    process = start("peer", *LISTEN)
    address_of(process)
    assert process.end(number) == 0
    assert "Traceback" not in process.err
    assert "stopped" in process.err


async def test_second_signal_ends_the_peer_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    exits: list[int] = []
    monkeypatch.setattr(os, "_exit", exits.append)
    process = PeerProcess(PeerConfig(), None)
    process.stop(signal.SIGINT)
    assert exits == []
    process.stop(signal.SIGINT)
    process.stop(signal.SIGTERM)
    assert exits == [130, 143]


def test_status_command_shows_a_running_peer(start: Start, ringmq: Start) -> None:
    address = address_of(start("peer", *LISTEN))
    answer = status_of(ringmq, address)
    assert answer["active"] is True
    assert answer["address"] == address
    assert answer["leaves"] == {"clockwise": [], "counterclockwise": []}
    shown = ringmq("status", "--peer", address)
    assert shown.popen.returncode == 0
    assert shown.out.startswith(f"peer        {answer['id'][:8]} at {address} of ring ringmq\nstate       active, up ")


def test_status_has_the_pubsub_settings(start: Start, ringmq: Start, tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text("shadows = 1\n[[topics]]\nfilter = 'video/#'\ndispatch = 'guided'\nfanout = 5\n")
    line = ("--shadows", "3", "--dispatch", "guided", "--fanout", "4")
    address = address_of(start("peer", *LISTEN, "--config", str(file), *line))
    answer = status_of(ringmq, address)
    settings = answer["pubsub"]["settings"]
    told = {name: settings[name] for name in ("shadows", "dispatch", "fanout", "rules")}
    assert told == {"shadows": 3, "dispatch": "guided", "fanout": 4, "rules": 1}
    assert (answer["listeners"], answer["front"]) == ({}, None)
    assert answer["pubsub"]["counters"]["unsendable"] == 0
    assert "clients     not served\n" in ringmq("status", "--peer", address).out


def test_scribe_peer_has_its_own_status(start: Start, ringmq: Start, eventually: Callable[..., Any]) -> None:
    line = (*LISTEN, "--mqtt", "127.0.0.1:0", "--dispatch", "scribe")
    first = address_of(start("peer", *line))
    second = address_of(start("peer", *line, "--join", first))
    host, _, port = eventually(lambda: status_of(ringmq, second)["listeners"])["mqtt"].rpartition(":")
    with socket.create_connection((host, int(port)), 10) as client:
        client.settimeout(10)
        client.sendall(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c\x82\x08\0\x01\0\x03a/b\0")
        assert client.recv(4, socket.MSG_WAITALL) == b"\x20\x02\0\0"
        assert client.recv(5, socket.MSG_WAITALL) == b"\x90\x03\0\x01\0"
    answers = [status_of(ringmq, address) for address in (first, second)]
    assert sum(answer["scribe"]["joins"] for answer in answers) > 0
    assert all("pubsub" not in answer for answer in answers)
    assert ringmq("status", "--peer", second).popen.returncode == 0
    topic = ringmq("status", "--peer", second, "--topic", "a/b")
    assert "does not answer questions about topics" in topic.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (("--shadows", "9"), "--shadows must be a whole number from 0 to 8, got 9"),
        (("--dispatch", "scribble"), "--dispatch must be one of direct, guided, scribe, got 'scribble'"),
        (("--fanout", "0"), "--fanout must be a whole number of at least 1, got 0"),
        (("--fanout", "3"), "fanout: 3 has no effect with dispatch direct, which has no tree"),
        (("--fanout", "3", "--dispatch", "scribe"), "fanout: no effect with dispatch scribe, which has trees"),
    ],
)
def test_wrong_pubsub_settings_fail_with_one_line(ringmq: Start, line: tuple[str, ...], says: str) -> None:
    process = ringmq("peer", *LISTEN, *line)
    assert (process.popen.returncode, process.out) == (2, "")
    assert process.err.startswith(f"ringmq: {says}")
    assert process.err.count("\n") == 1


@pytest.mark.parametrize("front", ["own", "amqtt"])
def test_status_has_the_clients(start: Start, ringmq: Start, eventually: Callable[..., Any], front: str) -> None:
    if front == "amqtt":
        pytest.importorskip("amqtt", reason="the extra amqtt is not installed")
    address = address_of(start("peer", *LISTEN, "--mqtt", "127.0.0.1:0", "--front", front))
    listeners = eventually(lambda: status_of(ringmq, address)["listeners"])
    host, _, port = listeners["mqtt"].rpartition(":")
    with socket.create_connection((host, int(port)), 10) as client:
        client.settimeout(10)
        client.sendall(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c\x82\x08\0\x01\0\x03a/b\0")
        assert client.recv(4, socket.MSG_WAITALL) == b"\x20\x02\0\0"
        assert client.recv(5, socket.MSG_WAITALL) == b"\x90\x03\0\x01\0"
        answer = status_of(ringmq, address)
        shown = ringmq("status", "--peer", address)
    assert (answer["front"]["kind"], answer["front"]["clients"]) == (front, 1)
    (subscribed,) = answer["pubsub"]["subscribing"]["filters"]
    assert (subscribed["filter"], subscribed["stage"]) == ("a/b", "in_force")
    assert partition_of("a/b") in [shown["partition"] for shown in answer["pubsub"]["partitions"]["shown"]]
    assert shown.popen.returncode == 0, shown.err
    assert f"clients     1 on mqtt {host}:{port}\n" in shown.out
    assert "subscribes  1 filters in force, 0 on their way\n" in shown.out


def test_two_peers_join(start: Start, ringmq: Start, eventually: Callable[..., Any]) -> None:
    first = address_of(start("peer", *LISTEN))
    second = address_of(start("peer", *LISTEN, "--join", first))
    for one, other in ((first, second), (second, first)):
        eventually(lambda one=one, other=other: neighbours(ringmq, one) == {other}, 5, f"{one} knows {other}")


def neighbours(ringmq: Start, address: str) -> set[str]:
    sides = status_of(ringmq, address)["leaves"]
    return {leaf["address"] for side in sides.values() for leaf in side}


def test_port_in_use_fails_with_one_line(start: Start, ringmq: Start) -> None:
    address = address_of(start("peer", *LISTEN))
    second = ringmq("peer", "--overlay", address)
    assert second.popen.returncode == 1
    assert second.err.startswith("ringmq: ")
    assert second.err.count("\n") == 1
    assert address in second.err


@pytest.mark.parametrize("host", ["192.0.2.1", "no-such-host.invalid"])
def test_address_of_another_machine_fails_with_one_line(ringmq: Start, host: str) -> None:
    process = ringmq("peer", "--overlay", f"{host}:4883", "--insecure", "--log-level", "error")
    assert process.popen.returncode == 1
    assert process.err.startswith("ringmq: ")
    assert process.err.count("\n") == 1


def test_unreachable_seeds_are_tried_until_one_answers(
    start: Start, ringmq: Start, eventually: Callable[..., Any], closed_port: int
) -> None:
    late = free_address()
    joining = start("peer", *LISTEN, "--join", f"127.0.0.1:{closed_port}", "--join", late)
    eventually(lambda: "listening" in joining.err, 10)
    assert "active: " not in joining.out, "it must not found a ring of its own"
    start("peer", *LISTEN[2:], "--overlay", late).says("active: ")
    assert neighbours(ringmq, late) <= {address_of(joining)}
    eventually(lambda: neighbours(ringmq, late) == {address_of(joining)}, 5)


def test_id_survives_a_restart(start: Start, ringmq: Start, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    ids = []
    for _ in range(2):
        process = start("peer", *LISTEN, "--data", data)
        ids.append(status_of(ringmq, address_of(process))["id"])
        assert process.end() == 0
    assert ids[0] == ids[1] == json.loads((tmp_path / "data" / "peer.json").read_text())["id"]


def test_restarted_founder_finds_its_ring(
    start: Start, ringmq: Start, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """At another port, where the others do not look for it."""
    data = ("--data", str(tmp_path / "data"))
    founder = start("peer", *LISTEN[2:], "--overlay", free_address(), *data)
    first = address_of(founder)
    other = address_of(start("peer", *LISTEN, "--join", first))
    eventually(lambda: neighbours(ringmq, first) == {other}, 5)
    assert founder.end() == 0
    again = address_of(start("peer", *LISTEN[2:], "--overlay", free_address(), *data))
    assert again != first
    eventually(lambda: neighbours(ringmq, again) == {other}, 10, "the founder is in the old ring")


def remembered(data: Path) -> set[str]:
    return set(json.loads((data / "peer.json").read_text())["peers"])


def test_two_restarted_peers_serve_without_the_first_seed(
    start: Start, ringmq: Start, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """They were killed young, and know each other all the same."""
    first, *others = where = [free_address() for _ in range(3)]
    lines = {
        address: (*LISTEN[2:], "--overlay", address, "--data", str(tmp_path / address))
        + (() if address == first else ("--join", first))
        for address in where
    }
    young = [start("peer", *lines[first])]
    address_of(young[0])
    young += [start("peer", *lines[address]) for address in others]
    for process in young[1:]:
        process.says("active: ")
    for address in where:
        eventually(lambda address=address: remembered(tmp_path / address), 3, f"{address} has noted somebody")
    for process in young:
        process.end(signal.SIGKILL)
    survivors = [start("peer", *lines[address]) for address in others]
    for process in survivors:
        process.says("active: ", 40)
    for one, other in (others, others[::-1]):
        eventually(lambda one=one, other=other: neighbours(ringmq, one) == {other}, 20, f"{one} knows {other}")
    assert any("founding in" in process.err for process in survivors)
    start("peer", *lines[first]).says("active: ")
    for address in where:
        known = set(where) - {address}
        eventually(lambda address=address, known=known: neighbours(ringmq, address) == known, 20, "all in one ring")


def test_each_peer_is_remembered_soon_after_it_has_joined(
    start: Start, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    """Also the sixth in a row: after a power cut a peer waits for the peers that it remembers."""
    data = tmp_path / "data"
    first = address_of(start("peer", *LISTEN, "--data", str(data)))
    known: set[str] = set()
    for _ in range(6):
        joined = start("peer", *LISTEN, "--join", first)
        known.add(address_of(joined))
        joined.says("active: ")
        eventually(lambda: known <= remembered(data), 1.5, "the newest peer is remembered")


def test_founder_whose_ring_is_gone_founds_another(start: Start, tmp_path: Path, closed_port: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    stored = {"id": "0" * 32, "boot": 1, "peers": [f"127.0.0.1:{closed_port}"]}
    (data / "peer.json").write_text(json.dumps(stored))
    start("peer", *LISTEN[2:], "--overlay", free_address(), "--data", str(data)).says("active: 00000000")


def test_second_peer_on_a_data_folder_is_refused(start: Start, ringmq: Start, tmp_path: Path) -> None:
    address_of(start("peer", *LISTEN, "--data", str(tmp_path / "data")))
    second = ringmq("peer", *LISTEN, "--data", str(tmp_path / "data"))
    assert second.popen.returncode == 1
    assert second.err == f"ringmq: data: {tmp_path / 'data'} is in use by another peer: each needs its own\n"


def test_bad_data_folder_fails_with_one_line(ringmq: Start, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    process = ringmq("peer", *LISTEN, "--data", str(tmp_path / "file"))
    assert process.popen.returncode == 1
    assert process.err.startswith(f"ringmq: data: cannot use {tmp_path / 'file'}: ")
    assert process.err.count("\n") == 1


def test_command_line_overrides_the_file(start: Start, ringmq: Start, tmp_path: Path) -> None:
    file = tmp_path / "peer.toml"
    file.write_text('overlay = "127.0.0.1:1"\ntiming = "local"\ndiscovery = false\nlog_json = true\n')
    process = start("peer", "--config", str(file), "--overlay", "127.0.0.1:0")
    address_of(process)
    assert process.end() == 0
    events = [json.loads(line)["event"] for line in process.err.splitlines()]
    assert {"listening", "active", "stopped"} <= set(events)
    wrong = ringmq("peer", "--config", str(tmp_path / "none.toml"))
    assert wrong.popen.returncode == 2
    assert wrong.err == f"ringmq: config: cannot read {tmp_path / 'none.toml'}: No such file or directory\n"


def test_peer_ends_when_its_parent_is_gone() -> None:
    end, parents_end = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "ringmq", "peer", *LISTEN, "--parent-pipe", str(end)],
        pass_fds=(end,),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"active: ")
        os.close(end)
        os.close(parents_end)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def test_idle_peer_uses_little_memory_and_processor_time(start: Start, usage: Callable[[int], Any]) -> None:
    process = start("peer", *LISTEN)
    address_of(process)
    resident = usage(process.pid).resident_bytes
    print(f"\none peer alone: {resident / 1e6:.1f} MB resident")
    assert resident <= 45e6


WRONG_FILES = {
    "passwords": "nonsense",
    "acl": "nonsense",
    "data": "clients.sqlite",
}


@pytest.mark.parametrize("setting", WRONG_FILES)
def test_wrong_file_ends_the_start_before_the_peer_joins(ringmq: Start, tmp_path: Path, setting: str) -> None:
    file = tmp_path / WRONG_FILES[setting]
    file.write_text("nonsense\n" * 100)
    value = tmp_path if setting == "data" else file
    process = ringmq("peer", *LISTEN, "--log-json", "--mqtt", "127.0.0.1:0", f"--{setting}", str(value))
    assert (process.popen.returncode, process.out) == (1, "")
    *logged, said = process.err.splitlines()
    assert said.startswith("ringmq: ")
    assert str(file) in said
    assert "listening" not in [json.loads(line)["event"] for line in logged]


def test_peer_without_its_listener_leaves_the_ring(ringmq: Start) -> None:
    process = ringmq("peer", *LISTEN, "--log-level", "error", "--mqtt", "nosuchhost.invalid:0")
    assert process.popen.returncode == 1
    assert process.err.startswith("ringmq: cannot listen for MQTT on nosuchhost.invalid:0: ")
    assert process.err.count("\n") == 1
    assert "Errno" not in process.err


@pytest.mark.parametrize(
    ("listener", "got", "told"),
    [
        (None, OWN_FILES, []),
        (("127.0.0.1", 0), OWN_FILES + 10, []),
        (("127.0.0.1", 0), 16, [{"clients": 8, "max_connections": 10}]),
        (("127.0.0.1", 0), 1024, []),
    ],
)
def test_file_limit_bounds_the_clients(
    monkeypatch: pytest.MonkeyPatch, listener: tuple[str, int] | None, got: int, told: list[dict[str, int]]
) -> None:
    asked: list[int] = []

    def allowed(wanted: int) -> int:
        asked.append(wanted)
        return got

    monkeypatch.setattr(process_module, "allow_files", allowed)
    with capture_logs() as lines:
        config = process_module.make_room(PeerConfig(mqtt=listener, limits=FrontConfig(max_connections=10)))
    assert config.limits.max_connections == (told[0]["clients"] if told else 10)
    assert asked == [OWN_FILES + (10 if listener else 0)]
    assert [{name: line[name] for name in ("clients", "max_connections")} for line in lines] == told


@pytest.mark.parametrize(("wanted", "level"), [(100_000, "info"), (99_999, "warning")])
def test_file_limit_below_a_chosen_max_connections_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, wanted: int, level: str
) -> None:
    monkeypatch.setattr(process_module, "allow_files", lambda wanted: OWN_FILES + 50_000)
    with capture_logs() as lines:
        config = process_module.make_room(PeerConfig(mqtt=("127.0.0.1", 0), limits=FrontConfig(max_connections=wanted)))
    assert [line["log_level"] for line in lines] == [level]
    assert config.limits.max_connections == 50_000


def test_overlay_fits_into_own_files() -> None:
    config = OverlayConfig(id=Id(1), boot=1, listen=("127.0.0.1", 0))
    assert config.max_links + config.max_strangers + config.max_dials < OWN_FILES


def test_limits_of_the_file_are_enforced(start: Start, tmp_path: Path, eventually: Callable[..., Any]) -> None:
    file = tmp_path / "peer.toml"
    file.write_text('mqtt = "127.0.0.1:0"\nlog_json = true\n[limits]\nmax_connections = 1\n')
    process = start("peer", *LISTEN, "--config", str(file))
    address_of(process)
    eventually(lambda: "serving MQTT" in process.err and process.err.endswith("\n"))
    serving = next(line for line in map(json.loads, process.err.splitlines()) if line["event"] == "serving MQTT")
    where = ("127.0.0.1", int(serving["address"].rpartition(":")[2]))
    with socket.create_connection(where, 10) as first, socket.create_connection(where, 10) as second:
        second.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert second.recv(1) == b""
        first.sendall(b"\x10\x0d\0\x04MQTT\x04\x02\0\0\0\x01c")
        first.settimeout(10)
        assert first.recv(4) == b"\x20\x02\0\0"
    assert process.end() == 0


def test_every_setting_has_an_option() -> None:
    assert {option.name for option in peer.params} == {*SETTINGS, *RECORD_LINE, "config", "parent_pipe"}


def test_help_shows_the_defaults_of_pubsub() -> None:
    helps = {option.name: option.help for option in peer.params if isinstance(option, click.Option)}
    default = PeerConfig()
    for name, value in {"shadows": default.shadows, "dispatch": default.dispatch, "fanout": FANOUT}.items():
        assert f"[default: {value}]" in (helps[name] or "")


def test_known_addresses_alternate_between_both_sides() -> None:
    leaves = LeafSet(Id(0))
    assert known_addresses(leaves) == []
    leaves.fill(Peer(Id(offset % SPACE), "127.0.0.1", port, 1) for offset, port in ((1, 1), (2, 2), (-1, 3), (-2, 4)))
    assert [port for _, port in known_addresses(leaves)][:4] == [1, 3, 2, 4]
