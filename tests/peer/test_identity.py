"""Rings with identity, of real processes: machines join with one printed line, and strangers stay outside."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ringmq.experiments.processes.ports import choose_ports
from ringmq.peer.settings.tokens import Token, parse_token
from tests.peer.rings import LATEST_S, Client

Start = Callable[..., Any]
Eventually = Callable[..., Any]

LINE = ("--timing", "local", "--log-level", "info")


class SafeRing:
    """A founder and its machines on this one, each with its data folder."""

    def __init__(self, start: Start, ringmq: Start, eventually: Eventually, folder: Path) -> None:
        self.start, self.ringmq, self._eventually, self.folder = start, ringmq, eventually, folder
        self.overlay = [f"127.0.0.1:{port}" for port in choose_ports(0, 6)]
        self.processes: dict[int, Any] = {}

    def data(self, number: int) -> str:
        return str(self.folder / f"machine {number}")

    def run(self, number: int, *options: str) -> Any:
        """Start a machine, and wait until it is in a ring."""
        process = self.begin(number, *options)
        process.says("active: ", LATEST_S)
        return process

    def begin(self, number: int, *options: str) -> Any:
        line = (*LINE, "--overlay", self.overlay[number], "--mqtt", "127.0.0.1:0", "--data", self.data(number))
        self.processes[number] = self.start("peer", *line, *options)
        return self.processes[number]

    def found(self) -> Any:
        return self.run(0, "--identity", "required")

    def token(self, *options: str, at: int = 0) -> str:
        """From the line that `ringmq invite` prints."""
        printed = self.ringmq("invite", "--data", self.data(at), *options)
        assert printed.popen.returncode == 0, printed.err
        words = shlex.split(printed.out)
        assert words[:2] == ["ringmq", "peer"]
        return words[words.index("--join") + 1]

    def of(self, count: int) -> SafeRing:
        self.found()
        for number in range(1, count):
            self.run(number, "--join", self.token("--name", f"machine-{number}"))
        self.is_whole(*range(count))
        return self

    def status(self, number: int) -> dict[str, Any]:
        told = self.ringmq("status", "--data", self.data(number), "--json")
        return dict(json.loads(told.out)) if told.popen.returncode == 0 else {}

    def is_whole(self, *numbers: int) -> None:
        wanted = {self.overlay[number] for number in numbers}

        def whole() -> bool:
            return all(
                {leaf["address"] for leaf in self.status(number).get("leaves", {"clockwise": []})["clockwise"]}
                == wanted - {self.overlay[number]}
                for number in numbers
            )

        self._eventually(whole, 2 * LATEST_S)

    def client(self, number: int, name: str, *filters: str) -> Client:
        return Client(self.status(number)["listeners"]["mqtt"], name, *filters)


@pytest.fixture
def safe(start: Start, ringmq: Start, eventually: Eventually, tmp_path: Path) -> SafeRing:
    return SafeRing(start, ringmq, eventually, tmp_path)


def messages_cross(ring: SafeRing, publisher: int, subscriber: int, eventually: Eventually, text: str) -> None:
    there = ring.client(subscriber, f"in-{text}", "t/#")
    ring.client(publisher, f"out-{text}").publish("t/x", text.encode(), qos=1)
    eventually(lambda: ("t/x", text.encode()) in there.read(), LATEST_S)


def test_three_commands_make_a_ring_of_three(safe: SafeRing, eventually: Eventually) -> None:
    founder = safe.found()
    # The line that the founder prints by itself.
    founder.says("(good once", LATEST_S)
    printed = next(line for line in founder.out.splitlines() if "--join" in line)
    second = safe.run(1, "--join", printed.split()[-1])
    assert "admitted" in second.err
    # The second machine prints the next line.
    safe.run(2, "--join", safe.token("--name", "kitchen", at=1))
    safe.is_whole(0, 1, 2)
    assert safe.status(2)["trust"] == "identity"
    assert safe.status(2)["name"] == "kitchen"
    messages_cross(safe, 0, 2, eventually, "hello")
    shown = safe.ringmq("status", "--data", safe.data(2))
    assert "trust       peers prove who they are; this one is kitchen\n" in shown.out
    # From another machine of the ring, with the certificate of that machine.
    remote = safe.ringmq("status", "--data", safe.data(2), "--peer", safe.overlay[0])
    assert "state       active" in remote.out
    traced = safe.ringmq("status", "--data", safe.data(2), "--topic", "t/x")
    assert "coordinator" in traced.out, traced.err


def test_members_restart_alone_and_need_nobody(safe: SafeRing, eventually: Eventually) -> None:
    safe.of(3)
    ids = [safe.status(number)["id"] for number in range(3)]
    for number in range(3):
        safe.processes[number].end(signal.SIGKILL)
    # The founder and its disk are gone for good, and the same lines are used again, tokens and all.
    shutil.rmtree(safe.data(0))
    safe.run(2, "--join", safe_line(safe))
    safe.run(1)
    safe.is_whole(1, 2)
    assert [safe.status(number)["id"] for number in (1, 2)] == ids[1:]
    safe.run(3, "--join", safe.token(at=1))
    safe.is_whole(1, 2, 3)
    messages_cross(safe, 3, 2, eventually, "again")


def safe_line(ring: SafeRing) -> str:
    """A token that was used long ago."""
    return str(Token(bytes(16), bytes(16), ("127.0.0.1", int(ring.overlay[0].rpartition(":")[2]))))


def test_a_token_is_refused_the_second_time(safe: SafeRing) -> None:
    safe.found()
    token = safe.token()
    safe.run(1, "--join", token)
    second = safe.begin(2, "--join", token)
    assert second.popen.wait(LATEST_S) == 1
    assert second.err.splitlines()[-1].endswith("refuses: the token was used already: `ringmq invite` prints another")
    assert "joins_refused" in safe.processes[0].err
    assert "127.0.0.1" in safe.processes[0].err


def test_an_expired_token_is_refused(safe: SafeRing, eventually: Eventually) -> None:
    safe.found()
    token = safe.token("--for", "1s")
    stored = json.loads((Path(safe.data(0)) / "identity" / "invitations.json").read_text())
    eventually(lambda: time.time() > stored["invitations"][-1]["over_at"], LATEST_S)
    late = safe.begin(1, "--join", token)
    assert late.popen.wait(LATEST_S) == 1
    assert "the token has expired" in late.err


def test_another_peer_at_the_address_of_a_token_learns_nothing(safe: SafeRing) -> None:
    safe.found()
    token = parse_token(safe.token())
    wrong = Token(bytes(16), token.secret, token.address)
    process = safe.begin(1, "--join", str(wrong))
    assert process.popen.wait(LATEST_S) == 1
    assert "the peer there is not the one that printed the token" in process.err


def test_a_ring_of_another_name_refuses_a_newcomer(safe: SafeRing) -> None:
    safe.found()
    process = safe.begin(1, "--ring", "hall 8", "--join", safe.token())
    assert process.popen.wait(LATEST_S) == 1
    assert "this is ring 'ringmq', and not 'hall 8': use the same name" in process.err


def test_a_newcomer_waits_for_its_inviter(safe: SafeRing, eventually: Eventually) -> None:
    safe.found()
    token = safe.token()
    safe.processes[0].end()
    process = safe.begin(1, "--join", token)
    eventually(lambda: "waits for the peer that printed the token" in process.err, LATEST_S)
    safe.run(0)
    process.says("active: ", 3 * LATEST_S)
    safe.is_whole(0, 1)


def test_a_stranger_learns_nothing_and_is_logged(safe: SafeRing, eventually: Eventually) -> None:
    safe.of(2)
    keeper = safe.client(0, "keeper", "secret/#")
    address = safe.overlay[0]
    stranger = safe.start("peer", *LINE, "--overlay", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--join", address)
    eventually(lambda: "unproven" in stranger.err, LATEST_S)
    asked = safe.ringmq("status", "--peer", address)
    assert asked.popen.returncode == 1
    assert "refuses: unproven: peers of this ring prove who they are" in asked.err
    eventually(lambda: "handshakes_refused" in safe.processes[0].err, LATEST_S)
    line = next(line for line in safe.processes[0].err.splitlines() if "handshakes_refused" in line)
    assert "127.0.0.1" in line
    assert "unproven" in line
    safe.client(1, "out").publish("secret/x", b"mine", qos=1)
    eventually(lambda: ("secret/x", b"mine") in keeper.read(), LATEST_S)
    safe.is_whole(0, 1)


def test_a_peer_of_another_ring_with_identity_is_refused(safe: SafeRing, eventually: Eventually) -> None:
    safe.of(2)
    other = safe.run(4, "--identity", "required")
    assert other.end() == 0
    foreign = safe.begin(4, "--join", safe.overlay[0])
    eventually(lambda: "its certificate is not of this ring" in foreign.err, LATEST_S)
    eventually(lambda: "handshakes_refused" in safe.processes[0].err, LATEST_S)
    safe.is_whole(0, 1)


def test_a_copied_folder_is_refused(safe: SafeRing, eventually: Eventually) -> None:
    safe.of(2)
    shutil.copytree(safe.data(1), safe.data(3), ignore=shutil.ignore_patterns("lock", "*.sock"))
    # Also if somebody tries to give it another id.
    for missing in ("taken", "peer.json"):
        (Path(safe.data(3)) / missing).unlink(missing_ok=True)
    copy = safe.begin(3, "--join", safe.overlay[0])
    assert copy.popen.wait(2 * LATEST_S) == 1
    assert "data folder?" in copy.err.splitlines()[-1]
    messages_cross(safe, 0, 1, eventually, "original")


def test_a_folder_with_an_identity_stays_in_its_ring(safe: SafeRing) -> None:
    safe.found().end()
    process = safe.begin(0, "--insecure")
    assert process.popen.wait(LATEST_S) == 1
    assert "makes this peer a member of a ring with identity" in process.err
    # Its settings need not say so again.
    safe.run(0)
    assert safe.status(0)["trust"] == "identity"


def test_the_line_for_the_next_machine_is_printed_until_there_is_one(safe: SafeRing) -> None:
    """The start that has founded the ring may have failed before."""
    safe.found().end()
    again = safe.run(0)
    again.says("ring ringmq has one peer so far. To add a machine, there:", LATEST_S)
    words = shlex.split(again.says("    ringmq peer ", LATEST_S))
    safe.run(1, "--join", words[words.index("--join") + 1])
    safe.is_whole(0, 1)


def test_a_peer_without_a_token_founds_no_ring_beside_that_of_others(safe: SafeRing) -> None:
    process = safe.begin(1, "--identity", "required", "--join", safe.overlay[0])
    assert process.popen.wait(LATEST_S) == 1
    assert f"join: {safe.overlay[0]} needs a token in front" in process.err
    assert not (Path(safe.data(1)) / "identity" / "peer.pem").exists()


def test_a_ring_on_loopback_stays_as_it_was(safe: SafeRing) -> None:
    safe.run(0)
    assert safe.status(0)["trust"] == "loopback"
    assert not (Path(safe.data(0)) / "identity").exists()
    refused = safe.ringmq("invite", "--data", safe.data(0))
    assert refused.popen.returncode == 1
    assert "peers of this ring do not prove who they are" in refused.err


def test_an_open_address_needs_identity_or_a_word(
    ringmq: Start, start: Start, eventually: Eventually, tmp_path: Path
) -> None:
    wide = ("peer", *LINE, "--overlay", "0.0.0.0:0", "--advertise", "127.0.0.1")
    without = ringmq(*wide)
    assert without.popen.returncode == 2
    assert "ringmq: data: missing, but other machines can reach overlay 0.0.0.0:0" in without.err
    aloud = start(*wide, "--insecure")
    address = aloud.says("active: ").rpartition(" ")[2]
    eventually(lambda: "insecure: whoever reaches the overlay" in aloud.err, LATEST_S)
    assert "trust       none: whoever reaches" in ringmq("status", "--peer", address).out
    safely = start(*wide, "--data", str(tmp_path / "data"))
    safely.says("active: ")
    safely.says("ring ringmq founded", LATEST_S)


def test_a_folder_of_an_open_ring_is_not_taken_into_another_by_accident(safe: SafeRing) -> None:
    """As after an update of a ring that had no identity."""
    safe.run(0)
    safe.run(1, "--join", safe.overlay[0])
    safe.is_whole(0, 1)
    safe.processes[1].end()
    process = safe.begin(1, "--identity", "required")
    assert process.popen.wait(LATEST_S) == 1
    assert "knows peers of a ring without identity: set insecure" in process.err


def test_an_expelled_machine_is_out_at_once_and_for_ever(safe: SafeRing, eventually: Eventually) -> None:
    safe.of(4)
    safe.processes[3].end()
    keeper = safe.client(1, "keeper", "t/#")
    began = time.monotonic()
    told = safe.ringmq("expel", "machine-2", "--data", safe.data(0))
    assert told.popen.returncode == 0, told.err
    assert told.out.startswith("machine-2 (")
    # It ends by itself, and says why; so it does when it is started again.
    assert safe.processes[2].popen.wait(LATEST_S) == 1
    assert time.monotonic() - began < LATEST_S
    for process in (safe.processes[2], safe.begin(2, "--join", safe.overlay[1])):
        assert process.popen.wait(LATEST_S) == 1
        assert "this peer was expelled from its ring at " in process.err.splitlines()[-1]
    for number in (0, 1):
        eventually(lambda number=number: "peer expelled" in safe.processes[number].err, LATEST_S)
    # One that was away obeys, and a copy of the folder from before, which knows of nothing, is refused.
    safe.run(3)
    safe.is_whole(0, 1, 3)
    eventually(lambda: "peer expelled" in safe.processes[3].err, LATEST_S)
    (Path(safe.data(2)) / "identity" / "expelled.json").unlink()
    again = safe.begin(2, "--join", safe.overlay[3])
    assert again.popen.wait(LATEST_S) == 1
    assert "this peer was expelled" in again.err
    safe.client(3, "out").publish("t/x", b"without it", qos=1)
    eventually(lambda: ("t/x", b"without it") in keeper.read(), LATEST_S)
    # A new token makes it a new peer.
    shutil.rmtree(safe.data(2))
    safe.run(2, "--join", safe.token("--name", "machine-2b"))
    safe.is_whole(0, 1, 2, 3)
