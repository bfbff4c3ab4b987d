"""Hosts with addresses of their own: network namespaces on one switch, with a peer in each.

Nothing of it has a name, so nothing can collide or be left behind. A namespace lives as long as a process or a
descriptor of it: the switch ends with its standard input, the peers with their parent's pipe, and these with this
process, however it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from ringmq.overlay.errors import OverlayError
from ringmq.overlay.queries import ask_status
from tests.deploy import switch

Result = TypeVar("Result")

OVERLAY_PORT: Final = 4883
MQTT_PORT: Final = 1883
DELAY_S: Final = 0.005
JITTER_S: Final = 0.001
LOSS: Final = 0.01
"""Of each frame's way from one host to another: what a radio link of a site may do, and a cable never."""
SETTINGS: Final = "[limits]\nmax_queued = 100_000\n"
"""What waits for clients that are away is more in these tests than a peer keeps by default."""
TUN: Final = Path("/dev/net/tun")
WITHIN_S: Final = 10.0
_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_TAP_ALONE: Final = 0x1002
"""IFF_TAP with IFF_NO_PI: Ethernet frames, and nothing before them."""

_libc = ctypes.CDLL(None, use_errno=True)


def lacking() -> str:
    """Why this machine can have no such hosts; empty where it can."""
    if sys.platform != "linux":
        return "only Linux has network namespaces"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not TUN.exists():
        return f"there is no {TUN}, so hosts cannot be joined"
    try:
        os.close(_new_namespace())
    except OSError as error:
        return f"this machine lets nobody make a network namespace: {error.strerror}"
    return ""


def lacks_ip() -> bool:
    return shutil.which("ip") is None


def _in_a_thread(call: Callable[[], Result]) -> Result:
    """A namespace is a thread's own: whoever changes it gets a thread that nobody else uses."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _new_namespace() -> int:
    """A descriptor that keeps it."""

    def make() -> int:
        _checked(_libc.unshare(_CLONE_NEWNET))
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    return _in_a_thread(make)


def _new_device() -> int:
    """The other end of an interface `eth0`: frames that it sends are read here, what is written here it receives."""
    line = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(line, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _TAP_ALONE))
    return line


class Host:
    """A machine of the site. `line` is its cable's other end."""

    def __init__(self, number: int, folder: Path, stack: contextlib.ExitStack) -> None:
        self.number = number
        self.address = f"10.83.0.{number + 1}"
        self.folder = folder
        self.peer: subprocess.Popen[bytes] | None = None
        self._namespace = _new_namespace()
        stack.callback(os.close, self._namespace)
        self.line = self.inside(_new_device)
        stack.callback(os.close, self.line)
        stack.callback(self.kill)
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def inside(self, call: Callable[[], Result]) -> Result:
        """What the call opens or starts belongs to this host, and stays there."""

        def enter() -> Result:
            _checked(_libc.setns(self._namespace, _CLONE_NEWNET))
            return call()

        return _in_a_thread(enter)

    def run(self, *command: str) -> str:
        """Raises CalledProcessError, with what it said, if it fails."""
        done = self.inside(
            lambda: subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S, check=True)
        )
        return done.stdout.decode()

    def connect(self, address: str, port: int = MQTT_PORT) -> socket.socket:
        return self.inside(lambda: socket.create_connection((address, port), WITHIN_S))

    def start_peer(self, join: Iterable[Host], parent_pipe: int) -> None:
        """On the disk of the last one, if there was one."""
        assert self.peer is None
        options = ["--overlay", f"{self.address}:{OVERLAY_PORT}", "--mqtt", f"{self.address}:{MQTT_PORT}"]
        options += ["--anonymous", "--data", str(self.folder / "data"), "--parent-pipe", str(parent_pipe)]
        options += ["--config", str(self.folder / "ringmq.toml")]
        for other in join:
            options += ["--join", f"{other.address}:{OVERLAY_PORT}"]
        self.folder.mkdir(exist_ok=True)
        (self.folder / "ringmq.toml").write_text(SETTINGS, encoding="utf-8")
        with (self.folder / "log").open("ab") as log:
            self.peer = self.inside(
                lambda: subprocess.Popen(
                    [sys.executable, "-P", "-m", "ringmq", "peer", *options],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.folder,
                    pass_fds=(parent_pipe,),
                )
            )

    def stop(self) -> None:
        """The peer, which says good-bye."""
        assert self.peer is not None
        self.peer.terminate()
        assert self.peer.wait(WITHIN_S) == 0
        self.peer = None

    def kill(self) -> None:
        """The peer, with SIGKILL."""
        if self.peer is not None:
            self.peer.kill()
            self.peer.wait(WITHIN_S)
            self.peer = None

    def status(self) -> dict[str, Any]:
        """Asked by a program on this host; empty while nobody answers."""
        address = (self.address, OVERLAY_PORT)
        try:
            return self.inside(lambda: asyncio.run(ask_status(address, 2.0)))
        except OverlayError:
            return {}


class Network:
    """Some hosts on one switch; a context manager, at whose end nothing of them is left."""

    def __init__(self, count: int, folder: Path, seed: int = 1) -> None:
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self.hosts = [Host(number, folder / f"host {number}", stack) for number in range(count)]
            pipe, self._parent = os.pipe()
            stack.callback(os.close, self._parent)
            stack.callback(os.close, pipe)
            self._pipe = pipe
            lines = [host.line for host in self.hosts]
            self.switch = subprocess.Popen(
                [sys.executable, "-P", switch.__file__, *map(str, (DELAY_S, JITTER_S, LOSS, seed, *lines))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=lines,
            )
            stack.callback(self._end_switch)
            self._stack = stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def start(self, host: Host) -> None:
        """Its peer. The first host founds the ring, and the others join there; started again, it knows the others."""
        self.heal(host)
        host.start_peer(self.hosts[:1] if host.number else (), self._pipe)

    def cut(self, host: Host) -> None:
        """No frame gets from or to this host any more, when this returns. Its own programs reach each other."""
        self._order("cut", host)

    def heal(self, host: Host) -> None:
        self._order("heal", host)

    def lose(self, host: Host) -> None:
        """As if somebody pulled its plug: it says nothing any more, not even that connections have ended."""
        self.cut(host)
        host.kill()

    def are_one_ring(self, *hosts: Host) -> bool:
        """Whether these are active, and each has just the others for its neighbours."""
        return all(_neighbours(host) == {other.address for other in hosts} - {host.address} for host in hosts)

    def _order(self, word: str, host: Host) -> None:
        assert self.switch.stdin is not None
        assert self.switch.stdout is not None
        self.switch.stdin.write(f"{word} {host.number}\n".encode())
        self.switch.stdin.flush()
        assert self.switch.stdout.readline() == b"ok\n", "the switch has ended"

    def _end_switch(self) -> None:
        with self.switch:
            self.switch.send_signal(signal.SIGKILL)


def _neighbours(host: Host) -> set[str] | None:
    """The addresses in its leaf set; None while its peer is no part of a ring."""
    status = host.status()
    if not status.get("active"):
        return None
    return {leaf["address"].rpartition(":")[0] for side in status["leaves"].values() for leaf in side}
