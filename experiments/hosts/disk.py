"""A small disk: a file system in memory, seen only by processes started on it, which can be filled or write-protected.

A mount namespace without a name: nothing is left behind when its last process has ended. Knows no peers.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from ringmq.experiments.hosts.host import checked, in_own_thread

Outcome = TypeVar("Outcome")

_CLONE_FS: Final = 0x200
_CLONE_NEWNS: Final = 0x20000
_MS_RDONLY: Final = 0x1
_MS_REMOUNT: Final = 0x20
_MS_REC_PRIVATE: Final = 0x44000
PIECE_BYTES: Final = 1 << 16

_libc = ctypes.CDLL(None, use_errno=True)


def lacking_disks() -> str:
    """Why this machine can have no small disks; empty where it can."""
    if sys.platform != "linux":
        return "only Linux has mount namespaces"
    if os.geteuid() != 0:
        return "a small disk needs root"
    return ""


class SmallDisk:
    """A folder on a disk of so many bytes; closed with the stack."""

    def __init__(self, folder: Path, size_bytes: int, stack: contextlib.ExitStack) -> None:
        """Raises OSError if the machine lets nobody mount."""
        self.folder = folder
        self.size_bytes = size_bytes
        folder.mkdir(parents=True, exist_ok=True)
        self._mounts = in_own_thread(self._make)
        stack.callback(os.close, self._mounts)

    def _make(self) -> int:
        """A descriptor that keeps the namespace."""
        checked(_libc.unshare(_CLONE_NEWNS))
        checked(_libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None))
        self._mount(0)
        return os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)

    def _mount(self, flags: int) -> None:
        options = f"size={self.size_bytes}".encode()
        checked(_libc.mount(b"tmpfs", os.fsencode(self.folder), b"tmpfs", flags, options))

    def inside(self, call: Callable[[], Outcome]) -> Outcome:
        """The call, and processes that it starts, see the disk."""

        def enter() -> Outcome:
            checked(_libc.unshare(_CLONE_FS))  # or no thread may change its mounts
            checked(_libc.setns(self._mounts, _CLONE_NEWNS))
            return call()

        return in_own_thread(enter)

    def fill(self) -> None:
        """Leave no room."""

        def write() -> None:
            with (self.folder / "filler").open("ab", buffering=0) as file, contextlib.suppress(OSError):
                while True:
                    file.write(bytes(PIECE_BYTES))

        self.inside(write)

    def make_room(self) -> None:
        """Take back `fill`."""
        self.inside(lambda: (self.folder / "filler").unlink(missing_ok=True))

    def protect(self, protected: bool) -> None:
        """Let nobody write, or everybody again. Raises OSError while a file is open for writing."""
        self.inside(lambda: self._mount(_MS_REMOUNT | (_MS_RDONLY if protected else 0)))
