"""What processes have used of their cores, and how long others kept them from it. Linux: from /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds since the processes began, over all their threads."""

    cpu_s: float
    waited_s: float
    """They could have run, but their core was taken: by somebody else, or by another of them."""

    @classmethod
    def of(cls, *pids: int) -> Self:
        cpu = waited = 0
        for pid in pids:
            for task in Path(f"/proc/{pid}/task").iterdir():
                ran, delayed, _ = (task / "schedstat").read_text(encoding="ascii").split()
                cpu += int(ran)
                waited += int(delayed)
        return cls(cpu / 1e9, waited / 1e9)

    def since(self, earlier: Usage) -> Usage:
        return Usage(self.cpu_s - earlier.cpu_s, self.waited_s - earlier.waited_s)


def busy_s(cores: Iterable[int]) -> float:
    """How long cores were not idle, whoever had them; in steps of some milliseconds."""
    lines = (line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines())
    ticks = {name: [int(one) for one in counts] for name, *counts in lines if name.startswith("cpu")}
    return sum(_busy(ticks[f"cpu{core}"]) for core in cores) / os.sysconf("SC_CLK_TCK")


def _busy(ticks: Sequence[int]) -> int:
    """All but idle and iowait, the fourth and fifth. What follows steal, the eighth, is counted in the first two."""
    return sum(ticks[:3]) + sum(ticks[5:8])


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
