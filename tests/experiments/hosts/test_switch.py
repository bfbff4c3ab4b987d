"""The switch, with a pair of sockets for each line: delay, loss, overtaking, lines taken out and blocked pairs."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from ringmq.experiments.hosts import switch

WITHIN_S = 10.0
LINES = 3


def frame(source: int, target: int | None, text: bytes) -> bytes:
    """From the hardware address of a line to that of another, or to all."""
    address = b"\xff" * 6 if target is None else b"\x02\x00\x00\x00\x00%c" % target
    return address + b"\x02\x00\x00\x00\x00%c" % source + b"\x00\x00" + text


class Running:
    """A switch as a process, and the hosts' ends of its lines."""

    def __init__(self, weather: str) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(LINES)]
        self.hosts = [pair[0] for pair in pairs]
        lines = [pair[1] for pair in pairs]
        for line in lines:
            line.setblocking(False)
        self.process = subprocess.Popen(
            [sys.executable, "-P", switch.__file__, "1", *weather.split(), *(str(line.fileno()) for line in lines)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[line.fileno() for line in lines],
        )
        for line in lines:
            line.close()
        for number in range(LINES):  # so that it knows the way to each
            self.send(number, None, b"hello")
        for number in range(LINES):
            for _ in range(LINES - 1):
                self.receive(number)

    def close(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        for host in self.hosts:
            host.close()

    def order(self, order: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{order}\n".encode())
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"ok\n"

    def send(self, source: int, target: int | None, text: bytes) -> None:
        self.hosts[source].send(frame(source, target, text))

    def receive(self, number: int) -> bytes:
        self.hosts[number].settimeout(WITHIN_S)
        return self.hosts[number].recv(2048)[14:]

    def gets(self, number: int) -> list[bytes]:
        """What has come to a line until a frame that is sent now, by another way, has come as well."""
        self.order("block")
        self.send((number + 1) % LINES, number, b"end")
        found = []
        while (text := self.receive(number)) != b"end":
            found.append(text)
        return found


@pytest.fixture
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    made = Running(getattr(request, "param", "0 0 0 0"))
    yield made
    made.close()


def test_a_frame_goes_to_its_line_and_a_broadcast_to_all_others(running: Running) -> None:
    running.send(0, 1, b"one")
    running.send(0, None, b"all")
    assert [running.receive(1), running.receive(1)] == [b"one", b"all"]
    assert running.receive(2) == b"all"


def test_a_blocked_pair_loses_one_direction_and_broadcasts_too(running: Running) -> None:
    running.order("block 0>1 2>0")
    running.send(0, 1, b"lost")
    running.send(0, None, b"all")
    running.send(1, 0, b"back")
    assert running.receive(2) == b"all"
    assert running.receive(0) == b"back"
    assert running.gets(1) == []
    running.send(0, 1, b"again")  # `gets` has taken the blocks back
    assert running.receive(1) == b"again"


def test_a_line_that_is_taken_out_neither_sends_nor_receives(running: Running) -> None:
    running.order("cut 1")
    running.send(0, 1, b"to it")
    running.send(1, 2, b"from it")
    running.send(0, 2, b"other")
    assert running.receive(2) == b"other"
    running.order("heal 1")
    assert running.gets(1) == []


def test_weather_changes_while_it_runs(running: Running) -> None:
    running.order("weather 0 0 1 0")
    running.send(0, 1, b"lost")
    for _ in range(2):  # with the first, or before it, the switch takes the frame
        running.order("weather 0 0 1 0")
    running.order("weather 0.05 0 0 0")
    begun = time.monotonic()
    running.send(0, 2, b"late")
    assert running.receive(2) == b"late"
    assert time.monotonic() - begun >= 0.05
    running.order("weather 0 0 0 0")
    assert running.gets(1) == []


@pytest.mark.parametrize(
    ("running", "ordered"), [("0.02 0.02 0 0", True), ("0.02 0.02 0 1", False)], indirect=["running"]
)
def test_frames_keep_their_order_unless_they_may_overtake(running: Running, ordered: bool) -> None:
    sent = [b"%d" % number for number in range(60)]
    for text in sent:
        running.send(0, 1, text)
    got = [running.receive(1) for _ in sent]
    assert sorted(got, key=int) == sent
    assert (got == sent) is ordered


def test_it_ends_with_its_orders(running: Running) -> None:
    assert running.process.stdin is not None
    running.process.stdin.close()
    assert running.process.wait(WITHIN_S) == 0
    running.process.stdin = None
