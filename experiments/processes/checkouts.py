"""Checkouts of this project whose peers are compared: where the `ringmq` of each is, how its peers start and end.

Knows a checkout by the command line of its peers alone, and never imports its modules: they may be of another version.
"""

from __future__ import annotations

import contextlib
import os
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ringmq.experiments.load import reachability
from ringmq.experiments.load.raw_clients import BenchError
from ringmq.experiments.processes import peers
from ringmq.experiments.processes.peers import Program, Ring

PROGRAM: Final = Path(".venv", "bin", "ringmq")
STAMP: Final = Path(".venv", "made-for")
"""Written by `make venv`: the folder that the environment was made in, and a checksum."""
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


def ring_of(
    checkout: Checkout, count: int, core: int, env: Mapping[str, str], options: Sequence[str] = ()
) -> AbstractContextManager[Ring]:
    """Start that many peers of a checkout on one core, which are one ring when messages pass. Raises BenchError.

    This version cannot ask peers of another version for their status.
    """
    program = Program((str(checkout.program),), env, f"a peer of {checkout.name} ({checkout.folder})")
    return peers.ring_of(count, options, core, program, partial(_check, checkout))


def _check(checkout: Checkout, ring: Ring) -> None:
    try:
        reachability.check([peer.mqtt for peer in ring.peers])
    except BenchError as error:
        raise BenchError(f"{checkout.name} ({checkout.folder}): {error}") from None
