"""Processor time of processes, and the time in which they waited for a core. For Linux: reads /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds since the start of the processes, over all their threads."""

    cpu_s: float
    waited_s: float
    """Time in which they were ready but their core was in use, by another process or by another of these processes."""

    @classmethod
    def of(cls, *pids: int) -> Self:
        cpu = waited = 0
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                # Nanoseconds on a core, nanoseconds in the run queue, number of time slices.
                ran, delayed, _ = (task / "schedstat").read_text(encoding="ascii").split()
                cpu += int(ran)
                waited += int(delayed)
        return cls(cpu / 1e9, waited / 1e9)

    def since(self, earlier: Usage) -> Usage:
        return Usage(self.cpu_s - earlier.cpu_s, self.waited_s - earlier.waited_s)


def busy_s(cores: Iterable[int]) -> float:
    """Time in which cores were not idle, by all processes; the resolution is some milliseconds."""
    lines = (line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines())
    ticks = {name: [int(count) for count in counts] for name, *counts in lines if name.startswith("cpu")}
    return sum(_busy(ticks[f"cpu{core}"]) for core in cores) / os.sysconf("SC_CLK_TCK")


def _busy(ticks: Sequence[int]) -> int:
    """Sum of all ticks except idle and iowait, the fourth and fifth. The ticks after steal, the eighth, are part of the
    first two."""
    return sum(ticks[:3]) + sum(ticks[5:8])


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def proportional_bytes(*pids: int) -> int:
    """Memory of processes (PSS): a page that several of them share is counted once in all."""
    kilobytes = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
        kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes * 1024
