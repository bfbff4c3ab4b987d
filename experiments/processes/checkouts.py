"""Checkouts of this project whose peers are compared: where the `ringmq` of each is, how its peers start and end.

Knows a checkout by the command line of its peers alone, and never imports its modules: they may be of another version.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from ringmq.experiments.load import reachability
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes.ports import choose_ports
from ringmq.experiments.processes.servers import Server
from ringmq.experiments.processes.signals import held_back

HOST: Final = "127.0.0.1"
PROGRAM: Final = Path(".venv", "bin", "ringmq")
STAMP: Final = Path(".venv", "made-for")
"""Written by `make venv`: the folder that the environment was made in, and a checksum."""
TAIL_BYTES: Final = 4096
"""The end of a log that is searched for the reason of a failure."""
DROPPED: Final = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
"""Variables that peers do not inherit: the first two would lend modules of this checkout to the other."""


@dataclass(frozen=True, slots=True)
class Checkout:
    """A version of this project that can run peers."""

    name: str
    """Name of the side in the comparison."""
    folder: Path
    program: Path


def this() -> Checkout:
    """The version that runs the benchmark. Raises BenchError."""
    program = Path(sysconfig.get_path("scripts")) / "ringmq"
    if not program.exists():
        raise BenchError(f"there is no {program}: install this checkout, as make venv does")
    return Checkout("this", Path(__file__).resolve().parents[2], program)


def other(folder: Path) -> Checkout:
    """The version in a folder with its own environment. Raises BenchError."""
    folder = folder.resolve()
    if not folder.is_dir():
        raise BenchError(f"there is no folder {folder}")
    remedy = f"run: make -C {folder} venv"
    if not (folder / PROGRAM).is_file():
        raise BenchError(f"{folder} has no {PROGRAM}: {remedy}")
    with contextlib.suppress(OSError):
        # A copied environment starts the code of the folder that it was made in.
        made_for = (folder / STAMP).read_text(encoding="utf-8").rpartition(" ")[0].rpartition(" ")[0]
        if made_for != str(folder):
            raise BenchError(f"{folder / PROGRAM} was made for {made_for}: {remedy}")
    return Checkout("other", folder, folder / PROGRAM)


def environment(bytecode: Path, seed: int) -> dict[str, str]:
    """The environment for the peers of both sides.

    They write bytecode to a folder of their own: a peer that compiles its modules needs more memory than one that reads
    them, and the other checkout stays as it is. The seed of hashes is given, as sets and dictionaries of two processes
    would differ in their collisions otherwise.
    """
    kept = {name: value for name, value in os.environ.items() if name not in DROPPED}
    return {**kept, "PYTHONPYCACHEPREFIX": str(bytecode), "PYTHONHASHSEED": str(seed)}


@contextlib.contextmanager
def ring_of(checkout: Checkout, count: int, core: int, env: Mapping[str, str]) -> Iterator[list[Server]]:
    """Start that many peers of a checkout on one core, which are one ring when messages pass. Raises BenchError."""
    ports = choose_ports(0, 2 * count)
    with TemporaryDirectory(prefix="ringmq-bench-") as folder, ExitStack() as stack:
        pipe, parent_end = os.pipe()
        # Nothing is ever written to this pipe: the peers end when they read its end, after this process is gone.
        stack.callback(os.close, parent_end)
        stack.callback(os.close, pipe)
        servers: list[Server] = []
        for number in range(count):
            overlay, mqtt = f"{HOST}:{ports[number]}", ports[count + number]
            join = ("--join", f"{HOST}:{ports[0]}") if number else ()
            options = ("--overlay", overlay, "--mqtt", f"{HOST}:{mqtt}", *join, "--parent-pipe", str(pipe))
            log = Path(folder) / str(number)
            with held_back():
                server = _started(checkout, (*options, "--log-level", "warning"), mqtt, env, pipe, log)
                stack.callback(server.stop)
            os.sched_setaffinity(server.pid, {core})
            servers.append(server)
            try:
                server.await_ready()
            except BenchError as error:
                raise BenchError(f"{error}{_last_words(log)}") from None
        try:
            reachability.check([server.address for server in servers])
        except BenchError as error:
            raise BenchError(f"{checkout.name} ({checkout.folder}): {error}") from None
        yield servers


def _started(
    checkout: Checkout, options: tuple[str, ...], port: int, env: Mapping[str, str], pipe: int, log: Path
) -> Server:
    name = f"a peer of {checkout.name} ({checkout.folder})"
    with log.open("wb") as errors:
        try:
            process = subprocess.Popen(  # noqa: S603  # the `ringmq` of a checkout that the user named
                (str(checkout.program), "peer", *options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=env,
                pass_fds=(pipe,),
            )
        except OSError as error:
            raise BenchError(f"cannot start {name}: {error.strerror}") from None
    return Server(name, process, (HOST, port))


def _last_words(log: Path) -> str:
    """The last line that a peer logged, if there is one."""
    lines = log.read_bytes()[-TAIL_BYTES:].decode(errors="replace").split("\n")
    return next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")
