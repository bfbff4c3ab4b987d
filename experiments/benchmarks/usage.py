"""What a process has used of its core, and how long others kept it from it. Linux: from /proc/<pid>/schedstat."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds since the process began, over all its threads."""

    cpu_s: float
    waited_s: float
    """It could have run, but its core was taken."""

    @classmethod
    def of(cls, pid: int) -> Self:
        cpu = waited = 0
        for task in Path(f"/proc/{pid}/task").iterdir():
            ran, delayed, _ = (task / "schedstat").read_text(encoding="ascii").split()
            cpu += int(ran)
            waited += int(delayed)
        return cls(cpu / 1e9, waited / 1e9)

    def since(self, earlier: Usage) -> Usage:
        return Usage(self.cpu_s - earlier.cpu_s, self.waited_s - earlier.waited_s)


def memory_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
