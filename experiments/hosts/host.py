"""A host: a network namespace with an address, whose cable ends in a switch.

Nothing of it has a name, so nothing can collide or be left behind: a namespace lives as long as a process or a
descriptor of it. Knows no peers.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

Outcome = TypeVar("Outcome")

LACKS_IP: Final = "the program ip is not installed; on Debian: apt-get install iproute2"
TUN: Final = Path("/dev/net/tun")
WITHIN_S: Final = 10.0
_CLONE_NEWNET: Final = 0x40000000
_TUNSETIFF: Final = 0x400454CA
_TAP_ALONE: Final = 0x1002
"""IFF_TAP with IFF_NO_PI: Ethernet frames, and nothing before them."""

_libc = ctypes.CDLL(None, use_errno=True)


def lacking() -> str:
    """Why this machine can have no hosts; empty where it can."""
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
    if shutil.which("ip") is None:
        return LACKS_IP
    return ""


def in_own_thread(call: Callable[[], Outcome]) -> Outcome:
    """A namespace is a thread's own: whoever changes it gets a thread that nobody else uses."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _new_namespace() -> int:
    """A descriptor that keeps it."""

    def make() -> int:
        checked(_libc.unshare(_CLONE_NEWNET))
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)

    return in_own_thread(make)


def _new_device() -> int:
    """The other end of an interface `eth0`: frames that it sends are read here, what is written here it receives."""
    line = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(line, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _TAP_ALONE))
    return line


class Host:
    """A machine of the site. `line` is the other end of its cable."""

    def __init__(self, number: int, stack: contextlib.ExitStack) -> None:
        """What it holds is given back when the stack is closed."""
        self.number = number
        self.address = f"10.83.0.{number + 1}"
        self._namespace = _new_namespace()
        stack.callback(os.close, self._namespace)
        self.line = self.inside(_new_device)
        stack.callback(os.close, self.line)
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def inside(self, call: Callable[[], Outcome]) -> Outcome:
        """What the call opens or starts belongs to this host, and stays there."""

        def enter() -> Outcome:
            checked(_libc.setns(self._namespace, _CLONE_NEWNET))
            return call()

        return in_own_thread(enter)

    def run(self, *command: str) -> str:
        """The output of a command on this host. Raises CalledProcessError, with what it said, if it fails."""
        done = self.inside(
            lambda: subprocess.run(  # noqa: S603  # our own command line
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=WITHIN_S, check=True
            )
        )
        return done.stdout.decode()

    def connect(self, address: str, port: int) -> socket.socket:
        """A connection from this host."""
        return self.inside(lambda: socket.create_connection((address, port), WITHIN_S))
