"""The front alone in a process: it serves until SIGTERM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from ringmq.experiments.load.raw_clients import connected
from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.servers import Server


def test_front_serves_until_sigterm() -> None:
    port = choose_ports(0, 1)[0]
    command = (sys.executable, "-m", "ringmq.experiments.processes.front_server", str(port))
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            server = Server("ringmq", process, ("127.0.0.1", port))
            server.await_ready()
            with connected(server.address, "a") as client:
                os.kill(process.pid, signal.SIGTERM)
                assert client.recv(100) == b""
            _, errors = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, errors) == (0, b"")
