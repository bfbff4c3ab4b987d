"""What a peer records, how much of it, and where to: each setting with its unit and what it trades."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from ringmq.logger.records import Run

DELIVERIES: Final = ("each", "histogram", "off")
LEAST_INTERVAL_S: Final = 0.1
"""A sample visits all links; more often than this it would be felt."""
MAX_RUN_CHARS: Final = 64
_NOT_IN_A_RUN: Final = re.compile(r"[^A-Za-z0-9._-]")

RANGES: Final[dict[str, tuple[float, float]]] = {
    "interval_s": (0, 86_400),
    "every": (1, 1_000_000_000),
}
"""What each number may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordConfig:
    """The table `[record]` of the peer's file. A wrong value raises ValueError, one clear line."""

    run: str | None = None
    """What the peers of one experiment have in common: 1 to 64 letters, digits, dots, underscores and dashes, since it
    becomes the name of a folder. None: the ring's name."""
    interval_s: float = 1.0
    """Seconds from one sample to the next, and that a histogram covers; at least 0.1. More cost less and show less.
    0: no samples."""
    deliveries: str = "each"
    """each: a record of every chosen message at every peer that it reaches. histogram: of the same messages only how
    long they took, by topic and interval, which is less to store and says nothing of paths. off: neither. It is to be
    the same at all peers of a ring."""
    every: int = 500
    """One in so many messages is chosen, by the peer whose client publishes it. 1 records all and costs the most."""
    mqtt: bool = True
    """Whether the records are published on this peer, below `ringmq/log`, for a collector and who else may read it.
    They cross the ring as other messages do, and take their share of it."""
    file: Path | None = None
    """Records are appended to this file, which no other peer may write to. It and its older parts take some 600 MB at
    most. None: none is written."""
    metrics: tuple[str, int] | None = None
    """The host and port of an HTTP server with `/metrics` for Prometheus. Who reaches it may read it. None: there is
    none."""

    def __post_init__(self) -> None:
        for name, (least, most) in RANGES.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name} is {value}, right would be {least} to {most}")
        if 0 < self.interval_s < LEAST_INTERVAL_S:
            raise ValueError(
                f"interval_s is {self.interval_s}, right would be {LEAST_INTERVAL_S} or more, or 0 for none"
            )
        if self.deliveries not in DELIVERIES:
            raise ValueError(f"deliveries is {self.deliveries!r}, right would be one of {', '.join(DELIVERIES)}")
        if self.deliveries == "histogram" and not self.interval_s:
            raise ValueError("deliveries is histogram, which needs an interval_s above 0")
        if self.run is not None and not is_run(self.run):
            wanted = f"1 to {MAX_RUN_CHARS} letters, digits, dots, underscores and dashes"
            raise ValueError(f"run is {self.run!r}, right would be {wanted}")

    def run_in(self, ring: str) -> str:
        """What the records bear: `run`, or the name of the ring with an underscore for what a run cannot have."""
        return self.run if self.run is not None else _NOT_IN_A_RUN.sub("_", ring)[:MAX_RUN_CHARS]


def is_run(text: str) -> bool:
    """Whether it may name a run."""
    try:
        msgspec.convert(text, Run)
    except msgspec.ValidationError:
        return False
    return True
