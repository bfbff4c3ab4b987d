"""The search for the limit of a server: the method of §5.3 of the paper, without the measurements.

The interval between two publications of one publisher is doubled until the server keeps up. The last step is divided
into 20 parts, and the shortest interval at which the server keeps up is the limit, with an error of at most 5 %.

The search is a generator: it yields the next interval to measure, receives whether the server kept up, and returns the
limit.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

DIVISIONS: Final = 20
MOST_DOUBLINGS: Final = 12

Search = Generator[float, bool, float]


def keeps_up(ingress_hz: float, egress_hz: float, sp_ratio: int) -> bool:
    """Definition 1 of the paper: no messages gather in the server."""
    return ingress_hz > 0 and egress_hz / (ingress_hz * sp_ratio) >= 0.99


def search(start_s: float, quick: bool) -> Search:
    """Search from the interval `start_s` on. `quick` bisects the last step instead of measuring all 20 parts.

    Returns infinity if the server keeps up with no interval.
    """
    enough_s = yield from _doubled(start_s)
    if enough_s is None:
        return float("inf")
    step_s = enough_s / 2 / DIVISIONS
    if not quick:
        best_s = enough_s
        for number in range(DIVISIONS - 1, 0, -1):
            if (yield enough_s / 2 + number * step_s):
                best_s = enough_s / 2 + number * step_s
        return best_s
    enough, short = DIVISIONS, 0
    while enough - short > 1:
        middle = (enough + short) // 2
        if (yield enough_s / 2 + middle * step_s):
            enough = middle
        else:
            short = middle
    return enough_s / 2 + enough * step_s


def _doubled(start_s: float) -> Generator[float, bool, float | None]:
    """The interval that suffices while its half does not.

    Shorter intervals are tried only after a longer one sufficed, since a server needs time to recover from an overload.
    """
    interval_s = start_s
    if (yield interval_s):
        for _ in range(MOST_DOUBLINGS):
            if not (yield interval_s / 2):
                return interval_s
            interval_s /= 2
        return interval_s
    for _ in range(MOST_DOUBLINGS):
        interval_s *= 2
        if (yield interval_s):
            return interval_s
    return None
