"""Cores with work, and a process that keeps to some: nothing is left behind."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from ringmq.experiments.processes.cores import confined, loaded
from ringmq.experiments.processes.usage import Usage

DEADLINE_S = 60.0


def children() -> set[int]:
    """Processes of this one, by their parent in /proc."""
    found = set()
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(file.read_text(errors="replace").rsplit(")", 1)[1].split()[1]) == os.getpid():
                found.add(int(file.parent.name))
    return found


def test_a_loaded_core_has_a_process_that_never_rests_while_it_lasts() -> None:
    core = min(os.sched_getaffinity(0))
    before = children()
    with loaded([core]):
        (process,) = children() - before
        assert os.sched_getaffinity(process) == {core}
        deadline = time.monotonic() + DEADLINE_S
        while Usage.of(process).cpu_s < 0.01:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert children() == before


def test_a_confined_process_has_its_cores_back_afterwards() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    with confined([core]):
        assert os.sched_getaffinity(0) == {core}
    assert os.sched_getaffinity(0) == before
