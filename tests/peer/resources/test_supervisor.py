"""The words to the supervisor, as systemd hears them."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringmq.peer.resources.supervisor import Supervisor
from tests.conftest import wait_until
from tests.peer.rings import Start


class Systemd:
    """The socket of a supervisor."""

    def __init__(self, address: str) -> None:
        self.name = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self.socket.setblocking(False)
        self.said: list[str] = []

    def heard(self) -> list[str]:
        try:
            while True:
                self.said.append(self.socket.recv(1000).decode())
        except BlockingIOError:
            return self.said


@pytest.fixture(params=["file", "abstract"])
def systemd(request: pytest.FixtureRequest) -> Iterator[Systemd]:
    # The name of a socket has at most some 100 characters, fewer than a folder of pytest.
    with tempfile.TemporaryDirectory() as folder:
        made = Systemd(str(Path(folder) / "notify") if request.param == "file" else f"@ringmq-{os.getpid()}-notify")
        yield made
        made.socket.close()


async def until(systemd: Systemd, count: int) -> list[str]:
    deadline = time.monotonic() + 10
    while len(systemd.heard()) < count:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)
    return systemd.said


async def test_it_is_said_once_that_the_process_is_ready(systemd: Systemd) -> None:
    environment = {"NOTIFY_SOCKET": systemd.name, "OTHER": "1"}
    supervisor = Supervisor(environment)
    assert environment == {"OTHER": "1"}, "processes that this one starts are not asked"
    supervisor.start()
    supervisor.ready()
    supervisor.ready()
    supervisor.stop()
    assert systemd.heard() == ["READY=1", "STOPPING=1"]


async def test_signs_of_life_come_three_times_within_the_limit(systemd: Systemd) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": systemd.name, "WATCHDOG_USEC": "60000"})
    began = asyncio.get_running_loop().time()
    supervisor.start()
    assert (await until(systemd, 4))[:4] == ["WATCHDOG=1"] * 4
    assert asyncio.get_running_loop().time() - began >= 0.059
    supervisor.stop()


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"WATCHDOG_USEC": "1000"},
        {"NOTIFY_SOCKET": "/nowhere/at/all", "WATCHDOG_USEC": "-1"},
        {"NOTIFY_SOCKET": "@nobody-listens-here", "WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"},
        {"NOTIFY_SOCKET": "x" * 200},
    ],
)
async def test_without_a_supervisor_nothing_happens(environment: dict[str, str]) -> None:
    supervisor = Supervisor(environment)
    supervisor.start()
    supervisor.ready()
    supervisor.stop()
    assert supervisor._timer is None


def test_a_peer_says_that_it_is_ready_when_it_serves(
    start: Start, systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", systemd.name)
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    peer = start("peer", "--overlay", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--no-discovery")
    wait_until(lambda: "READY=1" in systemd.heard(), 20.0)
    assert "serving MQTT" in peer.err
    count = len(systemd.heard())
    wait_until(lambda: systemd.heard()[count:].count("WATCHDOG=1") >= 2, 10.0)
    assert peer.end(signal.SIGTERM) == 0
    assert systemd.heard()[-1] == "STOPPING=1"
