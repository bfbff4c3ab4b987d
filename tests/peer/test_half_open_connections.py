"""Connections that say nothing: they end in time, and take nothing that the ring needs."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ringmq.peer.settings.addresses import parse_address
from tests.conftest import wait_until

FILES = 512
"""The limit of open files of the peer."""
WITHIN_S = 20.0
LINE = ("peer", "--overlay", "127.0.0.1:0", "--mqtt", "127.0.0.1:0", "--timing", "local", "--no-discovery")


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Callable[[], str]]:
    """A peer that may open few files; gives its overlay address."""
    ended: list[subprocess.Popen[str]] = []

    def start() -> str:
        # The limit is inherited: a process in between sets it.
        command = f"import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, ({FILES}, {FILES})); "
        command += "os.execv(sys.executable, [sys.executable, '-m', 'ringmq', *sys.argv[1:]])"
        with (tmp_path / "err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", command, *LINE],
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
                cwd=tmp_path,
            )
        ended.append(process)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("active: "), (tmp_path / "err").read_text()
        return line.strip().rpartition(" ")[2]

    yield start
    for process in ended:
        process.kill()
        process.communicate()


def test_two_thousand_of_them_at_the_mqtt_port_leave_the_status_reachable(
    limited: Callable[[], str], ringmq: Callable[..., Any]
) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    overlay = limited()

    def status() -> dict[str, Any]:
        asked = ringmq("status", "--peer", overlay, "--json")
        assert asked.popen.returncode == 0, asked.err
        told: dict[str, Any] = json.loads(asked.out)
        return told

    wait_until(lambda: status()["listeners"], WITHIN_S)
    address = parse_address(status()["listeners"]["mqtt"])
    try:
        with ExitStack() as stack:
            for _ in range(2000):
                stack.enter_context(socket.create_connection(address, WITHIN_S))
            told = status()["front"]
            assert 0 < told["clients"] <= FILES // 2
            # `connect_timeout_s` ends the silent ones.
            wait_until(lambda: status()["front"]["clients"] == 0, WITHIN_S)
            assert status()["front"]["counters"]["refused"] == 2000
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
