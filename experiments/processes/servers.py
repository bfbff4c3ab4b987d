"""The compared servers: their start on a core and a port of their own, and their end.

Knows their command lines and configuration, nothing about load.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ringmq.experiments.load.raw_clients import Address, BenchError
from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.signals import held_back

READY_S: Final = 20.0
STOP_S: Final = 10.0
LOOK_S: Final = 0.02
"""Time between two attempts to connect to a starting server."""

MOSQUITTO: Final = """\
listener {port} 127.0.0.1
allow_anonymous true
persistence false
log_dest none
"""
"""All other settings have their defaults."""
AMQTT: Final = """\
listeners:
  default:
    type: tcp
    bind: 127.0.0.1:{port}
plugins:
  amqtt.plugins.authentication.AnonymousAuthPlugin:
    allow_anonymous: true
"""


UNRECORDED: Final = """\
[record]
interval_s = 0
deliveries = "off"
mqtt = false
"""


class Server:
    """A running server."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], address: Address) -> None:
        self.name = name
        self.address = address
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_ready(self) -> None:
        """Return when it accepts connections. Raises BenchError if it has ended, or takes too long."""
        deadline = time.monotonic() + READY_S
        while self.runs and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                socket.create_connection(self.address, timeout=1).close()
                return
            time.sleep(LOOK_S)
        raise BenchError(f"{self.name} does not accept connections on port {self.address[1]}")

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_status(self) -> int | None:
        """None while it runs; negative for the number of the signal that ended it."""
        return self._process.poll()

    def kill(self) -> None:
        """Kill it with SIGKILL, without waiting for its end, so that several can be killed at one moment."""
        self._process.kill()

    def send(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        self._process.send_signal(number)

    def wait(self) -> None:
        self._process.wait()

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            self.wait()


def _ringmq(port: int, folder: Path) -> Sequence[str]:
    return sys.executable, "-m", "ringmq.experiments.processes.front_server", str(port)


def _peer(port: int, folder: Path, *options: str) -> Sequence[str]:
    overlay = choose_ports(0, 1, apart_from=range(port, port + 1))[0]
    addresses = ("--overlay", f"127.0.0.1:{overlay}", "--mqtt", f"127.0.0.1:{port}")
    return sys.executable, "-m", "ringmq", "peer", *addresses, "--no-discovery", *options


def _unrecorded(port: int, folder: Path) -> Sequence[str]:
    file = folder / "peer.toml"
    file.write_text(UNRECORDED, encoding="ascii")
    return _peer(port, folder, "--config", str(file))


def mosquitto_command(file: Path, config: str) -> Sequence[str]:
    """The command that starts Mosquitto with this configuration, which is written to `file`."""
    file.write_text(config, encoding="ascii")
    return _mosquitto_binary() or "mosquitto", "-c", str(file)


def _mosquitto(port: int, folder: Path) -> Sequence[str]:
    return mosquitto_command(folder / "mosquitto.conf", MOSQUITTO.format(port=port))


def _amqtt(port: int, folder: Path) -> Sequence[str]:
    file = folder / "amqtt.yaml"
    file.write_text(AMQTT.format(port=port), encoding="ascii")
    return sys.executable, "-m", "amqtt.scripts.broker_script", "-c", str(file)


def _mosquitto_binary() -> str | None:
    """The path of Mosquitto. Debian installs it into a folder that is not in the PATH of users."""
    return shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin")


COMMANDS: Final[dict[str, Callable[[int, Path], Sequence[str]]]] = {
    "ringmq": _ringmq,
    "mosquitto": _mosquitto,
    "amqtt": _amqtt,
    "peer": _peer,
    "unrecorded": _unrecorded,
}
OTHERS: Final = ("ringmq", "mosquitto", "amqtt")
"""Servers that are compared by default. `ringmq` is the front alone; the other servers are whole peers, with default
records (`peer`) and without records (`unrecorded`)."""


def why_not(name: str) -> str | None:
    """The reason why a server cannot be started here; None if it can."""
    if name == "mosquitto" and _mosquitto_binary() is None:
        return "mosquitto is not installed"
    if name == "amqtt" and importlib.util.find_spec("amqtt") is None:
        return "amqtt is not installed: it comes with the extra `amqtt`"
    return None


@contextlib.contextmanager
def running(name: str, core: int) -> Iterator[Server]:
    """A server, alone on a core while the context lasts. Raises BenchError."""
    port = choose_ports(0, 1)[0]
    with (
        TemporaryDirectory(prefix="ringmq-bench-") as folder,
        started(name, COMMANDS[name](port, Path(folder)), port, core) as server,
    ):
        yield server


@contextlib.contextmanager
def started(name: str, command: Sequence[str], port: int, core: int) -> Iterator[Server]:
    """The process of a command, on a core, which accepts connections at the port. Raises BenchError."""
    server: Server | None = None
    try:
        with held_back():
            server = Server(name, _process(name, command), ("127.0.0.1", port))
        os.sched_setaffinity(server.pid, {core})
        server.await_ready()
        yield server
    finally:
        if server is not None:
            server.stop()


def _process(name: str, command: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(  # noqa: S603  # our own command lines
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except OSError as error:
        raise BenchError(f"cannot start {name}: {error.strerror}") from None


def cores() -> tuple[int, int]:
    """A core for the servers and a core for the load. Raises BenchError if there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        raise BenchError("a benchmark needs two cores: one for the server, one for the load")
    return allowed[0], allowed[1]


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Keep this process on one core while the context lasts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
