"""One peer as a child process: its start, its output and its end.

Knows the command line of a peer and its output, nothing about rings.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final, Self

import click

from ringmq.overlay.config import Address, show
from ringmq.peer.resources.allocator import with_pages

TAIL_BYTES: Final = 4096
"""Bytes of a child's stderr that are kept; the last line of them explains why it ended."""


class Child:
    """One peer process. `active` and `ended` are set once each."""

    def __init__(self, address: Address, process: asyncio.subprocess.Process) -> None:
        self.address = address
        self.process = process
        self.active = asyncio.Event()
        self.ended = asyncio.Event()
        self._tail = b""
        self._readers = (asyncio.create_task(self._read_output()), asyncio.create_task(self._read_errors()))

    @classmethod
    async def start(cls, address: Address, options: Sequence[str], parent_pipe: int) -> Self:
        """Start a peer that ends once every process has closed the writing end of `parent_pipe`."""
        try:
            process = await asyncio.create_subprocess_exec(
                # -P keeps the current folder off the path of modules, where a file could shadow one of ours.
                *(sys.executable, "-P", "-m", "ringmq", "peer"),
                *("--overlay", show(address), "--parent-pipe", str(parent_pipe), *options),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=with_pages(os.environ),
                pass_fds=(parent_pipe,),
                # A process group of its own: Ctrl-C reaches only the parent, which then ends its children in order.
                # If the parent dies, the group is orphaned, and the system wakes a paused child in it.
                process_group=0,
            )
        except OSError as error:
            raise click.ClickException(f"cannot start a process: {error.strerror}") from error
        return cls(address, process)

    def __str__(self) -> str:
        return f"peer {show(self.address)}"

    @property
    def fate(self) -> str:
        """Why the process ended: its signal, its last line on stderr, or its exit status."""
        status = self.process.returncode or 0
        if status < 0:
            return f"killed by {signal.Signals(-status).name}"
        return self.last_line.removeprefix("ringmq: ") or f"exit status {status}"

    @property
    def last_line(self) -> str:
        """The last line on its stderr that is not blank."""
        lines = self._tail.decode(errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "")

    def send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)

    async def _read_output(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.startswith(b"active:"):
                self.active.set()

    async def _read_errors(self) -> None:
        """Read stderr until the child has ended. A reader that paused would fill the pipe and block the child."""
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(65536):
            self._tail = (self._tail + chunk)[-TAIL_BYTES:]
        await self.process.wait()
        self.ended.set()
