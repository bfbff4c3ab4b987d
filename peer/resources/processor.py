"""How long this process has waited for a processor: the sign of a machine with more work than it can do in time."""

from __future__ import annotations

from pathlib import Path
from typing import Final

STATISTICS: Final = Path("/proc/self/schedstat")
"""Of the main thread: nanoseconds on a processor, nanoseconds in wait for one, and turns (Linux, sched-stats.txt)."""


def waited_s() -> float:
    """Seconds since the start in which the main thread could have run and another process did; 0.0 where the system
    does not count them."""
    try:
        return int(STATISTICS.read_bytes().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
