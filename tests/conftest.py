"""What tests of several rooms need: real processes that end with their test, and waiting with a deadline."""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import pytest
from hypothesis import settings

from ringmq.peer.resources.limits import collect_garbage_seldom

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
"""How long an example takes says more of the machine than of the code."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As in the background of a script. Processes under test would inherit it, and Ctrl-C would not end them.
    signal.signal(signal.SIGINT, signal.default_int_handler)

Result = TypeVar("Result")


def pytest_configure(config: pytest.Config) -> None:
    """Let the processes under test, and the workers of xdist, keep bytecode for the time of this run, if this process
    must write none: each of hundreds would compile all modules, which is half of the work of its start."""
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = tempfile.mkdtemp(prefix="ringmq-bytecode-")
        config.add_cleanup(partial(shutil.rmtree, folder, ignore_errors=True))
        os.environ["PYTHONPYCACHEPREFIX"] = folder
    # Each of thousands of tests and syntax trees stays for the whole run: collecting garbage among them took half of
    # the time of the collection of tests.
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage as a peer does, and never among the tests themselves."""
    gc.enable()
    collect_garbage_seldom()


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], Result], within_s: float = ..., what: str = ...) -> Result: ...


def wait_until(condition: Callable[[], Result], within_s: float = 10.0, what: str = "") -> Result:
    """Call `condition` until it gives something true, which is returned; fail when the time is over."""
    deadline = time.monotonic() + within_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            pytest.fail(f"not within {within_s:g} s: {what or condition}, but {result!r}")
        time.sleep(0.01)  # lets the processes under test have the core


class Process:
    """A command under test, in a process of its own."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "ringmq", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
            )
        self.pid = self.popen.pid

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def says(self, text: str, within_s: float = 20.0) -> str:
        """Wait until its output has a line that begins with `text`; returns the line."""

        def found() -> str:
            assert self.popen.poll() is None or text in self.out, f"it ended: {self.out}{self.err}"
            # Only whole lines: the last may be half written.
            return next((line for line in self.out.split("\n")[:-1] if line.startswith(text)), "")

        return wait_until(found, within_s, f"{text!r} of {self.popen.args}")

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM, within_s: float = 10.0) -> int:
        """Signal it and wait; returns its exit status."""
        self.popen.send_signal(number)
        return self.popen.wait(within_s)


class Usage:
    """What a process takes of the machine, read from /proc."""

    def __init__(self, pid: int) -> None:
        self._folder = Path("/proc") / str(pid)

    @property
    def resident_bytes(self) -> int:
        return int((self._folder / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_s(self) -> float:
        """User and system time since the start. The command name before may hold spaces and parentheses."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def state(self) -> str:
        """R running, S sleeping, T stopped, Z ended but not waited for, and so on; empty when it is gone."""
        try:
            return (self._folder / "stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return ""

    @property
    def runs(self) -> bool:
        return self.state not in ("", "Z")


@pytest.fixture
def eventually() -> Eventually:
    return wait_until


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start `ringmq` with these arguments; what still runs at the end of the test is killed by its pid."""
    running: list[Process] = []

    def starter(*arguments: str) -> Process:
        folder = tmp_path / f"process-{len(running)}"
        folder.mkdir()
        running.append(Process(list(arguments), folder))
        return running[-1]

    yield starter
    for process in running:
        with contextlib.suppress(ProcessLookupError):
            process.popen.kill()
        process.popen.wait(10)


@pytest.fixture
def ringmq(start: Callable[..., Process]) -> Callable[..., Process]:
    """Run `ringmq` with these arguments to its end."""

    def runner(*arguments: str) -> Process:
        process = start(*arguments)
        process.popen.wait(30)
        return process

    return runner


@pytest.fixture
def usage() -> type[Usage]:
    return Usage


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port where nobody listens, and where nobody else can while the test runs."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]
