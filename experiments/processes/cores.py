"""Cores of this machine: one for the peers of a ring, and others that have work already. For Linux.

Owns the processes that use up a core. Knows nothing of peers.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from typing import Final

SPIN: Final = (
    "import os, threading\nthreading.Thread(target=lambda: os.read(0, 1) or os._exit(0)).start()\nwhile True: pass"
)
"""Uses up a core until the end of its standard input, which comes with the end of the process that started it."""
END_S: Final = 10.0


@contextlib.contextmanager
def loaded(cores: Collection[int]) -> Iterator[None]:
    """Each core has a process that never rests, while the context lasts."""
    with ExitStack() as stack:
        for core in cores:
            process = subprocess.Popen([sys.executable, "-S", "-c", SPIN], stdin=subprocess.PIPE)  # noqa: S603  # our own text
            stack.callback(_end, process)
            os.sched_setaffinity(process.pid, {core})
        yield


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(END_S)
    if process.stdin is not None:
        process.stdin.close()


@contextlib.contextmanager
def confined(cores: Collection[int]) -> Iterator[None]:
    """This thread, and those that it starts, run on these cores alone while the context lasts."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
